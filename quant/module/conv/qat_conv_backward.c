/* The straight-through backward of a QAT convolution. With g the output's gradient where nothing was clipped:
 *     dC = gamma/sigma * (g - mean(g) - x^ mean(g x^))   live batch norm
 *     dC = gamma/sigma * g                               frozen; g without batch norm
 *     dX = (dC s_w) * codes,   dW = s_x/s_w * (dC s_w) * (codes - z)
 * in up to two sweeps over the leaves. The first sums what the batch norm's own gradients need, x^ coming
 * from accumulators, which are kept from the forward on or computed again. The second turns a leaf into
 * rows of dC s_w, the one operand of both products, whose other operands are whole numbers; so nothing else
 * is rounded where numerics are bfloat16. Of a batch norm on its own, dX is dC.
 */
#include "core/autograd/leaf_grads.h"
#include "quant/module/conv/conv_impl.h"

#include "core/base/mem.h"
#include "core/base/int_math.h"
#include "core/kernel/conv.h"
#include "quant/module/mask.h"

#include <omp.h>
#include <string.h>

/* Parts of a thread's scratch, in bytes from its start: a part of floats, the operand rows of a group of
 * leaves, and the scratch of the products. */
typedef struct scratch_plan {
    size_t rows, products, bytes;
} scratch_plan;

/* A backward at work. */
typedef struct call {
    const oct_layer *l;
    const oct_qat_saved *sv;
    oct_tensor *x, *addend; /* addend: or NULL */
    const oct_tensor *y;
    float *grad;          /* of the output */
    oct_accumulators acc; /* with batch norm, and so are the next two */
    oct_norm_grad norm;
    float *a, *b; /* (groups, n): x^ = (acc - offset) * a + b */
    /* The second sweep uses what follows. */
    oct_conv_plan plan;
    void *tables;
    float *grad_x; /* NULL: not wanted */
    bool add_x;    /* it holds something already */
    void *weight;  /* operand of the gradient to the input */
    float *factor; /* s_x / s_w */
    float *bias;   /* its gradient, a row for each leaf; or NULL */
    scratch_plan parts;
    char *scratch; /* of each thread */
} call;

static char *scratch_here(const call *c)
{
    return c->scratch + (size_t)omp_get_thread_num() * c->parts.bytes;
}

/* Computes x^ from accumulators of 16-bit inputs. */
OCT_CLONES
static void normalize(int64_t rows, int64_t n, const int64_t *offset, const float *a,
                      const float *b, const int64_t *acc, float *restrict normalized)
{
    for (int64_t i = 0; i < rows; i++, acc += n, normalized += n)
        for (int64_t o = 0; o < n; o++)
            normalized[o] = (float)(acc[o] - offset[o]) * a[o] + b[o];
}

/* A leaf in one of the sweeps, or a tile of it. */
typedef struct leaf {
    const call *c;
    int64_t i, position; /* position: where the tile begins in the leaf */
    float *grad;
    const uint8_t *mask; /* of what is clipped part by part, or NULL */
    float *part;
    int64_t channel, end; /* first sweep: those that are summed */
    char *rows;           /* second sweep */
    oct_norm_grad norm;   /* with batch norm: as the leaf's group has it, and so are the next two */
    const float *a, *b;
} leaf;

/* Gives x^ of rows of a block of accumulators from `first` on. */
static oct_normalized normalized_of(const leaf *f, const void *acc, int64_t first, int64_t rows)
{
    const oct_qat_saved *sv = f->c->sv;
    const oct_channels *ch = &sv->ch;
    const int64_t n = sv->plan.shape.out_c;
    if (sv->plan.wide) {
        normalize(rows, n, ch->offset, f->a, f->b, (const int64_t *)acc + first * n, f->part);
        return (oct_normalized){.values = f->part};
    }
    return (oct_normalized){
        .acc = (const int32_t *)acc + first * n, .offset = ch->offset32, .a = f->a, .b = f->b};
}

/* Fake-quants with a backward of their own clip a whole leaf at a time. */
static bool clips_in_parts(const oct_fake_quant *fq)
{
    return !fq || !fq->qconfig.fake_quant->backward;
}

