/* The straight-through backward of a QAT convolution. With g the output's gradient where nothing was clipped:
 *     dC = gamma/sigma * (g - mean(g) - x^ mean(g x^))   live batch norm
 *     dC = gamma/sigma * g                               frozen; g without batch norm
 *     dX = (dC s_w) * codes,   dW = s_x/s_w * (dC s_w) * (codes - z)
 * in up to two sweeps over the leaves. The first sums what the batch norm's own gradients need, x^ coming
 * from accumulators, which are kept from the forward on or computed again. The second turns a leaf into
 * rows of dC s_w, the one operand of both products, whose other operands are whole numbers; so nothing else
 * is rounded where numerics are bfloat16. Of a batch norm on its own, dX is dC.
 */
#include "core/autograd/leaf_stream.h"
#include "quant/module/conv/conv_impl.h"

#include "core/base/cache_line.h"
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
    float *a, *b; /* x^ = (acc - offset) * a + b */
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

/* Gives x^ of rows of a block of accumulators from `first` on; part: where it may be computed. */
static oct_normalized normalized_of(const call *c, const void *acc, int64_t first, int64_t rows,
                                    float *part)
{
    const oct_channels *ch = &c->sv->ch;
    const int64_t n = c->sv->plan.shape.out_c;
    if (c->sv->plan.wide) {
        normalize(rows, n, ch->offset, c->a, c->b, (const int64_t *)acc + first * n, part);
        return (oct_normalized){.values = part};
    }
    return (oct_normalized){
        .acc = (const int32_t *)acc + first * n, .offset = ch->offset32, .a = c->a, .b = c->b};
}

/* A leaf in one of the sweeps. */
typedef struct leaf {
    const call *c;
    int64_t i;
    float *grad;
    const uint8_t *mask; /* of what is clipped part by part, or NULL */
    float *part;
    char *rows; /* second sweep */
} leaf;

/* Fake-quants with a backward of their own clip a whole leaf at a time. */
static bool clips_in_parts(const oct_fake_quant *fq)
{
    return !fq || !fq->qconfig.fake_quant->backward;
}

/* Begins a sweep over a leaf. What cannot be clipped part by part is clipped by the first sweep. */
static leaf leaf_of(const oct_context *cx, const call *c, int64_t i, bool first)
{
    const oct_qat_saved *sv = c->sv;
    const int64_t n = oct_conv_out_numel(&sv->plan.shape);
    leaf f = {.c = c,
              .i = i,
              .grad = c->grad + oct_leaf_begin(&cx->leaves, i) * n,
              .part = (float *)(void *)scratch_here(c)};
    if (!sv->mask) return f;
    const uint8_t *mask = sv->mask + i * sv->mask_stride;
    if (clips_in_parts(c->l->fq))
        f.mask = mask;
    else if (first)
        oct_fake_quant_backward(c->l->fq, oct_leaf_size(&cx->leaves, i) * n, mask, f.grad);
    return f;
}

/* Gives rows of a block that begins at `position`, from the block's row `row` on. */
static oct_norm_rows part_of(const leaf *f, int64_t position, int64_t row, int64_t rows,
                             const void *acc)
{
    const int64_t at = (position + row) * f->c->sv->plan.shape.out_c;
    return (oct_norm_rows){.rows = rows,
                           .normalized = normalized_of(f->c, acc, row, rows, f->part),
                           .mask = f->mask,
                           .first = at,
                           .grad = f->grad + at};
}

/* The first sweep sums a block of a leaf. */
static void sum_block(void *args, int64_t position, int64_t positions, void *acc)
{
    const leaf *f = args;
    const int64_t most = oct_part_rows(f->c->sv->plan.shape.out_c);
    for (int64_t row = 0, rows; row < positions; row += rows) {
        rows = oct_min_i64(most, positions - row);
        const oct_norm_rows part = part_of(f, position, row, rows, acc);
        oct_norm_grad_sum(&f->c->norm, f->i, &part);
    }
}

/* Turns a part of dC into operand rows. */
static void take_part(const leaf *f, int64_t position, int64_t rows, const float *grad)
{
    const call *c = f->c;
    const oct_conv_shape *s = &c->sv->plan.shape;
    if (c->bias) oct_bias_backward(rows, s->out_c, grad, c->bias + f->i * s->out_c);
    oct_conv_grad_rows(&c->plan, rows, grad, c->sv->ch.scale,
                       f->rows + (size_t)position * c->plan.grad_row_bytes);
}

