/* The fake-quant of a layer's weights where their scales are not simply the largest magnitudes of the step: a
 * module without a forward, the child "weight_fake_quant" of the qat_conv that owns the layer.
 *
 * Weights are the same for all samples, so what depends on them is computed from the total of their gradient,
 * once a step (oct_quantizers_backward): it is cut where weights are beyond the codes, and gives the
 * gradients of learned scales.
 */
#pragma once

#include "core/nn/module.h"
#include "quant/module/fake_quant_kind.h"

#include <float.h>

/* What scales may be. */
static const oct_value_range oct_scale_range = {(double)FLT_TRUE_MIN, (double)FLT_MAX};

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

/* A learned scale begins with what the kind gives for the weights of now. */
oct_status oct_weight_fake_quant_create(oct_weight_fake_quant **wq, const oct_fake_quant_kind *kind,
                                        oct_param *weight, bool per_tensor,
                                        bool shift) OCT_NODISCARD;
/* Writes the scale of each output channel with which codes are made: scale (O). */
void oct_weight_fake_quant_scales(const oct_weight_fake_quant *wq, float *scale);
/* Turns the total gradient of the values that the codes stand for into those of the weights and of the scale.
 * Does nothing where no codes are made. */
oct_status oct_weight_fake_quant_backward(const oct_weight_fake_quant *wq) OCT_NODISCARD;
/* Keeps a learned scale positive, after the optimizer. OCT_NUMERIC when it is not finite. */
oct_status oct_weight_fake_quant_update(const oct_weight_fake_quant *wq) OCT_NODISCARD;
