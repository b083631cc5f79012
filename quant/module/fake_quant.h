/* The fake-quant of one activation tensor: a module without a forward that owns the tensor's
 * observer state and scale. Placed once per tensor by prepare, as the child "fake_quant" of the
 * module that makes the tensor.
 *
 * Delayed scales: the scale used in a step comes from the statistics up to the step before. A forward
 * notes its batch's min and max; at the end of the step the trainer exchanges them as keys and
 * updates the state (oct_quantizers_*). For an observer that counts (octet/quantizer.h) the forward shows its
 * values once more, as they are before they are rounded, and the counts are summed over the ranks.
 * A learned scale (octet/quantizer.h) is a parameter in the state QAT: it begins with what calibration has left,
 * or with what the first step shows, and no range moves it afterwards.
 * Current scales: the batch is observed first and quantized with the scale that follows, as PyTorch
 * does; each layer computes its range in a pass of its own and the ranks synchronize at each fake-quant.
 */
#pragma once

#include "core/base/collective.h"
#include "core/nn/module.h"
#include "quant/module/qconfig.h"
#include "quant/target/target.h"

#include <float.h>

/* What the quantizers of a model do. Observing happens in training mode only, whatever the state. */
#define OCT_QUANT_STATE_LIST(X)                                                                    \
    X(OFF, "off")             /* neither: float */                                                 \
    X(CALIBRATE, "calibrate") /* observe the float model */                                        \
    X(SIMULATE, "simulate")   /* float values, rounded to their codes: for sensitivity */          \
    X(QAT, "qat")             /* observe and quantize */                                           \
    X(FROZEN, "frozen")       /* quantize; scales stay */

typedef enum oct_quant_state {
#define X(name, text) OCT_QUANT_##name,
    OCT_QUANT_STATE_LIST(X)
#undef X
} oct_quant_state;

typedef struct oct_fake_quant {
    oct_module base;
    oct_qconfig qconfig;
    const oct_target *target;
    /* The zero_point is the middle of the codes; otherwise values are >= 0 and it is 0. A kind may choose
     * another one. */
    bool is_signed;
    bool fixed; /* the scale is given and no range moves it (softmax) */
    oct_quant_state state;
    float *min, *max; /* buffers of one element: the observer's range */
    int64_t *updates;
    float *scale;
    int64_t *zero_point; /* buffer of one element where the kind chooses it, or NULL */
    oct_param *learned;  /* whose value that is, where the kind has slopes; or NULL: a buffer */
    int64_t *histogram;  /* buffer of OCT_HISTOGRAM_BINS: of an observer that counts, or NULL */
    float
        batch_range[2]; /* this step's min and max on this rank; +inf, -inf when nothing was seen */
    int64_t *batch_histogram; /* this step's, on this rank; NULL as above */
} oct_fake_quant;

extern const oct_module_type oct_fake_quant_type;

/* Makes one for activations. is_signed: values below 0 occur. Targets without unsigned codes put every zero_point in
 * the middle; targets that shift round scales up to powers of two. The kind "affine" is what the target says it is. */
oct_status oct_fake_quant_create(oct_fake_quant **fq, const oct_qconfig *qconfig,
                                 const oct_target *target, bool is_signed);
/* Sets a scale for good. */
void oct_fake_quant_fix(oct_fake_quant *fq, float scale);
/* Returns scale, zero point and codes as they are now; a scale is a power of two where the target shifts. */
oct_qparams oct_fake_quant_qparams(const oct_fake_quant *fq);
/* Returns how the kind and the target quantize a range (oct_observation.qparams). It is not checked; where the scale is not a
 * positive number, the kind is not asked for a zero_point. */
oct_qparams oct_fake_quant_of_range(const void *fake_quant, float min, float max);
static inline bool oct_is_scale(float scale)
{
    return isfinite(scale) && scale > 0.0f;
}
/* Clears the range and the histogram of what this step's forwards have observed. */
void oct_fake_quant_reset_batch(oct_fake_quant *fq);
/* The float path of every module that quantizes its output: observes y, or rounds it to its codes and
 * back, as the state says. fq NULL and y NULL are fine. Returns y or what takes its place. */
oct_tensor *oct_fake_quant_float(oct_context *cx, oct_fake_quant *fq, bool training, oct_tensor *y);
/* Clears grad[i] where the mask is 0: one bit an element, bit i%8 of byte i/8, 1 where the gradient passes. */
void oct_mask_apply(const uint8_t *mask, int64_t n, float *grad);
/* Gradient through the quantizer, by the fake-quant's kind; mask as oct_mask_apply. */
void oct_fake_quant_backward(const oct_fake_quant *fq, int64_t n, const uint8_t *mask, float *grad);
/* Merges a range seen by a forward in training into the step's, when the state observes. */
void oct_fake_quant_observe(oct_fake_quant *fq, bool training, float min, float max);
/* Takes the range from values in memory (float modules while calibrating), which are counted, too. */
void oct_fake_quant_observe_values(oct_fake_quant *fq, bool training, const float *x, int64_t n);
/* Whether a forward in this mode counts its values beside their range. */
bool oct_fake_quant_counts(const oct_fake_quant *fq, bool training);
/* Adds a histogram of some of the values to the step's; any thread may. */
void oct_fake_quant_count(oct_fake_quant *fq, const int64_t *count);
static inline bool oct_fake_quant_quantizes(const oct_fake_quant *fq)
{
    return fq->state == OCT_QUANT_QAT || fq->state == OCT_QUANT_FROZEN;
}

