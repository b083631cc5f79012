/* The straight-through backward of a QAT convolution. With g the output's gradient where nothing was clipped:
 *     dC = gamma/sigma * (g - mean(g) - x^ mean(g x^))   live batch norm
 *     dC = gamma/sigma * g                               frozen; g without batch norm
 *     dX = (dC s_w) * codes,   dW = s_x/s_w * (dC s_w) * (codes - z)
 * in up to two sweeps over the leaves. The first sums what the batch norm's own gradients need, x^ coming
 * from accumulators, which are kept from the forward on or computed again. The second turns a leaf into
 * rows of dC s_w, the one operand of both products, whose other operands are whole numbers; so nothing else
 * is rounded where numerics are bfloat16. Where they are int8, a leaf becomes codes of dC s_w for the one product and of dC
 * for the other (grad_scales.c). Of a batch norm on its own, dX is dC.
 */
#include "core/autograd/tape.h"
#include "quant/module/conv/conv_impl.h"

#include "core/base/mem.h"
#include "core/base/int_math.h"
#include "core/kernel/conv.h"

#include <omp.h>
#include <string.h>

/* A backward at work. */
typedef struct call {
    oct_grad_sweep sweep;
    const oct_layer *layer;
    const oct_qat_saved *saved;
    oct_tensor *x, *addend; /* addend: or NULL */
    const oct_tensor *y;
    /* The second sweep uses what follows. */
    oct_conv_plan plan;
    void *tables;
    float *grad_x; /* NULL: not wanted */
    bool add_x;    /* it holds something already */
    void *weight;  /* operand of the gradient to the input */
    float *factor; /* s_x / s_w */
    float *bias;   /* its gradient, a row for each leaf; or NULL */
    /* Of a thread's scratch, in bytes from its start: the operand rows of a group of leaves, and the scratch of the
     * products. */
    size_t rows_at, products_at;
} call;

/* This thread's scratch for the products. */
static char *product_scratch(const call *c)
{
    return c->sweep.scratch + (size_t)omp_get_thread_num() * c->sweep.scratch_bytes +
           c->products_at;
}

/* Clears gradients of clipped outputs by fake-quants whose backward wants a whole leaf; else the sweeps do so. */
static void clip_leaves(const oct_context *cx, const call *c)
{
    const oct_qat_saved *saved = c->saved;
    const int64_t n = oct_conv_out_numel(&saved->plan.shape);
    if (!saved->mask || oct_clips_in_parts(c->layer->fq)) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++)
        oct_fake_quant_backward(c->layer->fq, oct_leaf_size(&cx->leaves, i) * n,
                                saved->mask + i * saved->mask_stride,
                                c->sweep.grad + oct_leaf_begin(&cx->leaves, i) * n);
}

/* A tile of a leaf in the second sweep. */
typedef struct leaf_tile {
    const oct_context *cx;
    oct_grad_leaf leaf;
    const call *c;
    int64_t position; /* where the tile begins in the leaf */
    char *rows;       /* operand rows of the leaf */
    float *bias;      /* gradient of the bias, of the leaf; or NULL */
} leaf_tile;

/* Computes dC, the gradient of the sums, of a block with live batch norm: as operand rows, or in place. */
static void compute_live_block(void *args, int64_t first, int64_t positions, void *acc)
{
    const leaf_tile *t = args;
    const call *c = t->c;
    const oct_norm_grad *norm = &t->leaf.norm;
    const int64_t block = t->position + first;
    const bool direct = c->layer->weight && !c->bias && c->plan.grad_rows_are_floats;
    for (int64_t row = 0, rows; row < positions; row += rows) {
        rows = oct_min_i64(oct_part_rows(norm->n), positions - row);
        const oct_norm_rows part = oct_grad_leaf_rows(&t->leaf, block, row, rows, acc);
        if (!c->layer->weight) {
            oct_norm_grad_live(norm, &part, NULL, false, part.grad);
        } else if (direct) {
            void *to = t->rows + (size_t)(block + row) * c->plan.grad_row_bytes;
            oct_norm_grad_live(norm, &part, c->saved->ch.scale, c->addend, to);
        } else {
            oct_norm_grad_live(norm, &part, NULL, c->addend, t->leaf.part);
            oct_grad_write_rows(t->cx, &t->leaf, block + row, rows, t->leaf.part, t->bias, t->rows);
        }
    }
}

