/* What can be put in place of a fake-quant's own rules, by name: a custom fake-quant, of activations
 * (`scale`), of weights (`weight_scale`), or of both.
 *
 * Every function is a pure one of what it is given, so all ranks and the deployed model agree.
 */
#pragma once

#include "core/base/registry.h"
#include "quant/rounding/qparams.h"

typedef struct oct_fake_quant_kind {
    const char *name; /* "affine" is the built-in one */
    /* Returns an activation's scale for a range that was observed: values lie in [min, max] and become codes in
     * [q.qmin, q.qmax] around q.zero_point. Must return a positive finite number. The target may
     * round it up to a power of two. */
    float (*scale)(float min, float max, oct_qparams q);
    /* Returns an activation's zero_point for that range and the scale that goes with it, in [q.qmin, q.qmax].
     * NULL: it is the q.zero_point that all these functions are given, 0 where no value is below 0, otherwise the middle.
     * Only for targets with free zero points. */
    int32_t (*zero_point)(float min, float max, float scale, oct_qparams q);
    /* The gradient through the quantizer, in place; mask: 1 bit an element, 0 where the value was
     * beyond the codes. NULL: cleared where the mask is 0 (straight-through, clipped). */
    void (*backward)(int64_t n, const uint8_t *mask, float *grad);
    /* Returns the scale of n weights, which become codes in [-127, 127] around 0: those of an output
     * channel, or with per_tensor all of a layer. Scales below 2^-23 are raised to it; NaN says that a weight
     * is not finite. */
    float (*weight_scale)(const float *weight, int64_t n);
    bool per_tensor;
    /* Given for a scale that is learned, NULL otherwise: what the range, or the weights that prepare finds, give
     * is then only its first value, and it is a parameter while the quantizers are in the state QAT. slope[i] =
     * d (scale * code) / d scale, where v[i] is a value divided by the scale, before it is rounded
     * and cut to codes in [q.qmin, q.qmax] around q.zero_point; of weights these are -127 to 127 around 0. The
     * gradient of the scale is the sum of slopes times gradients of the values, over samples leaf by leaf;
     * times factor(n, q) where that is not NULL, n being the number of values in one sample of the
     * tensor that is quantized, or of weights that share the scale. */
    void (*slope)(int64_t n, const float *v, oct_qparams q, float *slope);
    float (*factor)(int64_t n, oct_qparams q);
} oct_fake_quant_kind;

#define OCT_FAKE_QUANT_KIND(file) extern const oct_fake_quant_kind oct_fake_quant_##file;
#include "quant/module/fake_quant_kind_list.def"
#undef OCT_FAKE_QUANT_KIND

/* Kinds are numbered in the order of the list, then of plug-ins. */
extern oct_registry oct_fake_quant_kind_table;
static inline const oct_fake_quant_kind *oct_fake_quant_kind_find(const char *name) /* NULL */
{
    return oct_registry_find(&oct_fake_quant_kind_table, name);
}
/* Adds a plug-in's kind; kinds live as long as the process. OCT_USAGE when the name is taken by another
 * one. */
static inline oct_status oct_fake_quant_kind_register(const oct_fake_quant_kind *kind)
{
    return oct_registry_add(&oct_fake_quant_kind_table, kind);
}
