/* Histograms: how many values of a tensor lie where.
 *
 * The grid is one for all tensors, so nothing has to be known before the first value is counted, and
 * counts of batches, ranks and threads are added as whole numbers, in any order. Its bins are those
 * of the float itself: 32 to each power of two from 2^-32 to 2^32 (what is beyond counts in the
 * last), for each sign, and one in the middle for what is nearer to 0. A bin is at most 1/32 as wide as its
 * values are large.
 */
#pragma once

#include "core/tensor/tensor.h"

enum {
    OCT_HISTOGRAM_STEPS = 32,                       /* bins of a power of two */
    OCT_HISTOGRAM_SIDE = 64 * OCT_HISTOGRAM_STEPS,  /* bins of a sign */
    OCT_HISTOGRAM_ZERO = OCT_HISTOGRAM_SIDE,        /* the bin of 0 */
    OCT_HISTOGRAM_BINS = 2 * OCT_HISTOGRAM_SIDE + 1 /* in ascending order */
};

/* The bin of x, which is a number. */
int oct_histogram_bin(float x);
/* The values of a bin lie between these two. */
float oct_histogram_low(int bin);
float oct_histogram_high(int bin);

/* Counts n values in; those that are not finite are left out. */
void oct_histogram_add(const float *x, int64_t n, int64_t *count);
void oct_histogram_merge(const int64_t *other, int64_t *count);
/* Halves every count, rounded down. */
void oct_histogram_halve(int64_t *count);
/* Counts by magnitude: those of x and -x, in the bin of the positive one. */
void oct_histogram_magnitudes(const int64_t *count, int64_t *magnitudes);
int64_t oct_histogram_total(const int64_t *count);
/* The value that a share (0 to 1) of all that was counted does not exceed; values of a bin count as if they were
 * evenly in it, and those of the middle one as 0. 0 when nothing was counted. */
float oct_histogram_quantile(const int64_t *count, double share);
/* The sum of the squared differences between what was counted and what codes with these qparams make of it: values of
 * a bin are evenly in it, and those of the middle one are 0. */
double oct_histogram_error(const int64_t *count, oct_qparams q);