/* The second sweep makes operand rows of a block, with live batch norm. */
static void live_block(void *args, int64_t position, int64_t positions, void *acc)
{
    const leaf *f = args;
    const call *c = f->c;
    const oct_conv_shape *s = &c->sv->plan.shape;
    const int64_t most = oct_part_rows(s->out_c);
    const bool direct = !c->bias && c->plan.grad_rows_are_floats;
    for (int64_t row = 0, rows; row < positions; row += rows) {
        rows = oct_min_i64(most, positions - row);
        const oct_norm_rows part = part_of(f, position, row, rows, acc);
        if (direct) {
            void *to = f->rows + (size_t)(position + row) * c->plan.grad_row_bytes;
            oct_norm_grad_live(&c->norm, &part, c->sv->ch.scale, c->addend, to);
            continue;
        }
        oct_norm_grad_live(&c->norm, &part, NULL, c->addend, f->part);
        take_part(f, position + row, rows, f->part);
    }
}

/* For a batch norm on its own it makes dC in place. */
static void live_block_alone(void *args, int64_t position, int64_t positions, void *acc)
{
    const leaf *f = args;
    const int64_t most = oct_part_rows(f->c->sv->plan.shape.out_c);
    for (int64_t row = 0, rows; row < positions; row += rows) {
        rows = oct_min_i64(most, positions - row);
        const oct_norm_rows part = part_of(f, position, row, rows, acc);
        oct_norm_grad_live(&f->c->norm, &part, NULL, false, part.grad);
    }
}

/* Clears the gradient of n elements from element `first` of the leaf on where the mask is 0. */
static void clip_part(const uint8_t *mask, int64_t first, int64_t n, float *grad)
{
    for (; n > 0 && first % 8 != 0; first++, grad++, n--)
        if (!(mask[first / 8] >> (first % 8) & 1)) *grad = 0.0f;
    oct_mask_apply(mask + first / 8, n, grad);
}

/* The second sweep over a leaf where no accumulators are needed. */
static void plain_leaf(const leaf *f, int64_t positions)
{
    const call *c = f->c;
    const int64_t n = c->sv->plan.shape.out_c;
    for (int64_t row = 0, rows; row < positions; row += rows) {
        float *grad = f->grad + row * n, *out = c->l->weight ? f->part : grad;
        rows = oct_min_i64(oct_part_rows(n), positions - row);
        if (f->mask) clip_part(f->mask, row * n, rows * n, grad);
        if (c->l->bn) oct_norm_grad_frozen(&c->norm, rows, grad, out);
        if (c->l->weight) take_part(f, row, rows, c->l->bn ? out : grad);
    }
}

static void sum_leaf(const oct_context *cx, const call *c, int64_t i)
{
    leaf f = leaf_of(cx, c, i, true);
    oct_accumulators_pass(cx, &c->acc, i, sum_block, &f);
}

/* Computes dC of leaf i: as operand rows from `rows` on, or in place. */
static void second_sweep(const oct_context *cx, const call *c, int64_t i, char *rows)
{
    const oct_conv_shape *s = &c->sv->plan.shape;
    leaf f = leaf_of(cx, c, i, !c->l->bn);
    f.rows = rows;
    if (c->l->bn && c->sv->live)
        oct_accumulators_pass(cx, &c->acc, i, c->l->weight ? live_block : live_block_alone, &f);
    else
        plain_leaf(&f, oct_leaf_size(&cx->leaves, i) * s->out_h * s->out_w);
}

static void data_backward(const oct_context *cx, const call *c, int64_t i, const char *rows)
{
    const int64_t begin = oct_leaf_begin(&cx->leaves, i) * oct_conv_in_numel(&c->sv->plan.shape);
    const oct_conv_pass pass = {.samples = oct_leaf_size(&cx->leaves, i),
                                .x = rows,
                                .packed = c->weight,
                                .y = c->grad_x + begin,
                                .add = c->add_x};
    oct_conv_backward_data(&c->plan, &pass, scratch_here(c) + c->parts.products);
}

static oct_conv_input input_of(const call *c, int64_t begin)
{
    oct_conv_input x = {.zero_point = c->x->q.zero_point};
    if (c->x->dtype == OCT_U16)
        x.codes16 = oct_u16(c->x) + begin;
    else
        x.codes = oct_u8(c->x) + begin;
    return x;
}

