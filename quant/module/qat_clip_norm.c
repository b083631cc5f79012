/* The backward of what follows an integer sum in the quantized layers: quantizer and activation, then
 * batch norm. */
#include "core/kernel/batch_norm.h"
#include "quant/module/mask.h"
#include "quant/module/qat_conv_impl.h"

void oct_clip_backward(oct_context *cx, const oct_fake_quant *fq, const uint8_t *mask,
                       int64_t mask_stride, int64_t n, float *grad)
{
    if (!mask) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++) {
        int64_t count = oct_leaf_size(&cx->leaves, i) * n;
        float *leaf = grad + oct_leaf_begin(&cx->leaves, i) * n;
        if (fq)
            oct_fake_quant_backward(fq, count, mask + i * mask_stride, leaf);
        else
            oct_mask_apply(mask + i * mask_stride, count, leaf);
    }
}

/* Gradient rows of a parameter with n elements: sums[i * stride + at ..] of leaf i. */
static void add_leaf_sums(oct_context *cx, oct_param *param, const double *sums, int64_t n,
                          int64_t at, int64_t stride)
{
    float *rows = oct_leaf_grads_begin(cx, param);
    for (int64_t i = 0; rows && i < cx->leaves.local; i++)
        for (int64_t o = 0; o < n; o++)
            rows[i * n + o] += (float)sums[i * stride + at + o];
    oct_leaf_grads_end(cx, param);
}

/* The means over the global batch of the gradient and of its product with x^: in training they too
 * depend on every input. */
static void batch_means(oct_context *cx, double *rows, int64_t n, double count, float *mean,
                        float *dot)
{
    double *total = oct_scratch(cx, (size_t)n * 16);
    if (total && oct_sum_over_ranks(cx, rows, 2 * n, total)) {
        for (int64_t o = 0; o < n; o++) {
            mean[o] = (float)(total[o] / count);
            dot[o] = (float)(total[n + o] / count);
        }
    }
    oct_scratch_end(cx, total);
}

void oct_normalised_backward(oct_context *cx, const oct_batch_norm_module *bn,
                             const oct_channels *ch, bool live, int64_t n, int64_t pixels,
                             const oct_normaliser *x, float *grad)
{
    const oct_leaves *leaves = &cx->leaves;
    double *rows = oct_scratch(cx, (size_t)(leaves->local + 1) * (size_t)n * 16);
    float *factor = oct_scratch(cx, (size_t)n * 4 * 4);
    if (rows && factor) {
        float *gain = factor, *mean = gain + n, *dot = mean + n;
        float *zero = dot + n; /* the mean of x^, for loops that take one */
        for (int64_t o = 0; o < n; o++) {
            gain[o] = oct_f32(&bn->gamma->value)[o] * ch->inv_std[o];
            mean[o] = dot[o] = zero[o] = 0.0f;
        }
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < leaves->local; i++) {
            int64_t at = oct_leaf_begin(leaves, i) * pixels * n;
            int64_t count = oct_leaf_size(leaves, i) * pixels;
            x->leaf(x->args, at, count, x->hat + at);
            oct_bn_sum_grads(count, n, grad + at, x->hat + at, zero, rows + i * 2 * n);
        }
        add_leaf_sums(cx, bn->beta, rows, n, 0, 2 * n);
        add_leaf_sums(cx, bn->gamma, rows, n, n, 2 * n);
        if (live) batch_means(cx, rows, n, (double)(leaves->samples * pixels), mean, dot);
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < leaves->local; i++) {
            int64_t at = oct_leaf_begin(leaves, i) * pixels * n;
            oct_bn_input_grad(oct_leaf_size(leaves, i) * pixels, n, x->hat + at, zero, gain, mean,
                              dot, grad + at);
        }
    }
    oct_scratch_end(cx, factor);
    oct_scratch_end(cx, rows);
}