/* Begins a sweep over a leaf. */
static leaf leaf_of(const oct_context *cx, const call *c, int64_t i)
{
    const oct_qat_saved *sv = c->sv;
    const int64_t n = oct_conv_out_numel(&sv->plan.shape);
    leaf f = {.c = c,
              .i = i,
              .grad = c->grad + oct_leaf_begin(&cx->leaves, i) * n,
              .part = (float *)(void *)scratch_here(c)};
    if (c->l->bn) {
        const int64_t at = oct_norm_group_at(&sv->groups, i) * sv->plan.shape.out_c;
        f.norm = oct_norm_grad_of_leaf(&c->norm, i);
        f.a = c->a + at;
        f.b = c->b + at;
    }
    if (sv->mask && clips_in_parts(c->l->fq)) f.mask = sv->mask + i * sv->mask_stride;
    return f;
}

/* What cannot be clipped part by part is clipped before the sweeps. */
static void clip_leaves(const oct_context *cx, const call *c)
{
    const oct_qat_saved *sv = c->sv;
    const int64_t n = oct_conv_out_numel(&sv->plan.shape);
    if (!sv->mask || clips_in_parts(c->l->fq)) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++)
        oct_fake_quant_backward(c->l->fq, oct_leaf_size(&cx->leaves, i) * n,
                                sv->mask + i * sv->mask_stride,
                                c->grad + oct_leaf_begin(&cx->leaves, i) * n);
}

/* Gives rows of a block that begins at `position`, from the block's row `row` on. */
static oct_norm_rows part_of(const leaf *f, int64_t position, int64_t row, int64_t rows,
                             const void *acc)
{
    const int64_t at = (position + row) * f->c->sv->plan.shape.out_c;
    return (oct_norm_rows){.rows = rows,
                           .normalized = normalized_of(f, acc, row, rows),
                           .mask = f->mask,
                           .first = at,
                           .grad = f->grad + at,
                           .channel = f->channel,
                           .end = f->end};
}

/* The first sweep sums a block of a leaf. */
static void sum_block(void *args, int64_t position, int64_t positions, void *acc)
{
    const leaf *f = args;
    const int64_t most = oct_part_rows(f->c->sv->plan.shape.out_c);
    for (int64_t row = 0, rows; row < positions; row += rows) {
        rows = oct_min_i64(most, positions - row);
        const oct_norm_rows part = part_of(f, position, row, rows, acc);
        oct_norm_grad_sum(&f->norm, f->i, &part);
    }
}

/* Turns a part of dC into operand rows. */
static void take_part(const leaf *f, int64_t position, int64_t rows, const float *grad)
{
    const call *c = f->c;
    const oct_conv_shape *s = &c->sv->plan.shape;
    if (c->bias) oct_bias_backward(rows, s->out_c, s->out_c, grad, c->bias + f->i * s->out_c);
    oct_conv_grad_rows(&c->plan, rows, grad, c->sv->ch.scale,
                       f->rows + (size_t)position * c->plan.grad_row_bytes);
}

/* The second sweep makes operand rows of a block of a tile, with live batch norm. */
static void live_block(void *args, int64_t at, int64_t positions, void *acc)
{
    const leaf *f = args;
    const int64_t position = f->position + at;
    const call *c = f->c;
    const oct_conv_shape *s = &c->sv->plan.shape;
    const int64_t most = oct_part_rows(s->out_c);
    const bool direct = !c->bias && c->plan.grad_rows_are_floats;
    for (int64_t row = 0, rows; row < positions; row += rows) {
        rows = oct_min_i64(most, positions - row);
        const oct_norm_rows part = part_of(f, position, row, rows, acc);
        if (direct) {
            void *to = f->rows + (size_t)(position + row) * c->plan.grad_row_bytes;
            oct_norm_grad_live(&f->norm, &part, c->sv->ch.scale, c->addend, to);
            continue;
        }
        oct_norm_grad_live(&f->norm, &part, NULL, c->addend, f->part);
        take_part(f, position + row, rows, f->part);
    }
}

/* For a batch norm on its own it makes dC in place. */
static void live_block_alone(void *args, int64_t at, int64_t positions, void *acc)
{
    const leaf *f = args;
    const int64_t position = f->position + at;
    const int64_t most = oct_part_rows(f->c->sv->plan.shape.out_c);
    for (int64_t row = 0, rows; row < positions; row += rows) {
        rows = oct_min_i64(most, positions - row);
        const oct_norm_rows part = part_of(f, position, row, rows, acc);
        oct_norm_grad_live(&f->norm, &part, NULL, false, part.grad);
    }
}