/* Clears the gradient of n elements from element `first` of the leaf on where the mask is 0. */
static void clip_part(const uint8_t *mask, int64_t first, int64_t n, float *grad)
{
    for (; n > 0 && first % 8 != 0; first++, grad++, n--)
        if (!(mask[first / 8] >> (first % 8) & 1)) *grad = 0.0f;
    oct_mask_apply(mask + first / 8, n, grad);
}

/* Finds the largest magnitudes of a tile for the scales of an int8 backward, after clipping it, unless the first sweep has
 * found them. */
static void raise_tile(const oct_context *cx, const call *c, const oct_tile *tile)
{
    const oct_grad_leaf leaf = oct_grad_leaf_of(cx, &c->sweep, tile->leaf);
    const int64_t n = c->saved->plan.shape.out_c;
    if (!leaf.most || c->saved->live) return;
    for (int64_t i = tile->first; i < tile->end; i++) {
        const int64_t first = i * leaf.plane * n;
        if (leaf.mask) clip_part(leaf.mask, first, leaf.plane * n, leaf.grad + first);
        oct_grad_raise(leaf.plane, n, leaf.grad + first, leaf.most + 2 * i * n);
    }
}

/* Computes dC, the gradient of the sums, of a tile: as operand rows (its leaf's begin at `rows`) or in place. */
static void compute_tile(const oct_context *cx, const call *c, const oct_tile *tile, char *rows)
{
    const oct_layer *l = c->layer;
    const oct_conv_shape *s = &c->saved->plan.shape;
    const int64_t n = s->out_c, plane = s->out_h * s->out_w, end = tile->end * plane;
    leaf_tile t = {.cx = cx,
                   .leaf = oct_grad_leaf_of(cx, &c->sweep, tile->leaf),
                   .c = c,
                   .position = tile->first * plane,
                   .rows = rows,
                   .bias = c->bias ? c->bias + tile->leaf * n : NULL};
    if (l->bn && c->saved->live) {
        oct_accumulators_pass(cx, &c->sweep.acc, tile, compute_live_block, &t);
        return;
    }
    /* Without batch norm, or with a frozen one, no accumulators are needed. */
    for (int64_t row = t.position, count; row < end; row += count) {
        float *grad = t.leaf.grad + row * n, *out = l->weight ? t.leaf.part : grad;
        count = oct_min_i64(oct_part_rows(n), end - row);
        if (t.leaf.mask && !t.leaf.most) clip_part(t.leaf.mask, row * n, count * n, grad);
        if (l->bn) oct_norm_grad_frozen(count, n, t.leaf.norm.gain, grad, out);
        if (l->weight)
            oct_grad_write_rows(cx, &t.leaf, row, count, l->bn ? out : grad, t.bias, rows);
    }
}

/* Computes the gradient to the input of a tile. rows: the operand rows of its leaf. */
static void data_backward(const oct_context *cx, const call *c, const oct_tile *tile,
                          const char *rows)
{
    const oct_conv_shape *s = &c->saved->plan.shape;
    const int64_t begin = oct_leaf_begin(&cx->leaves, tile->leaf) + tile->first;
    const int64_t first = tile->first * s->out_h * s->out_w;
    const char *x = rows + (size_t)first * c->plan.grad_row_bytes;
    const oct_grad_scales *scales = &c->sweep.scales;
    const oct_conv_pass pass = {.samples = tile->end - tile->first,
                                .x = x,
                                .low = scales->digits[OCT_GATE_INPUT] == 2 ? x + scales->digit_bytes
                                                                           : NULL,
                                .scale = scales->most ? scales->input + begin : NULL,
                                .packed = c->weight,
                                .y = c->grad_x + begin * oct_conv_in_numel(s),
                                .add = c->add_x};
    oct_conv_backward_data(&c->plan, &pass, product_scratch(c));
}