static void multiply_group(const oct_context *cx, const call *c, const oct_leaf_group *group)
{
    const oct_conv_shape *s = &c->sv->plan.shape;
    const oct_leaves *leaves = &cx->leaves;
    const int64_t begin = oct_leaf_begin(leaves, group->first);
    const size_t sample = (size_t)(s->out_h * s->out_w) * c->plan.grad_row_bytes;
    char *own = scratch_here(c), *rows = own + c->parts.rows;
    for (int64_t i = group->first; i < group->end; i++) {
        char *leaf_rows = rows + (size_t)(oct_leaf_begin(leaves, i) - begin) * sample;
        second_sweep(cx, c, i, leaf_rows);
        if (c->grad_x) data_backward(cx, c, i, leaf_rows);
    }
    const oct_conv_weight_pass pass = {.samples =
                                           oct_leaf_samples(leaves, group->first, group->end),
                                       .grad = rows,
                                       .x = input_of(c, begin * oct_conv_in_numel(s)),
                                       .factor = c->factor,
                                       .sums = group->row,
                                       .add = group->add};
    oct_conv_backward_weight(&c->plan, &pass, own + c->parts.products);
}

static void transpose_weight(const oct_leaf_layout *layout, const float *row, float *value)
{
    oct_conv_weight_transpose(layout->groups, layout->depth, layout->outs, row, value);
}

static void multiply(oct_context *cx, call *c)
{
    const oct_conv_shape *s = &c->sv->plan.shape;
    const oct_leaf_layout layout = {transpose_weight, s->groups, oct_conv_depth(s),
                                    s->out_c / s->groups};
    oct_leaf_stream stream;
    c->bias = c->l->bias ? oct_leaf_grads_begin(cx, c->l->bias) : NULL;
    oct_leaf_stream_begin(cx, &stream, c->l->weight, c->plan.weight.leaves, &layout);
    for (int64_t first = 0, end; oct_leaf_stream_next(cx, &stream, &first, &end);) {
#pragma omp parallel for schedule(static)
        for (int64_t i = first; i < end; i++) {
            const oct_leaf_group group = oct_leaf_stream_group(cx, &stream, i);
            multiply_group(cx, c, &group);
        }
    }
    oct_leaf_stream_end(cx, &stream);
    if (c->l->bias) oct_leaf_grads_end(cx, c->l->bias);
}

/* Plans the products, whose scratch comes behind the operand rows. */
static void plan_products(oct_context *cx, call *c)
{
    const oct_conv_shape *s = &c->sv->plan.shape;
    const unsigned data = c->x->needs_grad ? OCT_CONV_BACKWARD_DATA : 0;
    const oct_conv_config config = {.shape = *s,
                                    .kernel = oct_float_kernel_here(),
                                    .numerics = cx->numerics,
                                    .input = c->x->dtype,
                                    .leaf = cx->leaves.leaf,
                                    .max_leaves = oct_leaf_stream_leaves(cx, OCT_CONV_MAX_LEAVES),
                                    .products = OCT_CONV_BACKWARD_WEIGHT | data};
    oct_conv_plan *p = &c->plan;
    oct_conv_plan_init(p, &config);
    c->tables = oct_scratch(cx, p->table_bytes);
    if (c->tables) oct_conv_plan_tables(p, c->tables);
    const int64_t positions = p->weight.leaves * cx->leaves.leaf * s->out_h * s->out_w;
    const size_t most = p->data.scratch_bytes > p->weight.scratch_bytes ? p->data.scratch_bytes
                                                                        : p->weight.scratch_bytes;
    c->parts.products = c->parts.rows + oct_cache_aligned((size_t)positions * p->grad_row_bytes);
    c->parts.bytes = c->parts.products + oct_cache_aligned(most);
}

static bool begin_scratch(oct_context *cx, call *c)
{
    const int64_t n = c->sv->plan.shape.out_c;
    c->parts.rows = c->parts.bytes = oct_cache_aligned((size_t)oct_part_floats(n) * sizeof(float));
    if (c->l->weight) plan_products(cx, c);
    c->scratch = oct_scratch(cx, c->parts.bytes * (size_t)omp_get_max_threads());
    c->factor = oct_scratch(cx, (size_t)n * 3 * sizeof *c->factor);
    if (cx->status != OCT_OK) return false;
    c->a = c->factor + n;
    c->b = c->a + n;
    return true;
}