/* Clears the gradient of n elements from element `first` of the leaf on where the mask is 0. */
static void clip_part(const uint8_t *mask, int64_t first, int64_t n, float *grad)
{
    for (; n > 0 && first % 8 != 0; first++, grad++, n--)
        if (!(mask[first / 8] >> (first % 8) & 1)) *grad = 0.0f;
    oct_mask_apply(mask + first / 8, n, grad);
}

/* Computes dC of a tile: as operand rows (those of its leaf begin at `rows`) or in place. */
static void second_sweep(const oct_context *cx, const call *c, const oct_tile *tile, char *rows)
{
    const oct_conv_shape *s = &c->sv->plan.shape;
    const int64_t plane = s->out_h * s->out_w;
    leaf f = leaf_of(cx, c, tile->leaf);
    f.position = tile->first * plane;
    f.rows = rows;
    if (c->l->bn && c->sv->live) {
        oct_accumulators_pass(cx, &c->acc, tile, c->l->weight ? live_block : live_block_alone, &f);
        return;
    }
    /* No accumulators are needed. */
    const int64_t n = s->out_c, end = tile->end * plane;
    for (int64_t row = f.position, rows_here; row < end; row += rows_here) {
        float *grad = f.grad + row * n, *out = c->l->weight ? f.part : grad;
        rows_here = oct_min_i64(oct_part_rows(n), end - row);
        if (f.mask) clip_part(f.mask, row * n, rows_here * n, grad);
        if (c->l->bn) oct_norm_grad_frozen(&f.norm, rows_here, grad, out);
        if (c->l->weight) take_part(&f, row, rows_here, c->l->bn ? out : grad);
    }
}

/* rows: those of the tile's leaf. */
static void data_backward(const oct_context *cx, const call *c, const oct_tile *tile,
                          const char *rows)
{
    const oct_conv_shape *s = &c->sv->plan.shape;
    const int64_t begin = oct_leaf_begin(&cx->leaves, tile->leaf) + tile->first;
    const int64_t first = tile->first * s->out_h * s->out_w;
    const oct_conv_pass pass = {.samples = tile->end - tile->first,
                                .x = rows + (size_t)first * c->plan.grad_row_bytes,
                                .packed = c->weight,
                                .y = c->grad_x + begin * oct_conv_in_numel(s),
                                .add = c->add_x};
    oct_conv_backward_data(&c->plan, &pass, scratch_here(c) + c->parts.products);
}

/* Leaf groups whose operand rows are there together: up to one for each thread. */
typedef struct group_round {
    const call *c;
    const oct_leaf_stream *stream;
    int64_t first, groups; /* of the stream */
} group_round;

static oct_leaf_group group_of(const oct_context *cx, const group_round *r, int64_t k)
{
    return oct_leaf_stream_group(cx, r->stream, r->first + k);
}

/* Gives the operand rows of the k-th group of a round. */
static char *rows_of(const group_round *r, int64_t k)
{
    return r->c->scratch + (size_t)k * r->c->parts.bytes + r->c->parts.rows;
}

/* Gives the operand rows of a leaf of the round. */
static char *rows_of_leaf(const oct_context *cx, const group_round *r, int64_t i)
{
    const oct_conv_shape *s = &r->c->sv->plan.shape;
    const size_t sample = (size_t)(s->out_h * s->out_w) * r->c->plan.grad_row_bytes;
    int64_t k = 0;
    oct_leaf_group group = group_of(cx, r, 0);
    while (i >= group.end)
        group = group_of(cx, r, ++k);
    return rows_of(r, k) + (size_t)oct_leaf_samples(&cx->leaves, group.first, i) * sample;
}

/* Multiplies the rows of the k-th group with some channels of the input: the gradient to the weights. */
static void weight_backward(const oct_context *cx, const group_round *r, int64_t k,
                            const oct_tile *channels)
{
    const call *c = r->c;
    const oct_leaf_group group = group_of(cx, r, k);
    const int64_t begin =
        oct_leaf_begin(&cx->leaves, group.first) * oct_conv_in_numel(&c->sv->plan.shape);
    const bool wide = c->x->dtype == OCT_U16;
    const oct_conv_weight_pass pass = {.samples =
                                           oct_leaf_samples(&cx->leaves, group.first, group.end),
                                       .grad = rows_of(r, k),
                                       .x = {.zero_point = c->x->q.zero_point,
                                             .codes16 = wide ? oct_u16(c->x) + begin : NULL,
                                             .codes = wide ? NULL : oct_u8(c->x) + begin},
                                       .factor = c->factor,
                                       .sums = group.row,
                                       .add = group.add,
                                       .channel = channels->first,
                                       .channels = channels->end - channels->first};
    oct_conv_backward_weight(&c->plan, &pass, scratch_here(c) + c->parts.products);
}

