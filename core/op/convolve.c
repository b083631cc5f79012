/* Convolutions forward and backward. The weights are made ready once; then threads take whole leaves, so
 * each call of the kernel, and with it every bit, is the same whatever their number. */
#include "core/op/convolve_impl.h"

#include "core/op/op_impl.h"

#include <omp.h>

/* Samples of some leaves, as offsets into x and y. */
typedef struct conv_part {
    int64_t samples, x, y;
} conv_part;

static conv_part leaves_at(const oct_context *cx, const oct_conv_shape *s, int64_t first,
                           int64_t end)
{
    const int64_t begin = oct_leaf_begin(&cx->leaves, first);
    return (conv_part){.samples = oct_leaf_samples(&cx->leaves, first, end),
                       .x = begin * oct_conv_in_numel(s),
                       .y = begin * oct_conv_out_numel(s)};
}

static conv_part leaf_at(const oct_context *cx, const oct_conv_shape *s, int64_t i)
{
    return leaves_at(cx, s, i, i + 1);
}

/* Scratch of all threads, a whole number of cache lines each. */
typedef struct thread_scratch {
    char *all;
    size_t bytes;
} thread_scratch;

static thread_scratch thread_scratch_begin(oct_context *cx, size_t bytes)
{
    thread_scratch t = {.bytes = (bytes + 63) / 64 * 64};
    t.all = oct_scratch(cx, t.bytes * (size_t)omp_get_max_threads() + 64);
    return t;
}

static char *thread_scratch_here(thread_scratch t)
{
    return t.all + (size_t)omp_get_thread_num() * t.bytes;
}

/* Gradients in float32 are operands as they are: see oct_conv_grad_rows. */
static void data_backward(oct_context *cx, const oct_convolution *v, oct_tensor *x,
                          const float *grad_y)
{
    const oct_float_kernel *k = oct_float_kernel_here();
    const oct_conv_shape *s = &v->shape;
    bool add;
    float *grad_x = oct_grad_buffer(cx, x, &add);
    if (!grad_x) return;
    thread_scratch scratch =
        thread_scratch_begin(cx, oct_conv_backward_data_scratch_bytes(k, OCT_NUMERICS_F32, s));
    void *ready = oct_scratch(cx, oct_conv_backward_data_ready_bytes(k, OCT_NUMERICS_F32, s));
    if (cx->status == OCT_OK) {
        oct_conv_backward_data_ready(k, OCT_NUMERICS_F32, s, oct_f32(&v->weight->value), NULL,
                                     ready);
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < cx->leaves.local; i++) {
            const conv_part leaf = leaf_at(cx, s, i);
            oct_conv_backward_data(k, OCT_NUMERICS_F32, s, leaf.samples, grad_y + leaf.y, ready,
                                   grad_x + leaf.x, add, thread_scratch_here(scratch));
        }
    }
    oct_scratch_end(cx, ready);
    oct_scratch_end(cx, scratch.all);
}

static void turn_weight(const oct_leaf_layout *turn, const float *row, float *value)
{
    oct_conv_weight_transpose(turn->groups, turn->depth, turn->outs, row, value);
}

static void weight_backward(oct_context *cx, const oct_convolution *v, const float *x,
                            const float *grad_y)
{
    const oct_float_kernel *k = oct_float_kernel_here();
    const oct_conv_shape *s = &v->shape;
    const oct_leaf_layout turn = {turn_weight, s->groups, oct_conv_depth(s), s->out_c / s->groups};
    const int64_t leaf = cx->leaves.leaf;
    const int64_t leaves =
        oct_leaf_stream_leaves(cx, oct_conv_backward_weight_leaves(k, OCT_NUMERICS_F32, s, leaf));
    thread_scratch scratch = thread_scratch_begin(
        cx, oct_conv_backward_weight_scratch_bytes(k, OCT_NUMERICS_F32, s, leaf, leaves));
    oct_leaf_stream stream;
    oct_leaf_stream_begin(cx, &stream, v->weight, leaves, &turn);
    for (int64_t first = 0, end; oct_leaf_stream_next(cx, &stream, &first, &end);) {
#pragma omp parallel for schedule(static)
        for (int64_t i = first; i < end; i++) {
            const oct_leaf_group group = oct_leaf_stream_group(cx, &stream, i);
            const conv_part part = leaves_at(cx, s, group.first, group.end);
            const oct_conv_input input = {.values = x + part.x};
            oct_conv_backward_weight(k, OCT_NUMERICS_F32, s, part.samples, leaf, grad_y + part.y,
                                     &input, NULL, group.row, group.add,
                                     thread_scratch_here(scratch));
        }
    }
    oct_leaf_stream_end(cx, &stream);
    oct_scratch_end(cx, scratch.all);
}

