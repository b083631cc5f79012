/* The modules of a prepared model, and the stubs a user places.
 *
 * Each quantizes its output, never its input. In the states QAT and FROZEN the forward is the
 * deployed integer arithmetic itself (quant/kernel/qops.h); in OFF and CALIBRATE it is the float
 * model. The backward is straight-through: dX from dY and the weight codes, dW from dY and the
 * activation codes; saved are codes and a mask bit per element.
 */
#pragma once

#include "core/nn/modules.h"
#include "core/base/text.h"
#include "quant/kernel/qops.h"
#include "quant/module/fake_quant.h"
#include "quant/runtime/program.h"

extern const oct_module_type oct_quant_stub_type, oct_dequant_stub_type, oct_qat_conv_type,
    oct_qat_add_type, oct_qat_avg_pool_type;

/* Identity until prepare gives it a fake-quant; then float -> codes. */
typedef struct oct_quant_stub {
    oct_module base;
    oct_module *fake_quant; /* child, or NULL */
} oct_quant_stub;
oct_status oct_quant_stub_create(oct_module **m) OCT_NODISCARD;

/* Codes -> float; identity on float. Stateless. */
oct_status oct_dequant_stub_create(oct_module **m) OCT_NODISCARD;

typedef enum oct_activation { OCT_ACT_NONE, OCT_ACT_RELU, OCT_ACT_RELU6 } oct_activation;

/* conv2d or linear (+ batch norm) (+ relu or relu6). With live batch norm the codes of a training
 * step come from the batch's statistics, summed from the integer accumulators in double. */
typedef struct oct_qat_conv {
    oct_module base;
    oct_module *layer;      /* child "conv" or "linear": the float module, which owns the weights */
    oct_module *batch_norm; /* child "bn", or NULL */
    oct_module *fake_quant; /* child, or NULL: the output leaves the integer domain as float */
    oct_activation activation;
} oct_qat_conv;

typedef struct oct_qat_add {
    oct_module base;
    oct_module *fake_quant;
    bool relu;
} oct_qat_add;

/* Average pools keep their input's qparams. kernel 0: global. */
typedef struct oct_qat_avg_pool {
    oct_module base;
    int kernel, stride;
} oct_qat_avg_pool;

/* Each takes its float modules over (pointers set to NULL), also on failure. fake_quant NULL: the
 * output leaves the integer domain as float. */
oct_status oct_qat_conv_create(oct_module **m, oct_module **float_layer, oct_module **batch_norm,
                               oct_activation activation,
                               oct_fake_quant **fake_quant) OCT_NODISCARD;
oct_status oct_qat_add_create(oct_module **m, bool relu, oct_fake_quant **fake_quant) OCT_NODISCARD;
oct_status oct_qat_avg_pool_create(oct_module **m, int kernel, int stride) OCT_NODISCARD;

/* Largest number of products in one accumulator (kernel_h * kernel_w * input channels of a group)
 * for which no sum can leave int32: K * 255 * 127 < 2^30, which leaves room for the bias. */
enum { OCT_MAX_PRODUCTS = (1 << 30) / (255 * 127) };

/* For the converter: the step that this layer is in eval mode on codes with qparams `in` and input
 * planes of in_h x in_w (1 x 1 for linear layers). Fills conv, weight, bias, multiplier,
 * weight_scale, lo and hi; multipliers come out >= 0 (a negative channel has its codes and bias
 * negated, which changes no bit of the result). */
oct_status oct_qat_conv_emit(oct_qat_conv *self, oct_qparams in, int64_t in_h, int64_t in_w,
                             oct_step *step) OCT_NODISCARD;