/* Whether a forward in this mode updates the scale from its own values before it quantizes (current scales). */
static inline bool oct_fake_quant_updates_first(const oct_fake_quant *fq, bool training)
{
    return fq->qconfig.current_scales && !fq->learned && !fq->fixed && !fq->qconfig.fixed_scale &&
           training && fq->state == OCT_QUANT_QAT;
}
/* Whether the scale is learned in this state. Then a recorded forward that uses it uses the parameter
 * (oct_param_used), and the backward of that use adds to its gradient. */
static inline bool oct_fake_quant_learns(const oct_fake_quant *fq)
{
    return fq && fq->learned && !fq->learned->frozen;
}

/* A sum of slopes times gradients. Elements are added in ascending order, in parts of any size, which change no
 * bit of it. */
typedef struct oct_slope_sum {
    const oct_fake_quant *fq;
    oct_qparams q;
    double lane[8];
} oct_slope_sum;
/* Adds grad * slope of n values v, in units of the scale; `first` is counted from the beginning of the sum. */
void oct_slope_sum_add(oct_slope_sum *sum, int64_t first, int64_t n, const float *v,
                       const float *grad);
/* Returns the sum, times the kind's factor for `each` values in a sample. */
float oct_slope_sum_end(const oct_slope_sum *sum, int64_t each);

/* Collective: merges the range that the forward has noted over all ranks and updates observer and
 * scale at once. OCT_NUMERIC as oct_quantizers_update. */
oct_status oct_fake_quant_update(oct_fake_quant *fq, const oct_collective *group);

/* What scales may be. */
static const oct_value_range oct_scale_range = {(double)FLT_TRUE_MIN, (double)FLT_MAX};

/* The fake-quant of a layer's weights where their scales are not simply the largest magnitudes of the step: a
 * module without a forward, the child "weight_fake_quant" of the qat_conv that owns the layer.
 *
 * Weights are the same for all samples, so what depends on them is computed from the total of their gradient,
 * once a step (oct_quantizers_backward): it is cut where weights are beyond the codes, and gives the
 * gradients of learned scales. */
typedef struct oct_weight_fake_quant {
    oct_module base;
    const oct_fake_quant_kind *kind;
    oct_param *weight; /* the layer's, (O, ...); borrowed */
    bool per_tensor;   /* until a batch norm is folded into the layer, unless */
    bool by_target;    /* the target has no other scales for such a layer */
    bool shift;        /* the target wants powers of two */
    bool quantizes;    /* codes are made of the weights, and gradients pass through them */
    oct_param *scale;  /* (O), learned; per_tensor: all are one number. NULL: not learned */
} oct_weight_fake_quant;

extern const oct_module_type oct_weight_fake_quant_type;

/* Makes a fake-quant of a layer's weights. A learned scale begins with what the kind gives for them now. */
oct_status oct_weight_fake_quant_create(oct_weight_fake_quant **wq, const oct_fake_quant_kind *kind,
                                        oct_param *weight, bool per_tensor, bool shift);
/* Writes the scale of each output channel with which codes are made: scale (O). */
void oct_weight_fake_quant_scales(const oct_weight_fake_quant *wq, float *scale);

/* All fake-quants below a module, in order of the tree: the same on every rank. */
typedef struct oct_quantizers {
    oct_fake_quant **items;
    size_t count, capacity;
    oct_weight_fake_quant **weights; /* where weights have one of their own */
    size_t num_weights, weight_capacity;
} oct_quantizers;

/* Lists the fake-quants of activations and of weights below root. */
oct_status oct_quantizers_collect(oct_quantizers *quantizers, oct_module *root);
void oct_quantizers_free(oct_quantizers *quantizers);
/* Sets the state of all and clears what they have observed in this step; learned scales are trained in QAT alone. */
void oct_quantizers_set_state(const oct_quantizers *quantizers, oct_quant_state state);
/* Passes the total gradients of weights with a fake-quant of their own through it: between oct_params_reduce and
 * the optimizer. */
oct_status oct_quantizers_backward(const oct_quantizers *quantizers);
/* The step's ranges as 2 * count keys whose element-wise maximum over ranks is the global range. */
void oct_quantizers_keys(const oct_quantizers *quantizers, int64_t *keys);
/* OCT_NUMERIC naming the module when a global range is not finite; to be asked before anything is updated. */
oct_status oct_quantizers_check(const oct_quantizers *quantizers, const int64_t *keys);
/* Sums the step's histograms over the ranks; collective where some observer counts. */
oct_status oct_quantizers_sum_counts(const oct_quantizers *quantizers, const oct_collective *group);
/* Updates observers and scales from the global keys and histograms, after the optimizer, and starts the next
 * step's; a learned scale is kept positive. A quantizer that saw nothing stays as it is; a range that is not
 * finite is OCT_NUMERIC naming the module. */
oct_status oct_quantizers_update(const oct_quantizers *quantizers, const int64_t *keys);
/* Drops the ranges and histograms of a step that has failed, in place of an update. */
void oct_quantizers_discard_batch(const oct_quantizers *quantizers);
