/* The straight-through backward of qat_conv. With dY masked by the clip mask, and x^ from accumulators
 * computed again (cheaper than keeping four bytes an element):
 *     dC = gamma/sigma * (dY - mean(dY) - x^ mean(dY x^))   live batch norm
 *     dC = gamma/sigma * dY                                 frozen
 *     dX = dC * (weight codes * s_w),  dW = dC * (codes - z) * s_x  leaf by leaf.
 */
#include "quant/module/qat_conv_impl.h"

#include "core/kernel/conv.h"

#include <omp.h>
#include <string.h>

/* x^ = acc * a[o] + b[o], from accumulators; those of 8-bit inputs in place: int32 becomes float
 * bits. */
#define NORMALISE(name, acc_t)                                                                     \
    OCT_CLONES static void name(int64_t rows, int64_t n, const acc_t *offset, const float *a,      \
                                const float *b, const acc_t *acc, float *hat)                      \
    {                                                                                              \
        for (int64_t i = 0; i < rows; i++)                                                         \
            for (int64_t o = 0; o < n; o++) {                                                      \
                acc_t sum;                                                                         \
                memcpy(&sum, &acc[i * n + o], sizeof sum);                                         \
                hat[i * n + o] = (float)(sum - offset[o]) * a[o] + b[o];                           \
            }                                                                                      \
    }
NORMALISE(normalise_acc, int32_t)
NORMALISE(normalise_acc16, int64_t)

/* What x^ comes from. */
typedef struct convolved {
    const oct_channels *ch;
    int64_t n;
    bool wide;
    const void *acc;
    const float *a, *b;
} convolved;

static void normalise_leaf(const void *args, int64_t at, int64_t rows, float *hat)
{
    const convolved *c = args;
    if (c->wide)
        normalise_acc16(rows, c->n, c->ch->offset, c->a, c->b, (const int64_t *)c->acc + at, hat);
    else
        normalise_acc(rows, c->n, c->ch->offset32, c->a, c->b, (const int32_t *)c->acc + at, hat);
}

/* The gradient of the convolution's output, in place of that of the batch norm's output. */
static void batch_norm_backward(oct_context *cx, const oct_layer *l, const oct_qat_saved *sv,
                                const oct_tensor *x, const oct_work *w, float *grad)
{
    const oct_conv_shape *s = &sv->shape;
    int64_t n = s->out_c;
    int64_t numel = oct_leaves_local_samples(&cx->leaves) * oct_conv_out_numel(s);
    const bool wide = x->dtype == OCT_U16;
    void *acc = oct_scratch(cx, (size_t)numel * (wide ? 8 : 4) + 64);
    float *hat = wide ? oct_scratch(cx, (size_t)numel * 4 + 64) : acc;
    float *a = oct_scratch(cx, (size_t)n * 8), *b = a + n;
    if (cx->status == OCT_OK) {
        for (int64_t o = 0; o < n; o++) {
            float bias = l->bias ? oct_f32(&l->bias->value)[o] : 0.0f;
            a[o] = x->q.scale * sv->ch.scale[o] * sv->ch.inv_std[o];
            b[o] = (bias - sv->ch.mean[o]) * sv->ch.inv_std[o];
        }
        oct_accumulate(cx, s, x, w, acc);
        const convolved made = {&sv->ch, n, wide, acc, a, b};
        const oct_normaliser normaliser = {normalise_leaf, &made, hat};
        oct_normalised_backward(cx, l->bn, &sv->ch, sv->live, n, s->out_h * s->out_w, &normaliser,
                                grad);
    }
    oct_scratch_end(cx, a);
    if (wide) oct_scratch_end(cx, hat);
    oct_scratch_end(cx, acc);
}

/* dX = dC * (codes * s_w), handed over to x. */
static void input_backward(oct_context *cx, const oct_qat_saved *sv, oct_tensor *x,
                           const float *grad)
{
    const oct_float_kernel *kernel = oct_float_kernel_here();
    const oct_conv_shape *s = &sv->shape;
    int64_t k = oct_conv_depth(s);
    size_t bytes = oct_conv_backward_data_scratch_bytes(kernel, OCT_NUMERICS_F32, s);
    bytes = (bytes + 63) / 64 * 64;
    float *grad_x = oct_scratch(cx, (size_t)oct_numel(x) * 4 + 64);
    float *weight = oct_scratch(cx, (size_t)(s->out_c * k) * 4);
    void *ready = oct_scratch(cx, oct_conv_backward_data_ready_bytes(kernel, OCT_NUMERICS_F32, s));
    char *scratch = oct_scratch(cx, bytes * (size_t)omp_get_max_threads() + 64);
    if (cx->status == OCT_OK) {
        for (int64_t o = 0; o < s->out_c; o++)
            for (int64_t i = 0; i < k; i++)
                weight[o * k + i] = (float)sv->codes[o * k + i] * sv->ch.scale[o];
        oct_conv_backward_data_ready(kernel, OCT_NUMERICS_F32, s, weight, NULL, ready);
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < cx->leaves.local; i++) {
            int64_t begin = oct_leaf_begin(&cx->leaves, i);
            oct_conv_backward_data(kernel, OCT_NUMERICS_F32, s, oct_leaf_size(&cx->leaves, i),
                                   grad + begin * oct_conv_out_numel(s), ready,
                                   grad_x + begin * oct_conv_in_numel(s), false,
                                   scratch + (size_t)omp_get_thread_num() * bytes);
        }
    }
    oct_scratch_end(cx, scratch);
    oct_scratch_end(cx, ready);
    oct_scratch_end(cx, weight);
    oct_give_grad(cx, x, grad_x);
}

