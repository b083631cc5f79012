/* One plan serves a convolution forward and backward, and weights are packed once; then threads take
 * whole leaves, so each call of the kernel, and with it every bit, is the same whatever their number. */
#include "core/op/convolve_impl.h"

#include "core/base/cache_line.h"
#include "core/op/op_impl.h"

#include <omp.h>

/* The node keeps this for the backward. */
typedef struct convolution {
    oct_conv_plan plan;
    oct_param *weight, *bias; /* bias may be NULL */
    oct_leaf_layout layout;   /* of the weights' gradient */
} convolution;

/* A part is the samples of some leaves, as offsets into x and y. */
typedef struct conv_part {
    int64_t samples, x, y;
} conv_part;

static conv_part leaves_at(const oct_context *cx, const oct_conv_plan *p, int64_t first,
                           int64_t end)
{
    const int64_t begin = oct_leaf_begin(&cx->leaves, first);
    return (conv_part){.samples = oct_leaf_samples(&cx->leaves, first, end),
                       .x = begin * oct_conv_in_numel(&p->config.shape),
                       .y = begin * oct_conv_out_numel(&p->config.shape)};
}

/* A workspace holds packed weights and the scratch of all threads. */
typedef struct workspace {
    void *packed; /* to be given back */
    char *scratch;
    size_t bytes; /* of one thread's */
} workspace;

static bool workspace_begin(oct_context *cx, workspace *w, size_t packed_bytes,
                            size_t scratch_bytes)
{
    const size_t packed = oct_cache_aligned(packed_bytes);
    w->bytes = oct_cache_aligned(scratch_bytes);
    w->packed = oct_scratch(cx, packed + w->bytes * (size_t)omp_get_max_threads());
    w->scratch = w->packed ? (char *)w->packed + packed : NULL;
    return w->packed;
}

static void *scratch_here(const workspace *w)
{
    return w->scratch + (size_t)omp_get_thread_num() * w->bytes;
}

/* Passes all local leaves through the weights: forward from x to y, else from the gradient of y to that of
 * x. In float32 that gradient is an operand as it is (grad_rows_are_floats). */
static void pass_leaves(oct_context *cx, const convolution *v, bool forward,
                        const oct_conv_pass *all)
{
    const oct_conv_plan *p = &v->plan;
    const oct_conv_product *product = forward ? &p->forward : &p->data;
    const float *weight = oct_f32(&v->weight->value), *x = all->x;
    workspace w;
    if (workspace_begin(cx, &w, product->packed_bytes, product->scratch_bytes)) {
        if (forward)
            oct_conv_forward_pack(p, weight, w.packed);
        else
            oct_conv_backward_data_pack(p, weight, NULL, w.packed);
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < cx->leaves.local; i++) {
            const conv_part leaf = leaves_at(cx, p, i, i + 1);
            oct_conv_pass pass = *all;
            pass.samples = leaf.samples;
            pass.packed = w.packed;
            pass.x = x + (forward ? leaf.x : leaf.y);
            pass.y += forward ? leaf.y : leaf.x;
            if (forward)
                oct_conv_forward(p, &pass, scratch_here(&w));
            else
                oct_conv_backward_data(p, &pass, scratch_here(&w));
            oct_meanwhile(cx);
        }
    }
    oct_scratch_end(cx, w.packed);
}

static void data_backward(oct_context *cx, const convolution *v, oct_tensor *x, const float *grad_y)
{
    oct_conv_pass pass = {.x = grad_y};
    pass.y = oct_grad_buffer(cx, x, &pass.add);
    if (pass.y) pass_leaves(cx, v, false, &pass);
}

static void transpose_weight(const oct_leaf_layout *l, const float *row, float *value)
{
    oct_conv_weight_transpose(l->groups, l->depth, l->outs, row, value);
}

