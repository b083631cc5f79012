/* Observers: ranges of a tensor over training steps.
 *
 * What ranks exchange are the batch's min and max as order-preserving integer keys, and the counts of its
 * histogram where an observer wants them; the state is updated from the global values, so it is the same on
 * all ranks and for any number of them.
 * State has its final shape from creation: min, max (f32) and the number of updates, and a
 * histogram (s64) for an observer that counts. Adding one: a file in this folder and a line in
 * observer_list.def.
 */
#pragma once

#include "core/base/registry.h"
#include "core/tensor/tensor.h"

typedef struct oct_range {
    float min, max; /* +inf, -inf before the first update */
    int64_t updates;
} oct_range;

/* One step's values of all ranks, as observers get to know them. */
typedef struct oct_seen {
    float min, max;
    const int64_t *count; /* OCT_HISTOGRAM_BINS (below); NULL where the observer does not count */
    bool calibrating;     /* the steps of this phase have equal weight */
    double percentile;    /* recipe constant in [50, 100] */
    /* Returns how a range would be quantized, by the fake-quant's kind and for its target. */
    oct_qparams (*qparams)(const void *fake_quant, float min, float max);
    const void *fake_quant;
} oct_seen;

/* An observer has one of the two functions. averaging: recipe constant in (0, 1]. */
typedef struct oct_observer {
    const char *name; /* "min_max", "moving_average" */
    /* Merges the global batch's range into the state. */
    void (*update)(oct_range *state, float batch_min, float batch_max, float averaging);
    /* Updates the state of an observer that looks at all values, which costs a pass over them. histogram: its own,
     * zeros in the beginning, which is saved with the state. */
    void (*count)(oct_range *state, int64_t *histogram, const oct_seen *batch, float averaging);
} oct_observer;

#define OCT_OBSERVER(file) extern const oct_observer oct_observer_##file;
#include "quant/observer/observer_list.def"
#undef OCT_OBSERVER

/* These are what the counting observers of this folder share. The first merges the step's counts into the kept ones,
 * which halve once in 1 / averaging steps after calibration: old counts fade, in whole numbers,
 * equal on all ranks. The second sets the range to what was counted in [-most, most]. */
void oct_observer_keep(oct_range *state, int64_t *histogram, const oct_seen *batch,
                       float averaging);
void oct_observer_cut(oct_range *state, const int64_t *histogram, float most);

/* Observers are numbered in the order of the list, then of plug-ins. */
extern oct_registry oct_observer_table;
static inline const oct_observer *oct_observer_find(const char *name) /* NULL */
{
    return oct_registry_find(&oct_observer_table, name);
}
/* Adds a plug-in's observer; observers live as long as the process. OCT_USAGE when the name is taken by another
 * one. */
static inline oct_status oct_observer_register(const oct_observer *observer)
{
    return oct_registry_add(&oct_observer_table, observer);
}

/* Keys preserve the order: a < b as floats gives key(a) < key(b); -0 and +0 share one key. NaN maps to
 * INT32_MAX so that a maximum shows it. */
int32_t oct_float_key(float x);
float oct_float_of_key(int32_t key);

/* Histograms: how many values of a tensor are where.
 *
 * The grid is one for all tensors, so nothing has to be known before the first value is counted, and
 * counts of batches, ranks and threads are added as whole numbers, in any order. Its bins are those
 * of the float itself: 32 to each power of two from 2^-32 to 2^32 (what is beyond counts in the
 * last), for each sign, and one in the middle for what is nearer to 0. A bin is at most 1/32 as wide as its
 * values are large.
 */
enum {
    OCT_HISTOGRAM_STEPS = 32,                       /* bins of a power of two */
    OCT_HISTOGRAM_SIDE = 64 * OCT_HISTOGRAM_STEPS,  /* bins of a sign */
    OCT_HISTOGRAM_ZERO = OCT_HISTOGRAM_SIDE,        /* the bin of 0 */
    OCT_HISTOGRAM_BINS = 2 * OCT_HISTOGRAM_SIDE + 1 /* in ascending order */
};

/* The bin of x, which is a number. */
int oct_histogram_bin(float x);
/* The values of a bin are between these two. */
float oct_histogram_low(int bin);
float oct_histogram_high(int bin);

/* Counts n values in; those that are not finite are left out. */
void oct_histogram_add(const float *x, int64_t n, int64_t *count);
void oct_histogram_merge(const int64_t *other, int64_t *count);
/* Counts by magnitude: those of x and -x, in the bin of the positive one. */
void oct_histogram_magnitudes(const int64_t *count, int64_t *magnitudes);
int64_t oct_histogram_total(const int64_t *count);
/* The value that a share (0 to 1) of all that was counted does not exceed; values of a bin count as if they were
 * evenly in it, and those of the middle one as 0. 0 when nothing was counted. */
float oct_histogram_quantile(const int64_t *count, double share);
/* The sum of the squared differences between what was counted and what codes with these qparams make of it: values of
 * a bin are evenly in it, and those of the middle one are 0. */
double oct_histogram_error(const int64_t *count, oct_qparams q);
