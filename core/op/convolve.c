/* conv2d, conv_transpose2d and linear: a transposed convolution is one over the input with zeros between its values, a
 * linear layer one of each position by itself.
 *
 * One plan serves a convolution forward and backward, and weights are packed once; then threads share the samples
 * (oct_cut), whose results do not depend on each other, and of sums over the samples of a leaf the
 * channels. */
#include "core/autograd/tape.h"
#include "core/kernel/conv.h"
#include "core/base/mem.h"
#include "core/base/leaves.h"
#include "core/op/op_impl.h"

#include <omp.h>

enum { LEAST_TERMS = 32 }; /* of an output's sum in bfloat16: what a matrix unit takes at a time */

/* What the backward needs. */
typedef struct convolution {
    oct_conv_plan plan;
    oct_param *weight, *bias; /* bias may be NULL */
    oct_leaf_layout layout;   /* of the weights' gradient */
} convolution;

/* A workspace holds packed weights and the scratch of all threads. */
typedef struct workspace {
    void *packed; /* to be given back */
    char *scratch;
    size_t bytes; /* of one thread's */
} workspace;

/* Borrows memory for packed weights and for the scratch of each thread. */
static bool workspace_begin(oct_context *cx, workspace *w, size_t packed_bytes,
                            size_t scratch_bytes)
{
    const size_t packed = oct_cache_aligned(packed_bytes);
    w->bytes = oct_cache_aligned(scratch_bytes);
    w->packed = oct_scratch(cx, packed + w->bytes * (size_t)omp_get_max_threads());
    w->scratch = w->packed ? (char *)w->packed + packed : NULL;
    return w->packed;
}

static void *thread_scratch(const workspace *w)
{
    return w->scratch + (size_t)omp_get_thread_num() * w->bytes;
}

/* forward: computes pass.y from the input pass.x for all local samples; else the gradient of x, into pass.y, from that
 * of y, pass.x. Weights are packed once; threads share the samples. */
static void pass_samples(oct_context *cx, const convolution *conv, bool forward,
                         const oct_conv_pass *all)
{
    const oct_conv_plan *p = &conv->plan;
    const oct_conv_product *product = forward ? &p->forward : &p->data;
    const int64_t in = oct_conv_in_numel(&p->config.shape),
                  out = oct_conv_out_numel(&p->config.shape);
    const float *weight = oct_f32(&conv->weight->value), *x = all->x;
    const oct_cut cut = oct_cut_samples(&cx->leaves, 1, omp_get_max_threads());
    workspace w;
    if (workspace_begin(cx, &w, product->packed_bytes, product->scratch_bytes)) {
        if (forward)
            oct_conv_forward_pack(p, weight, w.packed);
        else
            oct_conv_backward_data_pack(p, weight, NULL, w.packed);
#pragma omp parallel for schedule(static)
        for (int t = 0; t < cut.threads; t++) {
            for (oct_tile tile = oct_tile_begin(&cut, t); oct_tile_next(&cut, &tile);) {
                const int64_t first = oct_leaf_begin(&cx->leaves, tile.leaf) + tile.first;
                oct_conv_pass pass = *all;
                pass.samples = tile.end - tile.first;
                pass.packed = w.packed;
                pass.x = x + first * (forward ? in : out);
                pass.y += first * (forward ? out : in);
                if (forward)
                    oct_conv_forward(p, &pass, thread_scratch(&w));
                else
                    oct_conv_backward_data(p, &pass, thread_scratch(&w));
                oct_meanwhile(cx);
            }
        }
    }
    oct_scratch_end(cx, w.packed);
}

/* Puts a row of the weights' gradient into their layout. */
static void transpose_weight(const oct_leaf_layout *l, const float *row, float *value)
{
    oct_conv_weight_transpose(l->groups, l->depth, l->outs, row, value);
}

/* The operands of the gradient to the weights, of all local samples. */
typedef struct weight_operands {
    const float *x, *grad_y;
} weight_operands;

/* Computes the gradient of the weights from the samples of a leaf group, for some channels of the input. */
static void weight_backward_of_leaves(const oct_context *cx, const oct_conv_plan *p,
                                      const oct_leaf_group *group, const oct_tile *channels,
                                      const weight_operands *all, void *scratch)
{
    const int64_t begin = oct_leaf_begin(&cx->leaves, group->first);
    const oct_conv_weight_pass pass = {
        .samples = oct_leaf_samples(&cx->leaves, group->first, group->end),
        .grad = all->grad_y + begin * oct_conv_out_numel(&p->config.shape),
        .x = {.values = all->x + begin * oct_conv_in_numel(&p->config.shape)},
        .sums = group->row,
        .add = group->add,
        .channel = channels->first,
        .channels = channels->end - channels->first};
    oct_conv_backward_weight(p, &pass, scratch);
}

