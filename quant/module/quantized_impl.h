/* What the modules share that make codes from codes. */
#pragma once

#include "quant/module/quant_modules.h"

#include <math.h>

typedef enum oct_domain { OCT_DOMAIN_INVALID, OCT_DOMAIN_FLOAT, OCT_DOMAIN_CODES } oct_domain;

/* Whether the inputs are float or codes, all alike; otherwise, and when there are fewer than `least`
 * or the context has failed already, BADLY with the context failed. */
oct_domain oct_inputs_domain(oct_context *cx, oct_tensor *const *x, int n, int least);
/* The same for a module with a fake-quant, which must be there for codes, and must not quantize when
 * the inputs are float. */
oct_domain oct_quantized_domain(oct_context *cx, const oct_quantized *m, oct_tensor *const *x,
                                int n, int least);
static inline oct_fake_quant *oct_quantized_fq(const oct_quantized *m)
{
    return (oct_fake_quant *)m->fake_quant;
}
/* The target requantizes by shifts. */
static inline bool oct_quantized_shifts(const oct_quantized *m)
{
    return m->target->requantizer == OCT_REQUANT_SHIFT;
}
bool oct_same_shapes(oct_context *cx, const oct_tensor *a, const oct_tensor *b);

/* The real values of n elements from `first` on, before they are rounded; n <= OCT_FLAG_BLOCK. */
typedef void oct_real_values(const void *args, int64_t first, int64_t n, float *v);

/* How an output is made, part by part; threads share the parts. */
typedef struct oct_quantized_op {
    const char *op; /* on the tape */
    void (*backward)(oct_context *cx, oct_node *node);
    oct_shape shape;
    int64_t row; /* elements that stay in one part; 1 */
    /* Constants for an output with these qparams, into args; NULL: none. */
    void (*begin)(void *args, oct_qparams y);
    /* n elements from `first` on, which is a multiple of 8; codes and mask are those of `first`. mask
     * and range may be NULL, range is of real values. */
    void (*make)(const void *args, oct_qparams y, int64_t first, int64_t n, void *codes,
                 uint8_t *mask, float *range);
    oct_real_values *values; /* NULL where the scale is fixed for good */
    void *args;
    float real_scale; /* of the pass that only looks for the range (current scales) */
} oct_quantized_op;

/* Makes the output; settles a current scale first, notes range and histogram in training. node->saved becomes
 * the clip mask. */
oct_tensor *oct_quantized_forward(oct_context *cx, oct_quantized *m, oct_tensor *const *x, int n,
                                  const oct_quantized_op *making);
/* Takes the gradient of the node's output, of which a learned scale gets its share, and cuts it by the mask of
 * such a node. values, args: as of the forward; NULL where the scale is fixed for good. */
float *oct_quantized_take_grad(oct_context *cx, oct_node *node, oct_real_values *values,
                               const void *args);
/* The share of a learned scale alone: x has the real values `values`, which were quantized with q; grad is not cut
 * yet. */
void oct_quantized_add_scale_grad(oct_context *cx, const oct_quantized *m, const oct_tensor *x,
                                  oct_qparams q, oct_real_values *values, const void *args,
                                  const float *grad);
/* Cuts a gradient by the module's fake-quant. */
void oct_quantized_clip_grad(const oct_quantized *m, const uint8_t *mask, int64_t n, float *grad);

enum { OCT_PART = 1 << 14 }; /* elements of a part */

/* Takes another part's range in; a NaN, once taken, stays. */
static inline void oct_range_merge(float *range, float min, float max)
{
    if (min < range[0] || isnan(min)) range[0] = min;
    if (max > range[1] || isnan(max)) range[1] = max;
}