/* Leaf groups whose operand rows are in scratch together: up to one for each thread. */
typedef struct group_batch {
    const call *c;
    const oct_leaf_stream *stream;
    int64_t first, groups; /* of the stream */
} group_batch;

static oct_leaf_group leaf_group_at(const oct_context *cx, const group_batch *r, int64_t k)
{
    return oct_leaf_stream_group(cx, r->stream, r->first + k);
}

/* Gives the operand rows of the k-th group of a batch. */
static char *operand_rows_of_group(const group_batch *r, int64_t k)
{
    return r->c->sweep.scratch + (size_t)k * r->c->sweep.scratch_bytes + r->c->rows_at;
}

/* Returns where the operand rows of leaf i begin: among those of its group of leaves. */
static char *operand_rows_of_leaf(const oct_context *cx, const group_batch *r, int64_t i)
{
    const oct_conv_shape *s = &r->c->saved->plan.shape;
    const size_t sample = (size_t)(s->out_h * s->out_w) * r->c->plan.grad_row_bytes;
    int64_t k = 0;
    oct_leaf_group group = leaf_group_at(cx, r, 0);
    while (i >= group.end)
        group = leaf_group_at(cx, r, ++k);
    return operand_rows_of_group(r, k) +
           (size_t)oct_leaf_samples(&cx->leaves, group.first, i) * sample;
}

/* Multiplies the rows of the k-th group with some channels of the input: the gradient to the weights. */
static void weight_backward(const oct_context *cx, const group_batch *r, int64_t k,
                            const oct_tile *channels)
{
    const call *c = r->c;
    const oct_leaf_group group = leaf_group_at(cx, r, k);
    const int64_t begin =
        oct_leaf_begin(&cx->leaves, group.first) * oct_conv_in_numel(&c->saved->plan.shape);
    const bool wide = c->x->dtype == OCT_U16;
    const oct_grad_scales *scales = &c->sweep.scales;
    const int64_t first_scale =
        group.first * c->plan.weight.leaf_segments * c->saved->plan.shape.out_c;
    const char *grad =
        operand_rows_of_group(r, k) + (size_t)scales->digits[OCT_GATE_INPUT] * scales->digit_bytes;
    const oct_conv_weight_pass pass = {
        .samples = oct_leaf_samples(&cx->leaves, group.first, group.end),
        .grad = grad,
        .low = scales->digits[OCT_GATE_WEIGHT] == 2 ? grad + scales->digit_bytes : NULL,
        .scale = scales->most ? scales->weight + first_scale : NULL,
        .x = {.zero_point = c->x->q.zero_point,
              .codes16 = wide ? oct_u16(c->x) + begin : NULL,
              .codes = wide ? NULL : oct_u8(c->x) + begin},
        .factor = c->factor,
        .sums = group.row,
        .add = group.add,
        .channel = channels->first,
        .channels = channels->end - channels->first};
    oct_conv_backward_weight(&c->plan, &pass, product_scratch(c));
}

/* Computes the gradients of groups of leaves, a thread those of one, whose operand rows stay in its cache. */
static void multiply_groups(const oct_context *cx, const group_batch *r)
{
    const oct_tile channels = {.end = r->c->saved->plan.shape.in_c};
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < r->groups; k++) {
        const oct_leaf_group group = leaf_group_at(cx, r, k);
        for (int64_t i = group.first; i < group.end; i++) {
            const oct_tile whole = oct_whole_leaf(cx, i);
            char *rows = operand_rows_of_leaf(cx, r, i);
            raise_tile(cx, r->c, &whole);
            if (r->c->sweep.scales.most) oct_grad_scale_leaf(cx, &r->c->sweep, i);
            compute_tile(cx, r->c, &whole, rows);
            if (r->c->grad_x) data_backward(cx, r->c, &whole, rows);
        }
        weight_backward(cx, r, k, &channels);
    }
}

