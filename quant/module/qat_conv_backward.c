/* The straight-through backward of qat_conv. With dY masked by the clip mask, and x^ from accumulators
 * computed again (cheaper than keeping four bytes an element):
 *     dC = gamma/sigma * (dY - mean(dY) - x^ mean(dY x^))   live batch norm
 *     dC = gamma/sigma * dY                                 frozen
 *     dX = dC * (weight codes * s_w),  dW = dC * (codes - z) * s_x  leaf by leaf.
 */
#include "quant/module/qat_conv_impl.h"

#include "core/kernel/batch_norm.h"
#include "core/kernel/conv.h"
#include "quant/module/mask.h"

#include <omp.h>
#include <string.h>

/* The gradient of the convolution's output, in place of the output's gradient: mask, then batch norm
 * (which also gives the gradients of gamma and beta). */

static void apply_mask(oct_context *cx, const oct_qat_saved *sv, float *grad)
{
    if (!sv->mask) return;
    int64_t n = oct_conv_out_numel(&sv->shape);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++) {
        oct_mask_apply(sv->mask + i * sv->mask_stride, oct_leaf_size(&cx->leaves, i) * n,
                       grad + oct_leaf_begin(&cx->leaves, i) * n);
    }
}

/* x^ = acc * a[o] + b[o], from accumulators (in place: int32 becomes float bits). */
OCT_CLONES static void normalise_acc(int64_t rows, int64_t n, const int32_t *offset, const float *a,
                                     const float *b, int32_t *acc)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t o = 0; o < n; o++) {
            float hat = (float)(acc[i * n + o] - offset[o]) * a[o] + b[o];
            memcpy(&acc[i * n + o], &hat, sizeof hat);
        }
}

static void add_rows(oct_context *cx, oct_param *param, const double *sums, int64_t n, int64_t at,
                     int64_t stride)
{
    float *rows = oct_leaf_grads_begin(cx, param);
    for (int64_t i = 0; rows && i < cx->leaves.local; i++)
        for (int64_t o = 0; o < n; o++)
            rows[i * n + o] += (float)sums[i * stride + at + o];
    oct_leaf_grads_end(cx, param);
}

static void batch_norm_backward(oct_context *cx, const oct_qat_conv *m, const oct_qat_saved *sv,
                                const oct_tensor *x, const oct_work *w, float *grad)
{
    oct_layer l = oct_layer_of(m);
    const oct_conv_shape *s = &sv->shape;
    int64_t n = s->out_c, pixels = s->out_h * s->out_w, local = cx->leaves.local;
    int64_t samples = oct_leaves_local_samples(&cx->leaves);
    int32_t *acc = oct_scratch(cx, (size_t)(samples * oct_conv_out_numel(s)) * 4 + 64);
    double *rows = oct_scratch(cx, (size_t)(local + 1) * (size_t)n * 16);
    double *total = oct_scratch(cx, (size_t)n * 16);
    float *factor = oct_scratch(cx, (size_t)n * 4 * 6);
    if (cx->status == OCT_OK) {
        float *a = factor, *b = a + n, *gain = b + n, *mean = gain + n, *dot = mean + n;
        float *zero = dot + n; /* the mean of x^, for loops that take one */
        for (int64_t o = 0; o < n; o++) {
            float bias = l.bias ? oct_f32(&l.bias->value)[o] : 0.0f;
            a[o] = x->q.scale * sv->ch.scale[o] * sv->ch.inv_std[o];
            b[o] = (bias - sv->ch.mean[o]) * sv->ch.inv_std[o];
            gain[o] = oct_f32(&l.bn->gamma->value)[o] * sv->ch.inv_std[o];
            mean[o] = dot[o] = zero[o] = 0.0f;
        }
        oct_accumulate(cx, s, x, w, acc);
        const float *hat = (const float *)(const void *)acc;
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < local; i++) {
            int64_t at = oct_leaf_begin(&cx->leaves, i) * oct_conv_out_numel(s);
            int64_t count = oct_leaf_size(&cx->leaves, i) * pixels;
            normalise_acc(count, n, sv->ch.offset, a, b, acc + at);
            oct_bn_sum_grads(count, n, grad + at, hat + at, zero, rows + i * 2 * n);
        }
        add_rows(cx, l.bn->beta, rows, n, 0, 2 * n);
        add_rows(cx, l.bn->gamma, rows, n, n, 2 * n);
        if (sv->live) {
            bool summed = oct_sum_over_ranks(cx, rows, 2 * n, total);
            double count = (double)(cx->leaves.samples * pixels);
            for (int64_t o = 0; summed && o < n; o++) {
                mean[o] = (float)(total[o] / count);
                dot[o] = (float)(total[n + o] / count);
            }
        }
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < local; i++) {
            int64_t at = oct_leaf_begin(&cx->leaves, i) * oct_conv_out_numel(s);
            oct_bn_input_grad(oct_leaf_size(&cx->leaves, i) * pixels, n, hat + at, zero, gain, mean,
                              dot, grad + at);
        }
    }
    oct_scratch_end(cx, factor);
    oct_scratch_end(cx, total);
    oct_scratch_end(cx, rows);
    oct_scratch_end(cx, acc);
}