static void weight_backward(oct_context *cx, const convolution *v, const float *x,
                            const float *grad_y)
{
    const oct_conv_plan *p = &v->plan;
    workspace w;
    oct_leaf_stream stream;
    if (!workspace_begin(cx, &w, 0, p->weight.scratch_bytes)) return;
    oct_leaf_stream_begin(cx, &stream, v->weight, p->weight.leaves, &v->layout);
    for (int64_t first = 0, end; oct_leaf_stream_next(cx, &stream, &first, &end);) {
#pragma omp parallel for schedule(static)
        for (int64_t i = first; i < end; i++) {
            const oct_leaf_group group = oct_leaf_stream_group(cx, &stream, i);
            const conv_part part = leaves_at(cx, p, group.first, group.end);
            const oct_conv_weight_pass pass = {.samples = part.samples,
                                               .grad = grad_y + part.y,
                                               .x = {.values = x + part.x},
                                               .sums = group.row,
                                               .add = group.add};
            oct_conv_backward_weight(p, &pass, scratch_here(&w));
        }
    }
    oct_leaf_stream_end(cx, &stream);
    oct_scratch_end(cx, w.packed);
}

static void bias_backward(oct_context *cx, const convolution *v, const float *grad_y)
{
    const oct_conv_shape *s = &v->plan.config.shape;
    float *rows = oct_leaf_grads_begin(cx, v->bias);
    if (!rows) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++) {
        const conv_part leaf = leaves_at(cx, &v->plan, i, i + 1);
        oct_bias_backward(leaf.samples * s->out_h * s->out_w, s->out_c, grad_y + leaf.y,
                          rows + i * s->out_c);
    }
    oct_leaf_grads_end(cx, v->bias);
}

static void conv_backward(oct_context *cx, oct_node *node)
{
    const convolution *v = node->saved;
    const float *grad_y = node->output->grad;
    weight_backward(cx, v, oct_f32(node->input[0]), grad_y);
    if (v->bias && cx->status == OCT_OK) bias_backward(cx, v, grad_y);
    if (cx->status == OCT_OK) data_backward(cx, v, node->input[0], grad_y);
}

/* Plans a forward and, where a tape is kept, its backward; false when the context has failed. */
static bool make_plan(oct_context *cx, const oct_tensor *x, const oct_conv_shape *s,
                      oct_conv_plan *p)
{
    const unsigned backward =
        OCT_CONV_BACKWARD_WEIGHT | (x->needs_grad ? OCT_CONV_BACKWARD_DATA : 0u);
    const oct_conv_config config = {.shape = *s,
                                    .kernel = oct_float_kernel_here(),
                                    .numerics = OCT_NUMERICS_F32,
                                    .input = OCT_F32,
                                    .leaf = cx->leaves.leaf,
                                    .max_leaves = oct_leaf_stream_leaves(cx, OCT_CONV_MAX_LEAVES),
                                    .products = OCT_CONV_FORWARD | (cx->record ? backward : 0u)};
    oct_conv_plan_init(p, &config);
    void *tables = oct_save(cx, p->table_bytes);
    if (tables) oct_conv_plan_tables(p, tables);
    return tables;
}

oct_tensor *oct_convolve(oct_context *cx, const char *op, oct_tensor *x, const oct_convolution *v)
{
    const oct_conv_shape *s = &v->shape;
    oct_shape shape = x->shape;
    shape.dim[shape.ndim - 1] = s->out_c;
    if (shape.ndim == 4) shape = OCT_SHAPE(oct_dim(x, 0), s->out_h, s->out_w, s->out_c);
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, shape);
    convolution *c = oct_save(cx, sizeof *c);
    if (!y || !c) return NULL;
    c->weight = v->weight;
    c->bias = v->bias;
    c->layout =
        (oct_leaf_layout){transpose_weight, s->groups, oct_conv_depth(s), s->out_c / s->groups};
    const float *bias = v->bias ? oct_f32(&v->bias->value) : NULL;
    const oct_conv_pass pass = {.x = oct_f32(x), .bias = bias, .y = oct_f32(y)};
    if (make_plan(cx, x, s, &c->plan)) pass_leaves(cx, c, true, &pass);
    if (cx->status != OCT_OK) return NULL;
    oct_node *node = oct_record(cx, op, conv_backward, &x, 1, true, y);
    if (node) {
        node->saved = c;
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