/* There are fewer groups than threads, so threads share them: first the samples, then the channels. */
static void share_groups(oct_context *cx, const group_batch *r)
{
    const int threads = omp_get_max_threads();
    const int64_t first = leaf_group_at(cx, r, 0).first,
                  end = leaf_group_at(cx, r, r->groups - 1).end;
    const oct_cut samples = {oct_leaf_samples(&cx->leaves, first, end), cx->leaves.leaf, 1,
                             threads};
    const oct_cut channels = oct_conv_weight_cut(&r->c->plan, r->groups, threads);
    oct_cut rows = samples;
    if (r->c->bias) rows.step = rows.units; /* whose gradient is a sum over the leaf */
#pragma omp parallel for schedule(static)
    for (int t = 0; t < threads; t++) {
        for (oct_tile tile = oct_tile_begin(&samples, t); oct_tile_next(&samples, &tile);) {
            tile.leaf += first;
            raise_tile(cx, r->c, &tile);
        }
    }
    for (int64_t i = first; i < end && r->c->sweep.scales.most; i++)
        oct_grad_scale_leaf(cx, &r->c->sweep, i);
#pragma omp parallel for schedule(static)
    for (int t = 0; t < threads; t++) {
        for (oct_tile tile = oct_tile_begin(&rows, t); oct_tile_next(&rows, &tile);) {
            tile.leaf += first;
            compute_tile(cx, r->c, &tile, operand_rows_of_leaf(cx, r, tile.leaf));
        }
    }
    oct_meanwhile(cx); /* sums of other gradients over the ranks go on */
#pragma omp parallel for schedule(static)
    for (int t = 0; t < threads; t++) {
        for (oct_tile tile = oct_tile_begin(&samples, t);
             r->c->grad_x && oct_tile_next(&samples, &tile);) {
            tile.leaf += first;
            data_backward(cx, r->c, &tile, operand_rows_of_leaf(cx, r, tile.leaf));
        }
    }
    oct_meanwhile(cx);
#pragma omp parallel for schedule(static)
    for (int t = 0; t < threads; t++)
        for (oct_tile tile = oct_tile_begin(&channels, t); oct_tile_next(&channels, &tile);)
            weight_backward(cx, r, tile.leaf, &tile);
}

static void transpose_weight(const oct_leaf_layout *layout, const float *row, float *value)
{
    oct_conv_weight_transpose(layout->groups, layout->depth, layout->outs, row, value);
}

/* Runs the second sweep: dC and from it the gradients of weights, bias and input, some groups of leaves at a time. */
static void compute_products(oct_context *cx, call *c)
{
    const oct_conv_shape *s = &c->saved->plan.shape;
    const oct_leaf_layout layout = {transpose_weight, s->groups, oct_conv_depth(s),
                                    s->out_c / s->groups};
    oct_leaf_stream stream;
    c->bias = c->layer->bias ? oct_leaf_grads_begin(cx, c->layer->bias) : NULL;
    oct_leaf_stream_begin(cx, &stream, c->layer->weight, c->plan.weight.leaves, &layout);
    for (int64_t first = 0, end; oct_leaf_stream_next(cx, &stream, &first, &end);) {
        for (group_batch r = {c, &stream, first, 0}; r.first < end; r.first += r.groups) {
            r.groups = oct_min_i64(omp_get_max_threads(), end - r.first);
            if (r.groups == omp_get_max_threads())
                multiply_groups(cx, &r);
            else
                share_groups(cx, &r);
        }
    }
    oct_leaf_stream_end(cx, &stream);
    if (c->layer->bias) oct_leaf_grads_end(cx, c->layer->bias);
}