/* dX = dC * (codes * s_w), handed over to x. */
static void input_backward(oct_context *cx, const oct_qat_saved *sv, oct_tensor *x,
                           const float *grad)
{
    const oct_conv_shape *s = &sv->shape;
    int64_t k = oct_conv_depth(s), leaf = cx->leaves.leaf;
    size_t bytes = (oct_conv_backward_data_scratch_bytes(s, leaf) + 63) / 64 * 64;
    float *grad_x = oct_scratch(cx, (size_t)oct_numel(x) * 4 + 64);
    float *weight = oct_scratch(cx, (size_t)(s->out_c * k) * 4);
    char *scratch = oct_scratch(cx, bytes * (size_t)omp_get_max_threads() + 64);
    if (cx->status == OCT_OK) {
        for (int64_t o = 0; o < s->out_c; o++)
            for (int64_t i = 0; i < k; i++)
                weight[o * k + i] = (float)sv->codes[o * k + i] * sv->ch.scale[o];
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < cx->leaves.local; i++) {
            int64_t begin = oct_leaf_begin(&cx->leaves, i);
            oct_conv_backward_data(s, oct_leaf_size(&cx->leaves, i),
                                   grad + begin * oct_conv_out_numel(s), weight,
                                   grad_x + begin * oct_conv_in_numel(s),
                                   scratch + (size_t)omp_get_thread_num() * bytes);
        }
    }
    oct_scratch_end(cx, scratch);
    oct_scratch_end(cx, weight);
    oct_give_grad(cx, x, grad_x);
}

/* dW = s_x * (dC * (codes - z)) and the bias's gradient, leaf by leaf. Scales grad by s_x. */
static void weight_backward(oct_context *cx, const oct_layer *l, const oct_qat_saved *sv,
                            const oct_tensor *x, float *grad)
{
    const oct_conv_shape *s = &sv->shape;
    int64_t n = oct_conv_out_numel(s), leaf = cx->leaves.leaf;
    size_t bytes = (oct_conv_backward_weight_codes_scratch_bytes(s, leaf) + 63) / 64 * 64;
    char *scratch = oct_scratch(cx, bytes * (size_t)omp_get_max_threads() + 64);
    float *bias_rows = l->bias ? oct_leaf_grads_begin(cx, l->bias) : NULL;
    float *rows = oct_leaf_grads_begin(cx, l->weight);
    if (cx->status == OCT_OK) {
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < cx->leaves.local; i++) {
            int64_t begin = oct_leaf_begin(&cx->leaves, i), size = oct_leaf_size(&cx->leaves, i);
            float *g = grad + begin * n;
            if (bias_rows)
                oct_bias_backward(size * s->out_h * s->out_w, s->out_c, g,
                                  bias_rows + i * s->out_c);
            for (int64_t j = 0; j < size * n; j++)
                g[j] *= x->q.scale;
            oct_conv_backward_weight_codes(s, size, g, oct_u8(x) + begin * oct_conv_in_numel(s),
                                           x->q.zero_point, rows + i * s->out_c * oct_conv_depth(s),
                                           scratch + (size_t)omp_get_thread_num() * bytes);
        }
    }
    oct_leaf_grads_end(cx, l->weight);
    if (l->bias) oct_leaf_grads_end(cx, l->bias);
    oct_scratch_end(cx, scratch);
}

void oct_qat_conv_backward(oct_context *cx, oct_node *node)
{
    const oct_qat_conv *m = (const oct_qat_conv *)node->module;
    const oct_qat_saved *sv = node->saved;
    oct_layer l = oct_layer_of(m);
    oct_tensor *x = node->input[0];
    float *grad = oct_take_grad(node->output);

    apply_mask(cx, sv, grad);
    if (l.bn) {
        oct_work w;
        if (oct_work_begin(cx, &sv->shape, false, &w)) {
            oct_qconv_pack(oct_kernel_here(), &sv->shape, sv->codes, w.packed);
            batch_norm_backward(cx, m, sv, x, &w, grad);
        }
        oct_work_end(cx, &w);
    }
    if (x->needs_grad && cx->status == OCT_OK) input_backward(cx, sv, x, grad);
    if (cx->status == OCT_OK) weight_backward(cx, &l, sv, x, grad);
    oct_scratch_end(cx, grad);
}
