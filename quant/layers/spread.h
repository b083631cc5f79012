/* A spread is how the values of a tensor are distributed: range, and counts in 64 bins as wide as a power of two.
 *
 * The width follows from the range alone: it is the smallest with which 64 bins reach from the smallest to
 * the largest value. Where the range grows, pairs of bins become one, so counts depend neither on the order in
 * which values come nor on who has counted them. */
#pragma once

#include "core/base/collective.h"

enum { OCT_SPREAD_BINS = 64 };

typedef struct oct_spread {
    float min, max;  /* min > max: there is no value */
    int64_t unusual; /* infinities and NaN, which are not counted below */
    int exponent;    /* a bin is 2^exponent wide */
    int64_t first;   /* bin i holds the values from (first + i) 2^exponent on */
    int64_t count[OCT_SPREAD_BINS];
} oct_spread;

void oct_spread_begin(oct_spread *spread);
void oct_spread_add(oct_spread *spread, const float *x, int64_t n);
/* Makes `count` spreads those of the values of all ranks (collective); the same on every one. */
oct_status oct_spread_merge(oct_spread *spreads, int64_t count,
                            const oct_collective *group) OCT_NODISCARD;
/* These are the values at which the first bin begins and the last one ends. */
double oct_spread_from(const oct_spread *spread);
double oct_spread_to(const oct_spread *spread);
