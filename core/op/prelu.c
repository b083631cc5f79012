/* PReLU is x above 0 and weight * x elsewhere, with one weight a channel or one for all. */
#include "core/base/int_math.h"
#include "core/op/op_impl.h"
#include "core/op/ops.h"

enum { BLOCK = 256 }; /* channels whose sums are taken together */

/* Rows of `channels` values, and how far it is from one channel's weight to the next: 0 or 1. */
typedef struct prelu_layout {
    int64_t rows, channels; /* of a sample */
    int64_t step;
} prelu_layout;

static prelu_layout layout_of(const oct_tensor *x, const oct_param *weight)
{
    const int64_t samples = oct_samples(x), channels = oct_last_dim(x);
    return (prelu_layout){.rows = samples && channels ? oct_numel(x) / samples / channels : 0,
                          .channels = channels,
                          .step = oct_numel(&weight->value) > 1};
}

/* Adds what n channels of some rows give to the gradients of their weights: x times the gradient, where x is not
 * above 0. Rows are added in ascending order. */
static void add_leaf_grad(const prelu_layout *l, int64_t rows, int64_t n, const float *x,
                          const float *grad, float *grads)
{
    double sums[BLOCK] = {0}, total = 0;
    for (int64_t r = 0; r < rows; r++, x += l->channels, grad += l->channels)
        for (int64_t c = 0; c < n; c++)
            sums[c] += x[c] > 0.0F ? 0.0 : (double)x[c] * (double)grad[c];
    for (int64_t c = 0; c < n; c++) {
        if (l->step) grads[c] += (float)sums[c];
        total += sums[c];
    }
    if (!l->step) *grads += (float)total;
}

/* Adds the gradient of each leaf to its row of sums, some channels at a time. */
static void add_weight_grads(const oct_context *cx, const prelu_layout *l, const float *x,
                             const float *grad, float *sums)
{
    const int64_t numel = l->step ? l->channels : 1;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++) {
        const int64_t first = oct_leaf_begin(&cx->leaves, i) * l->rows * l->channels;
        const int64_t rows = oct_leaf_size(&cx->leaves, i) * l->rows;
        for (int64_t c = 0; c < l->channels; c += BLOCK)
            add_leaf_grad(l, rows, oct_min_i64(l->channels - c, BLOCK), x + first + c,
                          grad + first + c, sums + i * numel + c * l->step);
    }
}

void oct_prelu_add_grads(oct_context *cx, oct_param *weight, oct_tensor *x, const float *values,
                         float *grad)
{
    const prelu_layout l = layout_of(x, weight);
    const int64_t samples = oct_samples(x);
    float *sums = oct_leaf_grads_begin(cx, weight);
    if (sums) {
        add_weight_grads(cx, &l, values, grad, sums);
        oct_leaf_grads_end(cx, weight);
    }
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < samples * l.rows; row++) {
        const float *from = values + row * l.channels, *slope = oct_f32(&weight->value);
        float *to = grad + row * l.channels;
        for (int64_t c = 0; c < l.channels; c++)
            to[c] = from[c] > 0.0F ? to[c] : slope[c * l.step] * to[c];
    }
    oct_add_grad(cx, x, grad);
}

static void prelu_backward(oct_context *cx, oct_node *node)
{
    oct_param *weight = *(oct_param *const *)node->saved;
    float *grad = oct_detach_grad(node->output);
    oct_prelu_add_grads(cx, weight, node->input[0], oct_f32(node->input[0]), grad);
}

oct_tensor *oct_prelu(oct_context *cx, oct_tensor *x, oct_param *weight)
{
    if (!oct_inputs_ok(cx, &x, 1) || !oct_needs_f32(cx, "prelu", x)) return NULL;
    if (!oct_needs_batch(cx, "prelu", x) || !oct_needs_params(cx, "prelu", weight, weight))
        return NULL;
    const int64_t channels = x->shape.ndim > 1 ? oct_last_dim(x) : 0;
    const int64_t weights = oct_numel(&weight->value);
    if (channels == 0 || (weights != 1 && weights != channels))
        return oct_context_fail(cx, OCT_USAGE,
                                "prelu has %lld weights, but its input is %s; give it one for "
                                "each channel, or one for all",
                                (long long)weights, oct_text_shape(&x->shape).text);
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, x->shape);
    if (!y) return NULL;
    const prelu_layout l = layout_of(x, weight);
    const int64_t samples = oct_samples(x);
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < samples * l.rows; row++) {
        const float *from = oct_f32(x) + row * l.channels, *slope = oct_f32(&weight->value);
        float *to = oct_f32(y) + row * l.channels;
        for (int64_t c = 0; c < l.channels; c++)
            to[c] = from[c] > 0.0F ? from[c] : slope[c * l.step] * from[c];
    }
    oct_node *node = oct_record(cx, "prelu", prelu_backward, &x, 1, true, y);
    oct_param_used(cx, weight);
    return oct_node_save(cx, node, &weight, sizeof(oct_param *)) ? y : NULL;
}