static void bias_backward(oct_context *cx, const oct_convolution *v, const float *grad_y)
{
    const oct_conv_shape *s = &v->shape;
    float *rows = oct_leaf_grads_begin(cx, v->bias);
    if (!rows) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++) {
        const conv_part leaf = leaf_at(cx, s, i);
        oct_bias_backward(leaf.samples * s->out_h * s->out_w, s->out_c, grad_y + leaf.y,
                          rows + i * s->out_c);
    }
    oct_leaf_grads_end(cx, v->bias);
}

static void conv_backward(oct_context *cx, oct_node *node)
{
    const oct_convolution *v = node->saved;
    const float *grad_y = node->output->grad;
    weight_backward(cx, v, oct_f32(node->input[0]), grad_y);
    if (v->bias && cx->status == OCT_OK) bias_backward(cx, v, grad_y);
    if (cx->status == OCT_OK) data_backward(cx, v, node->input[0], grad_y);
}

/* y (of all local leaves) from weights that are made ready for it. */
static void forward(oct_context *cx, const oct_convolution *v, const float *x, float *y)
{
    const oct_float_kernel *k = oct_float_kernel_here();
    const oct_conv_shape *s = &v->shape;
    const float *bias = v->bias ? oct_f32(&v->bias->value) : NULL;
    thread_scratch scratch = thread_scratch_begin(cx, oct_conv_forward_scratch_bytes(k, s));
    void *ready = oct_scratch(cx, oct_conv_forward_ready_bytes(k, s));
    if (cx->status == OCT_OK) {
        oct_conv_forward_ready(k, s, oct_f32(&v->weight->value), ready);
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < cx->leaves.local; i++) {
            const conv_part leaf = leaf_at(cx, s, i);
            oct_conv_forward(k, s, leaf.samples, x + leaf.x, ready, bias, y + leaf.y,
                             thread_scratch_here(scratch));
        }
    }
    oct_scratch_end(cx, ready);
    oct_scratch_end(cx, scratch.all);
}

oct_tensor *oct_convolve(oct_context *cx, const char *op, oct_tensor *x, const oct_convolution *v,
                         oct_shape shape)
{
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, shape);
    if (!y) return NULL;
    forward(cx, v, oct_f32(x), oct_f32(y));
    if (cx->status != OCT_OK) return NULL;

    oct_node *node = oct_record(cx, op, conv_backward, &x, 1, true, y);
    if (node) {
        oct_convolution *saved = node->saved = oct_save(cx, sizeof *saved);
        if (!saved) return NULL;
        *saved = *v;
        oct_param_used(cx, v->weight);
        if (v->bias) oct_param_used(cx, v->bias);
    }
    return y;
}

bool oct_bias_fits(oct_context *cx, const char *op, const oct_param *bias, int64_t out)
{
    if (!bias || (bias->value.shape.ndim == 1 && oct_dim(&bias->value, 0) == out)) return true;
    char text[96];
    oct_context_fail(cx, OCT_USAGE, "%s with %lld outputs cannot take a bias of shape %s", op,
                     (long long)out, oct_shape_text(&bias->value.shape, text));
    return false;
}
