/* Floats of 16 bits. A half, as IEEE 754 has it, is a sign, 5 bits of exponent, 10 of mantissa; a bfloat16 is the upper
 * half of a float. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float oct_half_value(uint16_t half)
{
    const uint32_t exponent = half >> 10 & 0x1f, mantissa = half & 0x3ff;
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t bits = sign | (exponent + 112) << 23 | mantissa << 13;
    float value;
    if (exponent == 0x1f) bits = sign | 0x7f800000 | mantissa << 13;
    memcpy(&value, &bits, sizeof value);
    /* Below the normal ones the steps are 2^-24. */
    return exponent > 0 ? value : ldexpf(sign ? -(float)mantissa : (float)mantissa, -24);
}

/* Rounds to nearest, ties to even, into the lower half of a word; a NaN stays one. */
static inline uint32_t oct_bf16_word(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const uint32_t quiet = bits >> 16 | 0x40;
    return (bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded;
}

static inline uint16_t oct_bf16_of(float value)
{
    return (uint16_t)oct_bf16_word(value);
}

static inline float oct_bf16_value(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