/* Each thread does all for a group of its own, whose rows stay in its cache. */
static void multiply_groups(const oct_context *cx, const group_round *r)
{
    const oct_tile channels = {.end = r->c->sv->plan.shape.in_c};
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < r->groups; k++) {
        const oct_leaf_group group = group_of(cx, r, k);
        for (int64_t i = group.first; i < group.end; i++) {
            const oct_tile whole = oct_whole_leaf(cx, i);
            char *rows = rows_of_leaf(cx, r, i);
            second_sweep(cx, r->c, &whole, rows);
            if (r->c->grad_x) data_backward(cx, r->c, &whole, rows);
        }
        weight_backward(cx, r, k, &channels);
    }
}

/* There are fewer groups than threads, so threads share them: first the samples, then the channels. */
static void share_groups(oct_context *cx, const group_round *r)
{
    const int threads = omp_get_max_threads();
    const int64_t first = group_of(cx, r, 0).first, end = group_of(cx, r, r->groups - 1).end;
    const oct_cut samples = {oct_leaf_samples(&cx->leaves, first, end), cx->leaves.leaf, 1,
                             threads};
    const oct_cut channels = oct_conv_weight_cut(&r->c->plan, r->groups, threads);
    oct_cut rows = samples;
    if (r->c->bias) rows.step = rows.units; /* whose gradient is a sum over the leaf */
#pragma omp parallel for schedule(static)
    for (int t = 0; t < threads; t++) {
        for (oct_tile tile = oct_tile_begin(&rows, t); oct_tile_next(&rows, &tile);) {
            tile.leaf += first;
            second_sweep(cx, r->c, &tile, rows_of_leaf(cx, r, tile.leaf));
        }
    }
    oct_meanwhile(cx);
#pragma omp parallel for schedule(static)
    for (int t = 0; t < threads; t++) {
        for (oct_tile tile = oct_tile_begin(&samples, t);
             r->c->grad_x && oct_tile_next(&samples, &tile);) {
            tile.leaf += first;
            data_backward(cx, r->c, &tile, rows_of_leaf(cx, r, tile.leaf));
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

/* Runs the second sweep and the products, group by group of the leaves. */
static void compute_products(oct_context *cx, call *c)
{
    const oct_conv_shape *s = &c->sv->plan.shape;
    const oct_leaf_layout layout = {transpose_weight, s->groups, oct_conv_depth(s),
                                    s->out_c / s->groups};
    oct_leaf_stream stream;
    c->bias = c->l->bias ? oct_leaf_grads_begin(cx, c->l->bias) : NULL;
    oct_leaf_stream_begin(cx, &stream, c->l->weight, c->plan.weight.leaves, &layout);
    for (int64_t first = 0, end; oct_leaf_stream_next(cx, &stream, &first, &end);) {
        for (group_round r = {c, &stream, first, 0}; r.first < end; r.first += r.groups) {
            r.groups = oct_min_i64(omp_get_max_threads(), end - r.first);
            if (r.groups == omp_get_max_threads())
                multiply_groups(cx, &r);
            else
                share_groups(cx, &r);
        }
    }
    oct_leaf_stream_end(cx, &stream);
    if (c->l->bias) oct_leaf_grads_end(cx, c->l->bias);
}

/* Plans the products, and borrows what the sweeps need. */
static bool begin_scratch(oct_context *cx, call *c)
{
    const oct_conv_shape *s = &c->sv->plan.shape;
    const int64_t n = s->out_c;
    c->parts.rows = c->parts.bytes = oct_cache_aligned((size_t)oct_part_floats(n) * sizeof(float));
    if (c->l->weight) { /* the scratch of the products comes after the operand rows */
        const unsigned data = c->x->needs_grad ? OCT_CONV_BACKWARD_DATA : 0;
        const oct_conv_config config = {.shape = *s,
                                        .kernel = oct_float_kernel_here(),
                                        .numerics = cx->numerics,
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
        const size_t rows = oct_cache_aligned((size_t)positions * p->grad_row_bytes);
        const size_t most = p->data.scratch_bytes > p->weight.scratch_bytes
                                ? p->data.scratch_bytes
                                : p->weight.scratch_bytes;
        c->parts.products = c->parts.rows + rows;
        c->parts.bytes = c->parts.products + oct_cache_aligned(most);
    }
    c->scratch = oct_scratch(cx, c->parts.bytes * (size_t)omp_get_max_threads());
    const int64_t each = c->sv->groups.count * n;
    c->factor = oct_scratch(cx, (size_t)(n + 2 * each) * sizeof *c->factor);
    if (cx->status != OCT_OK) return false;
    c->a = c->factor + n;
    c->b = c->a + each;
    return true;
}

/* Runs the first sweep, and sums over all ranks. */
static void norm_backward(oct_context *cx, call *c)
{
    const oct_qat_saved *sv = c->sv;
    const oct_conv_shape *s = &sv->plan.shape;
    const oct_channels *ch = &sv->ch;
    if (!oct_norm_grad_begin(cx, s->out_c, &sv->groups, &c->norm)) return;
    for (int64_t i = 0; i < sv->groups.count * s->out_c; i++) {
        const int64_t o = i % s->out_c;
        const float bias = c->l->bias ? oct_f32(&c->l->bias->value)[o] : 0.0f;
        c->a[i] = c->x->q.scale * ch->scale[o] * ch->inv_std[i];
        c->b[i] = (bias - ch->mean[i]) * ch->inv_std[i];
    }
    /* Over some channels of a leaf at a time where its accumulators lie there. */
    const oct_cut cut = oct_accumulators_cut_channels(cx, &c->acc);
#pragma omp parallel for schedule(static)
    for (int t = 0; t < cut.threads; t++) {
        for (oct_tile tile = oct_tile_begin(&cut, t); oct_tile_next(&cut, &tile);) {
            const oct_tile whole = oct_whole_leaf(cx, tile.leaf);
            leaf f = leaf_of(cx, c, tile.leaf);
            f.channel = tile.first;
            f.end = tile.end;
            oct_accumulators_pass(cx, &c->acc, &whole, sum_block, &f);
        }
    }
    c->acc.computed = true;
    oct_norm_grad_reduce(cx, c->l->bn, ch->inv_std, sv->live, s->out_h * s->out_w, &c->norm);
}

/* Runs the second sweep, with the products. */
static void products_backward(oct_context *cx, call *c)
{
    const oct_qat_saved *sv = c->sv;
    const oct_conv_shape *s = &sv->plan.shape;
    for (int64_t o = 0; o < s->out_c; o++)
        c->factor[o] = c->x->q.scale / sv->ch.scale[o];
    if (c->x->needs_grad) {
        c->weight = oct_scratch(cx, c->plan.data.packed_bytes);
        if (!c->weight) return;
        oct_conv_backward_data_pack(&c->plan, NULL, sv->codes, c->weight);
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
            second_sweep(cx, c, &tile, NULL);
    oct_add_grad(cx, c->x, c->grad);
    c->grad = NULL;
}

void oct_qat_conv_backward(oct_context *cx, oct_node *node)
{
    const oct_qat_saved *sv = node->saved;
    call c = {.l = &sv->layer,
              .sv = sv,
              .x = node->input[0],
              .addend = node->num_inputs > 1 ? node->input[1] : NULL,
              .y = node->output,
              .grad = oct_detach_grad(node->output)};
    if (begin_scratch(cx, &c)) {
        const bool learns = oct_fake_quant_learns(c.l->fq);
        if ((c.l->bn || learns) && oct_accumulators_resume(cx, sv, c.x, &c.acc) && learns)
            oct_accumulators_scale_grad(cx, sv, &c.acc, c.addend, c.y->q, c.grad);
        if (cx->status == OCT_OK) clip_leaves(cx, &c);
        if (cx->status == OCT_OK && c.l->bn) norm_backward(cx, &c);
        if (cx->status == OCT_OK) (c.l->weight ? products_backward : input_backward)(cx, &c);
    }
    oct_accumulators_end(cx, &c.acc);
    oct_norm_grad_end(cx, &c.norm);
    oct_scratch_end(cx, c.factor);
    oct_scratch_end(cx, c.scratch);
    oct_scratch_end(cx, c.tables);
    /* The derivative of a sum is 1: what was clipped is the other addend's gradient too. */
    if (c.addend)
        oct_add_grad(cx, c.addend, c.grad);
    else
        oct_scratch_end(cx, c.grad);
}
