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

/* code - zero_point as floats, exactly. */
OCT_CLONES static void logical_values(int64_t n, const uint16_t *codes, int32_t zero_point,
                                      float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)(codes[i] - zero_point);
}

/* Scratch of one thread for the weights' gradient: of 16-bit inputs, first the leaf as floats. */
typedef struct weight_room {
    size_t values, bytes;
} weight_room;

static weight_room weight_room_of(const oct_conv_shape *s, int64_t leaf, bool wide)
{
    weight_room room = {0};
    if (wide) room.values = ((size_t)(leaf * oct_conv_in_numel(s)) * 4 + 63) / 64 * 64;
    size_t work = wide ? oct_conv_backward_weight_scratch_bytes(s, leaf)
                       : oct_conv_backward_weight_codes_scratch_bytes(s, leaf);
    room.bytes = room.values + (work + 63) / 64 * 64;
    return room;
}

/* dW = s_x * (dC * (codes - z)) and the bias's gradient, leaf by leaf. Scales grad by s_x. */
static void weight_backward(oct_context *cx, const oct_layer *l, const oct_qat_saved *sv,
                            const oct_tensor *x, float *grad)
{
    const oct_conv_shape *s = &sv->shape;
    int64_t n = oct_conv_out_numel(s), in = oct_conv_in_numel(s);
    const bool wide = x->dtype == OCT_U16;
    const weight_room room = weight_room_of(s, cx->leaves.leaf, wide);
    char *scratch = oct_scratch(cx, room.bytes * (size_t)omp_get_max_threads() + 64);
    float *bias_rows = l->bias ? oct_leaf_grads_begin(cx, l->bias) : NULL;
    float *rows = oct_leaf_grads_begin(cx, l->weight);
    if (cx->status == OCT_OK) {
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < cx->leaves.local; i++) {
            int64_t begin = oct_leaf_begin(&cx->leaves, i), size = oct_leaf_size(&cx->leaves, i);
            float *g = grad + begin * n, *dw = rows + i * s->out_c * oct_conv_depth(s);
            char *mine = scratch + (size_t)omp_get_thread_num() * room.bytes;
            if (bias_rows)
                oct_bias_backward(size * s->out_h * s->out_w, s->out_c, g,
                                  bias_rows + i * s->out_c);
            for (int64_t j = 0; j < size * n; j++)
                g[j] *= x->q.scale;
            if (wide) {
                float *values = (float *)(void *)mine;
                logical_values(size * in, oct_u16(x) + begin * in, x->q.zero_point, values);
                oct_conv_backward_weight(s, size, g, values, dw, mine + room.values);
            } else {
                oct_conv_backward_weight_codes(s, size, g, oct_u8(x) + begin * in, x->q.zero_point,
                                               dw, mine);
            }
        }
    }
    oct_leaf_grads_end(cx, l->weight);
    if (l->bias) oct_leaf_grads_end(cx, l->bias);
    oct_scratch_end(cx, scratch);
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
    oct_scratch_end(cx, grad);
}