/* Adds the gradient of the weights leaf group by leaf group; threads share groups and channels. */
static void weight_backward(oct_context *cx, const convolution *conv, const weight_operands *all)
{
    const oct_conv_plan *p = &conv->plan;
    workspace w;
    oct_leaf_stream stream;
    if (!workspace_begin(cx, &w, 0, p->weight.scratch_bytes)) return;
    oct_leaf_stream_begin(cx, &stream, conv->weight, p->weight.leaves, &conv->layout);
    for (int64_t first = 0, end; oct_leaf_stream_next(cx, &stream, &first, &end);) {
        const oct_cut cut = oct_conv_weight_cut(p, end - first, omp_get_max_threads());
#pragma omp parallel for schedule(static)
        for (int t = 0; t < cut.threads; t++) {
            for (oct_tile tile = oct_tile_begin(&cut, t); oct_tile_next(&cut, &tile);) {
                const oct_leaf_group group = oct_leaf_stream_group(cx, &stream, first + tile.leaf);
                weight_backward_of_leaves(cx, p, &group, &tile, all, thread_scratch(&w));
            }
        }
    }
    oct_leaf_stream_end(cx, &stream);
    oct_scratch_end(cx, w.packed);
}

/* Adds the gradient of the bias: for each leaf the sum of grad_y over its positions. */
static void bias_backward(oct_context *cx, const convolution *conv, const float *grad_y)
{
    const oct_conv_shape *s = &conv->plan.config.shape;
    const oct_cut cut = oct_cut_columns(cx->leaves.local, s->out_c, omp_get_max_threads());
    float *rows = oct_leaf_grads_begin(cx, conv->bias);
    if (!rows) return;
#pragma omp parallel for schedule(static)
    for (int t = 0; t < cut.threads; t++) {
        for (oct_tile tile = oct_tile_begin(&cut, t); oct_tile_next(&cut, &tile);) {
            const int64_t begin = oct_leaf_begin(&cx->leaves, tile.leaf) * oct_conv_out_numel(s);
            oct_bias_backward(oct_leaf_size(&cx->leaves, tile.leaf) * s->out_h * s->out_w, s->out_c,
                              tile.end - tile.first, grad_y + begin + tile.first,
                              rows + tile.leaf * s->out_c + tile.first);
        }
    }
    oct_leaf_grads_end(cx, conv->bias);
}

/* Adds the gradients of weight and bias, then that of the input where it needs one. */
static void conv_backward(oct_context *cx, oct_node *node)
{
    const convolution *conv = node->saved;
    const float *grad_y = node->output->grad;
    oct_conv_pass data_pass = {.x = grad_y};
    weight_backward(cx, conv, &(weight_operands){oct_f32(node->input[0]), grad_y});
    if (conv->bias && cx->status == OCT_OK) bias_backward(cx, conv, grad_y);
    if (cx->status != OCT_OK) return;
    data_pass.y = oct_grad_buffer(cx, node->input[0], &data_pass.add);
    if (data_pass.y) pass_samples(cx, conv, false, &data_pass);
}

/* What a forward multiplies in, and its backward: bfloat16 where a step that learns is to (cx->float_bf16), but float32
 * where a sum has so few terms that it gains nothing, as of a first layer. A forward that learns nothing is float32, as
 * an exported model is. */
static oct_numerics numerics_of(const oct_context *cx, const oct_conv_shape *s)
{
    const bool bf16 = cx->float_bf16 && cx->record && oct_conv_depth(s) >= LEAST_TERMS;
    return bf16 ? OCT_NUMERICS_BF16 : OCT_NUMERICS_F32;
}

/* Plans a forward and, where a tape is kept, its backward; false when the context has failed. */
static bool make_plan(oct_context *cx, const oct_tensor *x, const oct_conv_shape *s,
                      oct_conv_plan *p)
{
    const unsigned backward =
        OCT_CONV_BACKWARD_WEIGHT | (x->needs_grad ? OCT_CONV_BACKWARD_DATA : 0u);
    const oct_conv_config config = {.shape = *s,
                                    .kernel = oct_float_kernel_here(),
                                    .numerics = numerics_of(cx, s),
                                    .grad_is_floats = true,
                                    .input = OCT_F32,
                                    .leaf = cx->leaves.leaf,
                                    .max_leaves = oct_leaf_stream_leaves(cx, OCT_CONV_MAX_LEAVES),
                                    .products = OCT_CONV_FORWARD | (cx->record ? backward : 0u)};
    oct_conv_plan_init(p, &config);
    void *tables = oct_save(cx, p->table_bytes);
    if (tables) oct_conv_plan_tables(p, tables);
    return tables;
}

