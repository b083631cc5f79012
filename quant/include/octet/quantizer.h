/* Observers and fake-quants of one's own: what finds the range of a tensor's values over many steps, and what makes a
 * scale of a range. A plug-in brings them (octet/plugin.h); a recipe or the settings of a training name them in
 * quant.observer, quant.fake_quant and quant.weight_fake_quant.
 *
 * Both are tables of functions whose results depend on their arguments alone. Each rank calls them with the same values,
 * so that ranks and deployed model agree; several threads may call them at the same time. None of them can fail, but a
 * range that is not finite or a scale that is no positive number ends the step (OCT_NUMERIC, with its name).
 */
#ifndef OCTET_QUANTIZER_H
#define OCTET_QUANTIZER_H

#include <octet/nn.h>
#include <octet/qparams.h>

OCT_BEGIN_DECLS

/* ---- observers ---- */

/* What an observer keeps of a tensor beside a histogram. Checkpoints hold both. */
typedef struct oct_range {
    float min, max;  /* +inf and -inf before the first update */
    int64_t updates; /* that the observer has counted */
} oct_range;

/* What an observer sees of a tensor in one step: values of all ranks. */
typedef struct oct_observation {
    float min, max;       /* +inf and -inf: there was none */
    const int64_t *count; /* a histogram, for an observer with `count`; NULL for others */
    bool calibrating;     /* the steps of this phase have equal weight */
    float averaging; /* quant.averaging, in (0, 1]: the weight of a step against those before it */
    double percentile; /* quant.percentile, in [50, 100] */
    /* qparams(fake_quant, min, max): how a range would be quantized. */
    oct_qparams (*qparams)(const void *fake_quant, float min, float max);
    const void *fake_quant;
} oct_observation;

/* An observer has one of the two functions. */
typedef struct oct_observer {
    const char *name; /* [a-z0-9_-]+ */
    /* Merges what was seen into the range, which stays where nothing was. */
    void (*update)(oct_range *range, const oct_observation *seen);
    /* The same of an observer that looks at all values, which costs a pass over them, and is called where something was
     * seen. histogram: its own, zeros in the beginning. */
    void (*count)(oct_range *range, int64_t *histogram, const oct_observation *seen);
} oct_observer;

/* Returns a built-in observer, such as "min_max", or a plug-in's; NULL: there is none of this name. */
OCT_API const oct_observer *oct_observer_find(const char *name);

/* Histograms: how many values of a tensor are where.
 *
 * The grid is one for all tensors, so nothing has to be known before the first value is counted, and counts of batches,
 * ranks and threads are added as whole numbers, in any order. Its bins are those of the float itself: 32 to each power of
 * two from 2^-32 to 2^32 (what is beyond counts in the last), for each sign, and one in the middle for what is nearer to
 * 0. A bin is at most 1/32 as wide as its values are large. A histogram is an array of OCT_HISTOGRAM_BINS counts.
 */
enum {
    OCT_HISTOGRAM_STEPS = 32,                       /* bins of a power of two */
    OCT_HISTOGRAM_SIDE = 64 * OCT_HISTOGRAM_STEPS,  /* bins of a sign */
    OCT_HISTOGRAM_ZERO = OCT_HISTOGRAM_SIDE,        /* the bin of 0 */
    OCT_HISTOGRAM_BINS = 2 * OCT_HISTOGRAM_SIDE + 1 /* in ascending order */
};

/* The bin of x, which is a number. */
OCT_API int oct_histogram_bin(float x);
/* The values of a bin are between these two; bin: from 0 to OCT_HISTOGRAM_BINS - 1. */
OCT_API float oct_histogram_low(int bin);
OCT_API float oct_histogram_high(int bin);
/* Counts n values in; those that are not finite are left out. */
OCT_API void oct_histogram_add(const float *x, int64_t n, int64_t *count);
OCT_API void oct_histogram_merge(const int64_t *other, int64_t *count);
/* Counts by magnitude: those of x and -x, in the bin of the positive one. */
OCT_API void oct_histogram_magnitudes(const int64_t *count, int64_t *magnitudes);
OCT_API int64_t oct_histogram_total(const int64_t *count);
/* The value that a share (0 to 1) of all that was counted does not exceed; values of a bin count as if they were
 * evenly in it, and those of the middle one as 0. 0 when nothing was counted. */