/* What a leaf adds to the gradient of a learned scale. */
typedef struct scale_grad {
    oct_slope_sum sum;
    const float *grad; /* of the leaf, not clipped yet */
} scale_grad;

static void add_scale_grad(void *args, int64_t first, int64_t n, const float *v)
{
    scale_grad *s = args;
    oct_slope_sum_add(&s->sum, first, n, v, s->grad + first);
}

/* Adds the gradient of a learned scale of the output, before anything is clipped: in the first pass over
 * the accumulators. */
static void scale_backward(oct_context *cx, call *c)
{
    const oct_conv_shape *s = &c->sv->plan.shape;
    const int64_t each = oct_conv_out_numel(s), bytes = oct_value_pass_bytes(s->out_c);
    const oct_channels *ch = &c->sv->ch;
    const oct_qparams q = c->y->q;
    const oct_epilogue f = oct_epilogue_of(c->l, c->x->q, &q, c->addend, ch);
    const oct_value_pass pass = {.epilogue = &f,
                                 .dead = memchr(ch->dead, true, (size_t)s->out_c) ? ch->dead : NULL,
                                 .scratch =
                                     oct_scratch(cx, (size_t)(bytes * omp_get_max_threads()))};
    float *rows = pass.scratch ? oct_leaf_grads_begin(cx, c->l->fq->learned) : NULL;
    if (rows) {
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < cx->leaves.local; i++) {
            scale_grad own = {.sum = {.fq = c->l->fq, .q = q},
                              .grad = c->grad + oct_leaf_begin(&cx->leaves, i) * each};
            oct_accumulators_values(cx, &c->acc, &pass, i, add_scale_grad, &own);
            rows[i] += oct_slope_sum_end(&own.sum, each);
        }
        oct_leaf_grads_end(cx, c->l->fq->learned);
        c->acc.computed = true;
    }
    oct_scratch_end(cx, pass.scratch);
}

/* Runs the first sweep, and sums over all ranks. */
static void norm_backward(oct_context *cx, call *c)
{
    const oct_qat_saved *sv = c->sv;
    const oct_conv_shape *s = &sv->plan.shape;
    const oct_channels *ch = &sv->ch;
    if (!oct_norm_grad_begin(cx, s->out_c, &c->norm)) return;
    for (int64_t o = 0; o < s->out_c; o++) {
        const float bias = c->l->bias ? oct_f32(&c->l->bias->value)[o] : 0.0f;
        c->a[o] = c->x->q.scale * ch->scale[o] * ch->inv_std[o];
        c->b[o] = (bias - ch->mean[o]) * ch->inv_std[o];
    }
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++)
        sum_leaf(cx, c, i);
    c->acc.computed = true;
    oct_norm_grad_reduce(cx, c->l->bn, ch->inv_std, sv->live,
                         cx->leaves.samples * s->out_h * s->out_w, &c->norm);
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
    if (cx->status == OCT_OK) multiply(cx, c);
    oct_scratch_end(cx, c->weight);
}

/* Runs the second sweep of a batch norm on its own, whose gradient becomes that of the input. */
static void input_backward(oct_context *cx, call *c)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++)
        second_sweep(cx, c, i, NULL);
    oct_give_grad(cx, c->x, c->grad);
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
              .grad = oct_take_grad(node->output)};
    if (begin_scratch(cx, &c)) {
        const bool learns = oct_fake_quant_learns(c.l->fq);
        if ((c.l->bn || learns) && oct_accumulators_resume(cx, sv, c.x, &c.acc)) {
            if (learns) scale_backward(cx, &c);
            if (c.l->bn) norm_backward(cx, &c);
        }
        if (cx->status == OCT_OK) (c.l->weight ? products_backward : input_backward)(cx, &c);
    }
    oct_accumulators_end(cx, &c.acc);
    oct_norm_grad_end(cx, &c.norm);
    oct_scratch_end(cx, c.factor);
    oct_scratch_end(cx, c.scratch);
    oct_scratch_end(cx, c.tables);
    /* The derivative of a sum is 1: what was clipped is the other addend's gradient too. */
    if (c.addend)
        oct_give_grad(cx, c.addend, c.grad);
    else
        oct_scratch_end(cx, c.grad);
}