/* What is convolved, all of whose shapes have been checked. */
typedef struct operands {
    oct_conv_shape shape;
    oct_param *weight, *bias; /* bias may be NULL */
} operands;

/* Runs and records a convolution; y has as many dimensions as x. */
static oct_tensor *convolve(oct_context *cx, const char *op, oct_tensor *x, const operands *v)
{
    const oct_conv_shape *s = &v->shape;
    oct_shape shape = x->shape;
    shape.dim[shape.ndim - 1] = s->out_c;
    if (shape.ndim == 4) shape = OCT_SHAPE(oct_dim(x, 0), s->out_h, s->out_w, s->out_c);
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, shape);
    convolution *conv = oct_save(cx, sizeof *conv);
    if (!y || !conv) return NULL;
    conv->weight = v->weight;
    conv->bias = v->bias;
    conv->layout =
        (oct_leaf_layout){transpose_weight, s->groups, oct_conv_depth(s), s->out_c / s->groups};
    const float *bias = v->bias ? oct_f32(&v->bias->value) : NULL;
    const oct_conv_pass pass = {.x = oct_f32(x), .bias = bias, .y = oct_f32(y)};
    if (make_plan(cx, x, s, &conv->plan)) pass_samples(cx, conv, true, &pass);
    if (cx->status != OCT_OK) return NULL;
    oct_node *node = oct_record(cx, op, conv_backward, &x, 1, true, y);
    if (node) node->saved = conv;
    oct_param_used(cx, v->weight);
    if (v->bias) oct_param_used(cx, v->bias);
    return y;
}

static void dilate_backward(oct_context *cx, oct_node *node)
{
    oct_tensor *x = node->input[0];
    const oct_dilation *d = node->saved;
    const int64_t in = d->h * d->w * d->c, out = d->out_h * d->out_w * d->c;
    float *grad = oct_grad_new(cx, x);
    if (!grad) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        oct_undilate_image(d, node->output->grad + i * out, grad + i * in);
    oct_add_grad(cx, x, grad);
}

oct_tensor *oct_dilate(oct_context *cx, oct_tensor *x, int step_h, int step_w)
{
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    if (!oct_needs_values_or_codes(cx, "dilate", x)) return NULL;
    if (x->shape.ndim != 4 || oct_dim(x, 1) < 1 || oct_dim(x, 2) < 1 || step_h < 1 || step_w < 1)
        return oct_context_fail(
            cx, OCT_USAGE,
            "dilate takes images (N, H, W, C) and distances of 1 or more, but has %s and %dx%d",
            oct_text_shape(&x->shape).text, step_h, step_w);
    const oct_dilation d = oct_dilation_of(x->shape, step_h, step_w, x->dtype, x->q.zero_point);
    const int64_t size = (int64_t)oct_dtype_bytes(x->dtype);
    oct_tensor *y = oct_tensor_new(cx, x->dtype, OCT_SHAPE(oct_dim(x, 0), d.out_h, d.out_w, d.c));
    if (!y) return NULL;
    const int64_t in = d.h * d.w * d.c * size, out = d.out_h * d.out_w * d.c * size;
    y->q = x->q;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        oct_dilate_image(&d, (const char *)x->data + i * in, (char *)y->data + i * out);
    oct_node *node = oct_record(cx, "dilate", dilate_backward, &x, 1, false, y);
    return oct_node_save(cx, node, &d, sizeof d) ? y : NULL;
}

/* Fails the context unless bias is NULL or has `out` values. */
static bool bias_fits(oct_context *cx, const char *op, const oct_param *bias, int64_t out)
{
    if (!bias || (bias->value.shape.ndim == 1 && oct_dim(&bias->value, 0) == out)) return true;
    return oct_context_fail(cx, OCT_USAGE, "%s with %lld outputs cannot take a bias of shape %s",
                            op, (long long)out, oct_text_shape(&bias->value.shape).text);
}

/* Fails the context unless weight (O, kh, kw, I/groups) has the geometry's kernel, and groups that divide both channels,
 * and the bias fits too. */
static bool weights_fit(oct_context *cx, const char *op, const oct_tensor *x,
                        const oct_conv_geometry *g, const oct_tensor *w, const oct_param *bias)
{
    const bool fits = w->shape.ndim == 4 && x->shape.ndim == 4 && g->groups >= 1 &&
                      oct_dim(w, 1) == g->kernel_h && oct_dim(w, 2) == g->kernel_w &&
                      oct_dim(w, 0) % g->groups == 0 && oct_dim(w, 3) * g->groups == oct_dim(x, 3);
    if (!fits)
        oct_context_fail(cx, OCT_USAGE,
                         "%s: input %s (N, H, W, I) and weight %s (O, kh, kw, I/groups) do not fit "
                         "together with kernel %dx%d and groups %d",
                         op, oct_text_shape(&x->shape).text, oct_text_shape(&w->shape).text,
                         g->kernel_h, g->kernel_w, g->groups);
    return fits && bias_fits(cx, op, bias, oct_dim(w, 0));
}