/* Plans the products that give the gradients of weights and input, and borrows what the sweeps over the leaves need. */
static bool begin_scratch(oct_context *cx, call *c)
{
    const oct_conv_shape *s = &c->saved->plan.shape;
    c->rows_at = oct_cache_aligned((size_t)oct_part_floats(s->out_c) * sizeof(float));
    c->sweep.scratch_bytes = c->rows_at;
    if (c->layer->weight) { /* the scratch of the products comes after the operand rows */
        const unsigned data = c->x->needs_grad ? OCT_CONV_BACKWARD_DATA : 0;
        const oct_numerics numerics = oct_conv_numerics(s, c->x->dtype, cx->numerics);
        oct_grad_scales *scales = &c->sweep.scales;
        int *digits = scales->digits;
        *scales = (oct_grad_scales){.plan = &c->plan, .gates = c->layer->gate ? cx->gates : NULL};
        for (int k = 0; numerics == OCT_NUMERICS_INT8 && k < OCT_GATE_OPERANDS; k++)
            digits[k] = oct_grad_gate_digits(scales->gates, c->layer->gate, k);
        const oct_conv_config config = {.shape = *s,
                                        .kernel = oct_float_kernel_here(),
                                        .bytes = &oct_kernel_here()->bytes,
                                        .numerics = numerics,
                                        .data_digits = digits[OCT_GATE_INPUT],
                                        .weight_digits = digits[OCT_GATE_WEIGHT],
                                        .input = c->x->dtype,
                                        .leaf = cx->leaves.leaf,
                                        .max_leaves =
                                            oct_leaf_stream_leaves(cx, OCT_CONV_MAX_LEAVES),
                                        .products = OCT_CONV_BACKWARD_WEIGHT | data};
        oct_conv_plan *p = &c->plan;
        oct_conv_plan_init(p, &config);
        c->tables = oct_scratch(cx, p->table_bytes);
        if (c->tables) oct_conv_plan_tables(p, c->tables);
        const int64_t positions = p->weight.leaves * cx->leaves.leaf * s->out_h * s->out_w;
        const size_t products = p->data.scratch_bytes > p->weight.scratch_bytes
                                    ? p->data.scratch_bytes
                                    : p->weight.scratch_bytes;
        if (!data) digits[OCT_GATE_INPUT] = 0;
        const int arrays = digits[OCT_GATE_INPUT] + digits[OCT_GATE_WEIGHT];
        scales->digit_bytes = oct_cache_aligned((size_t)positions * p->grad_row_bytes);
        c->products_at = c->rows_at + (size_t)(arrays > 0 ? arrays : 1) * scales->digit_bytes;
        if (arrays > 0) {
            const int64_t samples = oct_leaves_local_samples(&cx->leaves);
            const size_t most = (size_t)(samples * 2 * s->out_c);
            const size_t weight = (size_t)(cx->leaves.local * p->weight.leaf_segments * s->out_c);
            scales->most = oct_scratch(
                cx, (most + weight + (size_t)samples * (1 + OCT_GATE_OPERANDS)) * sizeof(float));
            if (!scales->most) return false;
            memset(scales->most, 0, most * sizeof(float));
            scales->weight = (float *)(scales->most + most);
            scales->input = scales->weight + weight;
            scales->key = (uint32_t *)(scales->input + samples);
        }
        c->sweep.scratch_bytes = c->products_at + oct_cache_aligned(products);
        c->factor = oct_scratch(cx, (size_t)s->out_c * sizeof *c->factor);
    }
    c->sweep.scratch = oct_scratch(cx, c->sweep.scratch_bytes * (size_t)omp_get_max_threads());
    return cx->status == OCT_OK;
}

/* Runs the second sweep of a layer with weights, after packing their codes for the gradient to the input. */
static void products_backward(oct_context *cx, call *c)
{
    const oct_qat_saved *saved = c->saved;
    for (int64_t o = 0; o < saved->plan.shape.out_c; o++)
        c->factor[o] = c->x->q.scale / (c->sweep.scales.most ? 1.0f : saved->ch.scale[o]);
    if (c->x->needs_grad) {
        c->weight = oct_scratch(cx, c->plan.data.packed_bytes);
        if (!c->weight) return;
        oct_conv_backward_data_pack(&c->plan, NULL, saved->codes, c->weight);
        c->grad_x = oct_grad_buffer(cx, c->x, &c->add_x);
    }
    if (cx->status == OCT_OK) compute_products(cx, c);
    oct_scratch_end(cx, c->weight);
}

/* Runs the second sweep of a batch norm on its own, whose gradient becomes that of the input. */
static void input_backward(oct_context *cx, call *c)
{
    const oct_cut cut = oct_cut_samples(&cx->leaves, 1, omp_get_max_threads());
#pragma omp parallel for schedule(static)
    for (int t = 0; t < cut.threads; t++)
        for (oct_tile tile = oct_tile_begin(&cut, t); oct_tile_next(&cut, &tile);)
            compute_tile(cx, c, &tile, NULL);
    oct_add_grad(cx, c->x, c->sweep.grad);
    c->sweep.grad = NULL;
}

