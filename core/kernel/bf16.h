/* A bfloat16 is the upper half of a float. */
#pragma once

#include <stdint.h>
#include <string.h>

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