oct_tensor *oct_conv2d(oct_context *cx, oct_tensor *x, oct_param *weight, oct_param *bias,
                       oct_conv_geometry g)
{
    if (!oct_inputs_ok(cx, &x, 1) || !oct_needs_params(cx, "conv2d", weight, weight)) return NULL;
    const oct_tensor *w = &weight->value;
    if (!oct_needs_f32(cx, "conv2d", x) || !oct_needs_batch(cx, "conv2d", x)) return NULL;
    if (!weights_fit(cx, "conv2d", x, &g, w, bias)) return NULL;
    if (!oct_conv_geometry_fits(&g))
        return oct_context_fail(cx, OCT_USAGE, "conv2d cannot have windows of %s; %s",
                                oct_text_conv_geometry(&g).text, oct_conv_geometry_rule);
    const operands v = {
        oct_conv_shape_of(oct_dim(x, 1), oct_dim(x, 2), oct_dim(x, 3), oct_dim(w, 0), g), weight,
        bias};
    if (v.shape.out_h < 1 || v.shape.out_w < 1)
        return oct_context_fail(cx, OCT_USAGE,
                                "conv2d: a window of %s does not fit into the input %s",
                                oct_text_conv_geometry(&g).text, oct_text_shape(&x->shape).text);
    return convolve(cx, "conv2d", x, &v);
}

oct_tensor *oct_conv_transpose2d(oct_context *cx, oct_tensor *x, oct_param *weight, oct_param *bias,
                                 oct_conv_geometry g)
{
    const char *op = "conv_transpose2d";
    if (!oct_inputs_ok(cx, &x, 1) || !oct_needs_params(cx, op, weight, weight)) return NULL;
    const oct_tensor *w = &weight->value;
    if (!oct_needs_f32(cx, op, x) || !oct_needs_batch(cx, op, x)) return NULL;
    if (!oct_conv_transpose_geometry_fits(&g))
        return oct_context_fail(cx, OCT_USAGE, "%s cannot have windows of %s; %s", op,
                                oct_text_conv_geometry(&g).text, oct_conv_transpose_geometry_rule);
    if (!weights_fit(cx, op, x, &g, w, bias)) return NULL;
    const operands v = {
        oct_conv_transpose_shape_of(oct_dim(x, 1), oct_dim(x, 2), oct_dim(x, 3), oct_dim(w, 0), g),
        weight, bias};
    if (v.shape.out_h < 1 || v.shape.out_w < 1)
        return oct_context_fail(cx, OCT_USAGE, "%s: windows of %s leave nothing of the input %s",
                                op, oct_text_conv_geometry(&g).text,
                                oct_text_shape(&x->shape).text);
    if (g.stride_h > 1 || g.stride_w > 1) x = oct_dilate(cx, x, g.stride_h, g.stride_w);
    if (!x) return NULL;
    return convolve(cx, op, x, &v);
}

oct_tensor *oct_linear(oct_context *cx, oct_tensor *x, oct_param *weight, oct_param *bias)
{
    if (!oct_inputs_ok(cx, &x, 1) || !oct_needs_params(cx, "linear", weight, weight)) return NULL;
    const oct_tensor *w = &weight->value;
    if (!oct_needs_f32(cx, "linear", x) || !oct_needs_batch(cx, "linear", x)) return NULL;
    const int n = x->shape.ndim;
    if (n < 2 || n > 4 || w->shape.ndim != 2 || oct_dim(x, n - 1) != oct_dim(w, 1))
        return oct_context_fail(
            cx, OCT_USAGE,
            "linear: input %s (N, ..., I) and weight %s (O, I) do not fit together%s",
            oct_text_shape(&x->shape).text, oct_text_shape(&w->shape).text,
            n == 4 ? "; put a flatten or a global average pool before" : "");
    if (!bias_fits(cx, "linear", bias, oct_dim(w, 0))) return NULL;
    const int64_t h = n == 4 ? oct_dim(x, 1) : 1, width = n >= 3 ? oct_dim(x, n - 2) : 1;
    const operands v = {oct_linear_shape(h, width, oct_dim(w, 1), oct_dim(w, 0)), weight, bias};
    return convolve(cx, "linear", x, &v);
}
