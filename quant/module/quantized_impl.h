/* How a module becomes one that computes codes from codes. */
#pragma once

#include "quant/module/quant_modules.h"
#include "quant/rounding/bits.h"
#include "quant/module/emit.h"
#include "quant/program/step.h"

#include <math.h>

typedef enum oct_domain { OCT_DOMAIN_INVALID, OCT_DOMAIN_FLOAT, OCT_DOMAIN_CODES } oct_domain;

/* Whether the inputs are all float or all codes; otherwise, and when there are fewer than `min` or the
 * context has failed already, INVALID with the context failed. */
oct_domain oct_inputs_domain(oct_context *cx, oct_tensor *const *x, int n, int min);
/* As oct_inputs_domain, and checks the module's fake-quant, which must be there for codes and must not quantize when
 * the inputs are float. */
oct_domain oct_quantized_domain(oct_context *cx, const oct_quantized *m, oct_tensor *const *x,
                                int n, int min);
static inline oct_fake_quant *oct_quantized_fq(const oct_quantized *m)
{
    return (oct_fake_quant *)m->fake_quant;
}

/* Writes the real values of n elements from `first` on of the module's output for inputs x, before they
 * are rounded; n <= OCT_FLAG_BLOCK. */
typedef void oct_real_values(const oct_module *self, oct_tensor *const *x, int64_t first, int64_t n,
                             float *v);

/* What a step takes at a time. Threads share whole units, and no bit depends on who has which. */
typedef enum oct_step_unit {
    OCT_UNIT_ELEMENT,
    OCT_UNIT_ROW,    /* the last dimension */
    OCT_UNIT_SAMPLE, /* a plane */
} oct_step_unit;

/* What a module does that is one step of the integer program: its forward on codes runs that very step, and emit
 * writes it. */
typedef struct oct_quantized_op {
    oct_step_kind kind;
    int inputs;
    oct_step_unit unit;
    /* One of two inputs may repeat (core/tensor/broadcast.h); then samples are the unit. */
    bool broadcasts;
    bool keeps_qparams; /* the output has those of input 0, and no fake-quant of its own */
    /* Computes the same function of float inputs. */
    oct_tensor *(*in_float)(oct_context *cx, oct_module *self, oct_tensor *const *x);
    /* Fails the context unless codes of such an input can be taken; NULL: all inputs have one shape. */
    bool (*fits)(oct_context *cx, const oct_module *self, const oct_tensor *x);
    oct_shape (*shape)(const oct_module *self, const oct_tensor *x); /* NULL: as the input's */
    /* Writes the step's numbers for its values. Arrays stay the module's; emit copies them. NULL: none. */
    oct_status (*constants)(oct_module *self, const oct_program *program, oct_step *step);
    oct_param *(*parameter)(
        const oct_module *self); /* whose gradient `backward` gives; NULL: there is none */
    void (*backward)(oct_context *cx, oct_node *node);
    oct_real_values *values; /* NULL: the scale is fixed, or kept */
    /* Called when the module has been given a fake-quant of its own; NULL: nothing to do. */
    void (*adopted)(const oct_module *self, oct_fake_quant *fq);
    /* Clip mask and range (either may be NULL) of elements that the step has made, where it does not see to them. */
    void (*watch)(const oct_module *self, const oct_tensor *x, int64_t first, int64_t n,
                  uint8_t *mask, float *range);
} oct_quantized_op;

/* Loads the logical codes that n elements of the output from `first` on are computed from: of two inputs, one of
 * which may be broadcast; n <= OCT_FLAG_BLOCK. */
void oct_quantized_load_both(oct_tensor *const *x, int64_t first, int64_t n,
                             int32_t code[2][OCT_FLAG_BLOCK]);
/* Writes the real values of codes. */
void oct_dequantize_tensor(const oct_tensor *x, float *v);
/* Gives the real values of codes, in memory that is borrowed (oct_scratch); NULL when the context has failed. */
float *oct_quantized_values_of(oct_context *cx, const oct_tensor *x);
/* The forward of every type with an oct_quantized_op, whose struct begins with oct_quantized: checks the inputs and computes in float or on codes. */
oct_tensor *oct_quantized_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n);
/* The emit of every type with an oct_quantized_op: writes its step to the program. */
oct_status oct_quantized_emit(oct_module *self, oct_emitter *e);
#define OCT_QUANTIZED_OP(op, self)                                                                 \
    .forward = oct_quantized_forward, .atomic = true, .emit = oct_quantized_emit, .step = (op),    \
    .size = sizeof(self)
/* Takes the gradient of the output of a forward with its own qparams, adds a learned scale's share of it, and clips it
 * by the mask (node->saved). */
float *oct_quantized_detach_grad(oct_context *cx, oct_node *node);

/* Computes the module's codes from the inputs' codes, or of a QuantStub their values: the part of the forward
 * after all checks. */
oct_tensor *oct_quantized_compute(oct_context *cx, oct_module *self, oct_tensor *const *x);
/* Fails the context unless x is (N, H, W, C). */
bool oct_is_plane(oct_context *cx, const oct_tensor *x);
/* Adds `numel` outputs, which `values` computes before they are rounded, to the step's histogram. */
void oct_quantized_count(oct_fake_quant *fq, oct_real_values *values, const oct_module *self,
                         oct_tensor *const *x, int64_t numel);
/* Adds the share of values that were quantized with q to the gradient of a learned scale; grad is not clipped
 * yet. */
void oct_quantized_add_scale_grad(oct_context *cx, const oct_quantized *m, oct_real_values *values,
                                  oct_tensor *const *x, oct_qparams q, const float *grad);
/* Clears a gradient where the output was clipped, as the mask says, by the rule of the module's fake-quant. */
void oct_quantized_clip_grad(const oct_quantized *m, const uint8_t *mask, int64_t n, float *grad);

enum { OCT_PART = 1 << 14 }; /* elements of a part */
