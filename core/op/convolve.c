/* Convolutions forward and backward over the leaves of the batch. Threads take whole leaves, so each
 * call of the kernel, and with it every bit, is the same whatever their number. */
#include "core/op/convolve_impl.h"

#include "core/op/op_impl.h"

#include <omp.h>

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* What differs from leaf to leaf. */
typedef struct conv_leaf {
    int64_t begin, size; /* samples */
} conv_leaf;

static conv_leaf leaf_at(const oct_context *cx, int64_t i)
{
    return (conv_leaf){oct_leaf_begin(&cx->leaves, i), oct_leaf_size(&cx->leaves, i)};
}

/* `together` samples a call: the bits of a matrix product depend on how many rows it has. */
static void forward_leaf(const oct_convolution *v, conv_leaf leaf, int64_t together, const float *x,
                         float *y, void *scratch)
{
    const oct_conv_shape *s = &v->shape;
    for (int64_t n = leaf.begin, end = leaf.begin + leaf.size; n < end; n += together)
        oct_conv_forward(s, together, x + n * s->in_h * s->in_w * s->in_c,
                         oct_f32(&v->weight->value), v->bias ? oct_f32(&v->bias->value) : NULL,
                         y + n * s->out_h * s->out_w * s->out_c, scratch);
}

/* The gradients of one leaf; grad_x, grad_bias may be NULL. */
static void backward_leaf(const oct_convolution *v, conv_leaf leaf, const float *x,
                          const float *grad_y, float *grad_x, float *grad_weight, float *grad_bias,
                          void *scratch)
{
    const oct_conv_shape *s = &v->shape;
    int64_t in = leaf.begin * s->in_h * s->in_w * s->in_c, positions = s->out_h * s->out_w;
    grad_y += leaf.begin * positions * s->out_c;
    oct_conv_backward_weight(s, leaf.size, grad_y, x + in, grad_weight, scratch);
    if (grad_bias) oct_bias_backward(leaf.size * positions, s->out_c, grad_y, grad_bias);
    if (grad_x)
        oct_conv_backward_data(s, leaf.size, grad_y, oct_f32(&v->weight->value), grad_x + in,
                               scratch);
}

static void conv_backward(oct_context *cx, oct_node *node)
{
    const oct_convolution *v = node->saved;
    oct_tensor *x = node->input[0];
    float *grad_x = NULL;
    if (x->needs_grad && !(grad_x = oct_grad_new(cx, x))) return;

    size_t bytes = max_size(oct_conv_backward_data_scratch_bytes(&v->shape, cx->leaves.leaf),
                            oct_conv_backward_weight_scratch_bytes(&v->shape, cx->leaves.leaf));
    bytes = (bytes + 63) / 64 * 64;
    char *scratch = oct_scratch(cx, bytes * (size_t)omp_get_max_threads());
    float *grad_weight = oct_leaf_grads_begin(cx, v->weight);
    float *grad_bias = v->bias ? oct_leaf_grads_begin(cx, v->bias) : NULL;

    if (cx->status == OCT_OK) {
        int64_t numel = oct_numel(&v->weight->value);
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < cx->leaves.local; i++)
            backward_leaf(v, leaf_at(cx, i), oct_f32(x), node->output->grad, grad_x,
                          grad_weight + i * numel,
                          grad_bias ? grad_bias + i * v->shape.out_c : NULL,
                          scratch + (size_t)omp_get_thread_num() * bytes);
        oct_leaf_grads_end(cx, v->weight);
        if (v->bias) oct_leaf_grads_end(cx, v->bias);
    }
    oct_scratch_end(cx, scratch);
    if (grad_x) oct_give_grad(cx, x, grad_x);
}

oct_tensor *oct_convolve(oct_context *cx, const char *op, oct_tensor *x, const oct_convolution *v,
                         oct_shape shape)
{
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, shape);
    size_t bytes = (oct_conv_forward_scratch_bytes(&v->shape, cx->leaves.leaf) + 63) / 64 * 64;
    char *scratch = oct_scratch(cx, bytes * (size_t)omp_get_max_threads());
    if (!y || !scratch) {
        oct_scratch_end(cx, scratch);
        return NULL;
    }
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++) {
        const conv_leaf leaf = leaf_at(cx, i);
        /* Evaluation takes samples alone: so a deployed model, which knows no leaves, computes the
         * same bits. */
        forward_leaf(v, leaf, cx->record ? leaf.size : 1, oct_f32(x), oct_f32(y),
                     scratch + (size_t)omp_get_thread_num() * bytes);
    }
    oct_scratch_end(cx, scratch);

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
