/* A half is a float of 16 bits as IEEE 754 has it: a sign, 5 bits of exponent, 10 of mantissa. */
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
