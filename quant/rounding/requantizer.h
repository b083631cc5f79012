/* How sums become codes, as a target has it (quant/target/target.h), and the constants of those that multiply by whole
 * numbers: training, evaluation and the runtime derive them here alone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The numbers are those in files; new ones come behind. */
typedef enum oct_requantizer {
    OCT_REQUANT_FLOAT,      /* round_half_even((float)acc * multiplier) */
    OCT_REQUANT_SHIFT,      /* (acc + 2^(shift-1)) >> shift: scales are powers of two */
    OCT_REQUANT_DOUBLE,     /* a multiplier of 31 bits and a shift, each of which rounds */
    OCT_REQUANT_SHIFT_EVEN, /* as SHIFT, halves to the even number */
    OCT_REQUANT_SHIFT_20,   /* as SHIFT, of sums that are cut to 20 bits */
    OCT_REQUANT_Q15,        /* a multiplier of 15 bits between two shifts, which round halves up */
    OCT_REQUANTIZERS
} oct_requantizer;

/* Tells whether every scale is a power of two. */
static inline bool oct_requantizer_shifts(oct_requantizer r)
{
    return r == OCT_REQUANT_SHIFT || r == OCT_REQUANT_SHIFT_EVEN || r == OCT_REQUANT_SHIFT_20;
}

/* Shifts to the right, arithmetically: halves up, or with `even` to the even number. Nothing overflows for |sum| <
 * 2^62 and right <= 62. */
static inline int64_t oct_shift_right(int64_t sum, int64_t right, bool even)
{
    const int64_t half = INT64_C(1) << right >> 1;
    const int64_t less = even & (half > 0) & ~(sum >> right);
    return (sum + half - less) >> right;
}

/* Tells whether multipliers are whole numbers with an exponent, which follow from scales. */
static inline bool oct_requantizer_is_fixed(oct_requantizer r)
{
    return r == OCT_REQUANT_DOUBLE || r == OCT_REQUANT_Q15;
}

/* The number multiplier * 2^(exponent - 31), the multiplier having 31 bits and a sign, or being 0. Of Q15 the
 * multiplier has 15 bits and the number is multiplier * 2^(exponent - 15). */
typedef struct oct_fixed {
    int32_t multiplier, exponent;
} oct_fixed;

/* Rounds a real number to its 31 bits, halves away from 0. Numbers below 2^-32, which would take more than 31 shifts
 * to the right, become 0, as does what is not finite; exponents stay below OCT_FIXED_LEFT, where every sum but 0 is
 * beyond all codes. Of Q15 to 15 bits, halves up, at most 32767 of them; numbers beyond 32767 count as that, and those
 * below 2^-34, of which no sum leaves anything, become 0. */
enum { OCT_FIXED_LEFT = 31 };
oct_fixed oct_fixed_of(oct_requantizer r, double real);
/* The same of a layer's channel, whose scales are those of its input, its weights and its output. */
oct_fixed oct_fixed_of_layer(oct_requantizer r, float x_scale, float weight_scale, float y_scale);

/* Multiplies a sum by a fixed number of DOUBLE: shifted to the left first, kept within 32 bits; then the high half
 * of twice the product, halves up; then to the right, halves away from 0. */
static inline int64_t oct_fixed_double(int64_t sum, oct_fixed f)
{
    const int left = f.exponent > 0 ? f.exponent : 0, right = f.exponent < 0 ? -f.exponent : 0;
    const int64_t most = INT32_MAX, wide = sum * (INT64_C(1) << left);
    const int64_t x = wide > most ? most : wide < -most ? -most : wide;
    const int64_t high = (x * f.multiplier + (INT64_C(1) << 30)) >> 31;
    const int64_t mask = (INT64_C(1) << right) - 1;
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0));
}

/* Multiplies a sum by a fixed number of Q15: shifted to the right so far that what is behind fits, at most by 17; kept
 * within 16 bits; times the multiplier; shifted by the rest. wide: the output has 16 bits. A multiplier below 0 counts
 * for the sum, so that the signs of both can change together. */
static inline int64_t oct_fixed_q15(int64_t sum, oct_fixed f, bool wide)
{
    const int64_t right = 15 - f.exponent, behind = wide ? 14 : 22;
    const int64_t most = right - behind > 17 ? 17 : right - behind, before = most < 0 ? 0 : most;
    const int64_t multiplier = f.multiplier < 0 ? -f.multiplier : f.multiplier;
    const int64_t x = oct_shift_right(f.multiplier < 0 ? -sum : sum, before, false);
    const int64_t narrow = x > INT16_MAX ? INT16_MAX : x < INT16_MIN ? INT16_MIN : x;
    return oct_shift_right(narrow * multiplier, right - before, false);
}

/* Multiplies by a fixed number as the requantizer does, of those that have one. */
static inline int64_t oct_fixed_times(oct_requantizer r, int64_t sum, oct_fixed f, bool wide)
{
    return r == OCT_REQUANT_Q15 ? oct_fixed_q15(sum, f, wide) : oct_fixed_double(sum, f);
}