static void turn_weight(const oct_leaf_turn *turn, const float *row, float *value)
{
    oct_conv_turn(turn->groups, turn->depth, turn->outs, row, value);
}

/* dW = s_x * (dC * (codes - z)), leaf by leaf. */
static void weight_backward(oct_context *cx, const oct_layer *l, const oct_qat_saved *sv,
                            const oct_tensor *x, const float *grad)
{
    const oct_float_kernel *kernel = oct_float_kernel_here();
    const oct_conv_shape *s = &sv->shape;
    int64_t n = oct_conv_out_numel(s), in = oct_conv_in_numel(s);
    const oct_leaf_turn turn = {turn_weight, s->groups, oct_conv_depth(s), s->out_c / s->groups};
    size_t bytes =
        oct_conv_backward_weight_scratch_bytes(kernel, OCT_NUMERICS_F32, s, cx->leaves.leaf);
    bytes = (bytes + 63) / 64 * 64;
    char *scratch = oct_scratch(cx, bytes * (size_t)omp_get_max_threads() + 64);
    float *factor = oct_scratch(cx, (size_t)s->out_c * sizeof *factor);
    for (int64_t o = 0; factor && o < s->out_c; o++)
        factor[o] = x->q.scale;
    oct_leaf_stream stream;
    oct_leaf_stream_begin(cx, &stream, l->weight, &turn);
    for (int64_t first = 0, end; oct_leaf_stream_next(cx, &stream, &first, &end);) {
#pragma omp parallel for schedule(static)
        for (int64_t i = first; i < end; i++) {
            int64_t begin = oct_leaf_begin(&cx->leaves, i);
            oct_conv_input input = {.zero_point = x->q.zero_point};
            if (x->dtype == OCT_U16)
                input.codes16 = oct_u16(x) + begin * in;
            else
                input.codes = oct_u8(x) + begin * in;
            oct_conv_backward_weight(kernel, OCT_NUMERICS_F32, s, oct_leaf_size(&cx->leaves, i),
                                     grad + begin * n, &input, factor,
                                     oct_leaf_stream_row(&stream, i),
                                     scratch + (size_t)omp_get_thread_num() * bytes);
        }
    }
    oct_leaf_stream_end(cx, &stream);
    oct_scratch_end(cx, factor);
    oct_scratch_end(cx, scratch);
}

static void bias_backward(oct_context *cx, const oct_layer *l, const oct_qat_saved *sv,
                          const float *grad)
{
    const oct_conv_shape *s = &sv->shape;
    float *rows = oct_leaf_grads_begin(cx, l->bias);
    if (!rows) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++)
        oct_bias_backward(oct_leaf_size(&cx->leaves, i) * s->out_h * s->out_w, s->out_c,
                          grad + oct_leaf_begin(&cx->leaves, i) * oct_conv_out_numel(s),
                          rows + i * s->out_c);
    oct_leaf_grads_end(cx, l->bias);
}

/* The sum's derivative is 1 for each summand. */
static void give_summand(oct_context *cx, oct_node *node, const float *grad)
{
    if (node->num_inputs < 2) return;
    size_t bytes = (size_t)oct_numel(node->output) * 4;
    float *copy = oct_scratch(cx, bytes + 64);
    if (copy) memcpy(copy, grad, bytes);
    oct_give_grad(cx, node->input[1], copy);
}

void oct_qat_conv_backward(oct_context *cx, oct_node *node)
{
    const oct_qat_conv *m = (const oct_qat_conv *)node->module;
    const oct_qat_saved *sv = node->saved;
    oct_layer l = oct_layer_of(m);
    oct_tensor *x = node->input[0];
    float *grad = oct_take_grad(node->output);

    oct_clip_backward(cx, l.fq, sv->mask, sv->mask_stride, oct_conv_out_numel(&sv->shape), grad);
    give_summand(cx, node, grad);
    if (l.bn) {
        oct_work w;
        if (oct_work_begin(cx, &sv->shape, x->q, false, &w)) {
            oct_qconv_ready(oct_kernel_here(), &sv->shape, x->q, sv->codes, w.ready);
            batch_norm_backward(cx, &l, sv, x, &w, grad);
        }
        oct_work_end(cx, &w);
    }
    if (x->needs_grad && cx->status == OCT_OK) input_backward(cx, sv, x, grad);
    if (cx->status == OCT_OK) weight_backward(cx, &l, sv, x, grad);
    if (l.bias && cx->status == OCT_OK) bias_backward(cx, &l, sv, grad);
    oct_scratch_end(cx, grad);
}