OCT_API float oct_histogram_quantile(const int64_t *count, double share);
/* The sum of the squared differences between what was counted and what codes with these qparams make of it: values of
 * a bin are evenly in it, and those of the middle one are 0. */
OCT_API double oct_histogram_error(const int64_t *count, oct_qparams q);
/* Merges the step's counts into the kept ones, which halve once in 1 / averaging steps after calibration: old counts
 * fade, in whole numbers. Counts the update. */
OCT_API void oct_histogram_keep(oct_range *range, int64_t *histogram, const oct_observation *seen);

/* ---- fake-quants ---- */

/* Rules for activations (`scale`), for weights (`weight_scale`), or for both. */
typedef struct oct_fake_quant_kind {
    const char *name; /* [a-z0-9_-]+ */
    /* Returns an activation's scale for a range that was observed: values lie in [min, max] and become codes in
     * [q.qmin, q.qmax] around q.zero_point. Must return a positive finite number. The target may round it up to a power
     * of two. */
    float (*scale)(float min, float max, oct_qparams q);
    /* Returns an activation's zero_point for that range and the scale that goes with it, in [q.qmin, q.qmax].
     * NULL: it is the q.zero_point that all these functions are given, 0 where no value is below 0, otherwise the middle.
     * Only for targets with free zero points. */
    int32_t (*zero_point)(float min, float max, float scale, oct_qparams q);
    /* The gradient through the quantizer of n activations, in place; mask: 1 bit an element, bit i % 8 of byte i / 8, 0
     * where the value was beyond the codes. NULL: cleared where the mask is 0 (straight-through, clipped). */
    void (*backward)(int64_t n, const uint8_t *mask, float *grad);
    /* Returns the scale of n weights, which become codes in [-127, 127] around 0: those of an output channel, or with
     * per_tensor all of a layer. Scales below 2^-23 are raised to it; NaN says that a weight is not finite. */
    float (*weight_scale)(const float *weight, int64_t n);
    bool per_tensor;
    /* Given for a scale that is learned, NULL otherwise: what the range, or the weights that prepare finds, give is then
     * only its first value, and it is a parameter while the quantizers are in the state QAT. slope[i] = d (scale * code)
     * / d scale, where v[i] is a value divided by the scale, before it is rounded and cut to codes in [q.qmin, q.qmax]
     * around q.zero_point; of weights these are -127 to 127 around 0. The gradient of the scale is the sum of slopes
     * times gradients of the values, over samples leaf by leaf; times factor(n, q) where that is not NULL, n being the
     * number of values in one sample of the tensor that is quantized, or of weights that share the scale. */
    void (*slope)(int64_t n, const float *v, oct_qparams q, float *slope);
    float (*factor)(int64_t n, oct_qparams q);
} oct_fake_quant_kind;

/* Returns a built-in fake-quant, "affine" or "asymmetric", or a plug-in's; NULL: there is none of this name. */
OCT_API const oct_fake_quant_kind *oct_fake_quant_kind_find(const char *name);

/* ---- fusions by hand, for quant.method eager; the other methods find what can be fused ---- */

/* Makes one module of modules that follow each other: `count` names, paths below *root, such as {"conv1", "bn1", "relu"}
 * or {"conv2", "bn2", "add", "relu"}. The fused module replaces the first one, or the add, whose first input must then be
 * what the members before it make (a forward that passes it second fails); the others become identity. The network computes
 * what it did where in each call every member's output goes to the next one and nowhere else, which prepare finds in the
 * traced calls of both modes: it refuses lists that they contradict. The first member's pre hooks stay before its input and
 * the last one's hooks move to the fused module; any other hook is an error unless drop_hooks. OCT_PREPARE, nothing changed,
 * when a name is unknown (naming those that exist), there is no fusion of such members, members are in different modes, or
 * the batch norm has other channels than the layer. */
OCT_API oct_status oct_fuse_modules(oct_module **root, const char *const *names, size_t count,
                                    bool drop_hooks);
/* Fuses all lists or nothing. Each list ends with NULL, the lists end with NULL. */
OCT_API oct_status oct_fuse_module_lists(oct_module **root, const char *const *const *lists,
                                         bool drop_hooks);

OCT_END_DECLS

#endif