/* What a leaf adds to the gradient of a learned scale. */
typedef struct leaf_scale_grad {
    oct_slope_sum sum;
    const float *grad; /* of the leaf, not clipped yet */
} leaf_scale_grad;

static void add_slopes(void *args, int64_t first, int64_t n, const float *v)
{
    leaf_scale_grad *s = args;
    oct_slope_sum_add(&s->sum, first, n, v, s->grad + first);
}

/* Adds the gradient of a learned scale of the output, before anything of its gradient is clipped: in the first pass over
 * the accumulators. */
static void add_scale_grad(oct_context *cx, call *c)
{
    const oct_layer *l = c->layer;
    const oct_qat_saved *saved = c->saved;
    const oct_qparams q = c->y->q;
    const int64_t n = saved->plan.shape.out_c, each = oct_conv_out_numel(&saved->plan.shape);
    const int64_t bytes = oct_value_pass_bytes(n);
    char *scratch = oct_scratch(cx, (size_t)(bytes * omp_get_max_threads()));
    float *rows = scratch ? oct_leaf_grads_begin(cx, l->fq->learned) : NULL;
    if (rows) {
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < cx->leaves.local; i++) {
            const oct_channels ch =
                oct_channels_of_group(&saved->ch, n, oct_norm_group_at(&saved->groups, i));
            const oct_epilogue f = oct_epilogue_of(l, c->x->q, &q, c->addend, &ch);
            const oct_value_pass pass = {.epilogue = &f,
                                         .dead = memchr(ch.dead, true, (size_t)n) ? ch.dead : NULL,
                                         .scratch = scratch};
            leaf_scale_grad leaf = {.sum = {.fq = l->fq, .q = q},
                                    .grad = c->sweep.grad + oct_leaf_begin(&cx->leaves, i) * each};
            oct_accumulators_values(cx, &c->sweep.acc, &pass, i, add_slopes, &leaf);
            rows[i] += oct_slope_sum_end(&leaf.sum, each);
        }
        oct_leaf_grads_end(cx, l->fq->learned);
        c->sweep.acc.computed = true;
    }
    oct_scratch_end(cx, scratch);
}

void oct_qat_conv_backward(oct_context *cx, oct_node *node)
{
    oct_qat_saved *saved = node->saved;
    call c = {.sweep = {.saved = saved, .grad = oct_detach_grad(node->output)},
              .layer = &saved->layer,
              .saved = saved,
              .x = node->input[0],
              .addend = node->num_inputs > 1 ? node->input[1] : NULL,
              .y = node->output};
    oct_grad_sweep *sweep = &c.sweep;
    if (begin_scratch(cx, &c)) {
        const bool learns = oct_fake_quant_learns(c.layer->fq);
        const bool several = saved->live || oct_leaves_want_cut(&cx->leaves, omp_get_max_threads());
        if ((c.layer->bn || learns) &&
            oct_accumulators_begin(cx, saved, c.x, several, false, &sweep->acc) && learns)
            add_scale_grad(cx, &c);
        if (cx->status == OCT_OK) clip_leaves(cx, &c);
        if (cx->status == OCT_OK && c.layer->bn) oct_norm_grad_begin(cx, sweep);
        if (cx->status == OCT_OK) (c.layer->weight ? products_backward : input_backward)(cx, &c);
    }
    oct_accumulators_end(cx, &sweep->acc);
    oct_scratch_end(cx, sweep->norm.sums);
    oct_scratch_end(cx, sweep->norm.gain);
    oct_scratch_end(cx, c.factor);
    oct_scratch_end(cx, sweep->scales.most);
    oct_scratch_end(cx, sweep->scratch);
    oct_scratch_end(cx, c.tables);
    /* The derivative of a sum is 1: what was clipped is the other addend's gradient too. */
    if (c.addend)
        oct_add_grad(cx, c.addend, sweep->grad);
    else
        oct_scratch_end(cx, sweep->grad);
}
