/* The straight-through backward of qat_conv. With g the output's gradient where nothing was clipped:
 *     dC = gamma/sigma * (g - mean(g) - x^ mean(g x^))   live batch norm
 *     dC = gamma/sigma * g                               frozen; g without batch norm
 *     dX = (dC s_w) * codes,   dW = s_x/s_w * (dC s_w) * (codes - z)
 * in up to two sweeps over the leaves. The first sums what the batch norm's own
 * gradients need, x^ coming from accumulators, which are kept from the forward on or computed again
 * (qat_conv_accumulators.c). The second turns a leaf into rows of dC s_w, the one operand of both
 * products, whose other operands are whole numbers; so nothing else is rounded where numerics are
 * bfloat16.
 */
#include "quant/module/conv/qat_conv_impl.h"

#include "core/base/cache_line.h"
#include "core/base/whole.h"
#include "core/kernel/conv.h"

#include <omp.h>
#include <string.h>

/* Parts of a thread's memory, in bytes from its start: a part of floats, the operand rows of up to so
 * many leaves, and what the products work with. */
typedef struct room_plan {
    int64_t leaves;
    size_t rows, products, bytes;
} room_plan;

/* A backward at work. */
typedef struct call {
    oct_layer l;
    const oct_qat_saved *sv;
    oct_tensor *x;
    float *grad;        /* of the output */
    bool addend;        /* which wants it clipped */
    oct_accumulators w; /* with batch norm, and so are the next two */
    oct_norm_grad norm;
    float *a, *b; /* x^ = (acc - offset) * a + b */
    /* Of the second sweep: */
    oct_conv_plan plan;
    void *tables;
    float *grad_x; /* NULL: not wanted */
    bool add_x;    /* it holds something already */
    void *weight;  /* operand of the gradient to the input */
    float *factor; /* s_x / s_w */
    float *bias;   /* its gradient, a row for each leaf; or NULL */
    room_plan room;
    char *rooms; /* one for each thread */
} call;

/* x^ from accumulators of 16-bit inputs. */
OCT_CLONES
static void normalise(int64_t rows, int64_t n, const int64_t *offset, const float *a,
                      const float *b, const int64_t *acc, float *restrict hat)
{
    for (int64_t i = 0; i < rows; i++, acc += n, hat += n)
        for (int64_t o = 0; o < n; o++)
            hat[o] = (float)(acc[o] - offset[o]) * a[o] + b[o];
}

/* x^ of rows of a block of accumulators from `first` on; part: where it may be made. */
static oct_normalized hat_of(const call *c, const void *acc, int64_t first, int64_t rows,
                             float *part)
{
    const int64_t n = c->sv->shape.out_c;
    if (c->x->dtype == OCT_U16) {
        normalise(rows, n, c->sv->ch.offset, c->a, c->b, (const int64_t *)acc + first * n, part);
        return (oct_normalized){.made = part};
    }
    return (oct_normalized){.acc = (const int32_t *)acc + first * n,
                            .offset = c->sv->ch.offset32,
                            .a = c->a,
                            .b = c->b};
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

/* What cannot be clipped part by part is by the first sweep that there is. */
static leaf leaf_of(const oct_context *cx, const call *c, int64_t i, bool first)
{
    const oct_qat_saved *sv = c->sv;
    const int64_t n = oct_conv_out_numel(&sv->shape);
    leaf f = {.c = c, .i = i, .grad = c->grad + oct_leaf_begin(&cx->leaves, i) * n};
    if (!sv->mask) return f;
    const uint8_t *mask = sv->mask + i * sv->mask_stride;
    if (oct_clips_in_parts(c->l.fq))
        f.mask = mask;
    else if (first)
        oct_clip_leaf(c->l.fq, mask, oct_leaf_size(&cx->leaves, i) * n, f.grad);
    return f;
}

/* Rows of a block that begins at `position`, from the block's row `row` on. */
static oct_norm_rows part_of(const leaf *f, int64_t position, int64_t row, int64_t rows,
                             const void *acc)
{
    const int64_t at = (position + row) * f->c->sv->shape.out_c;
    return (oct_norm_rows){.rows = rows,
                           .hat = hat_of(f->c, acc, row, rows, f->part),
                           .mask = f->mask,
                           .first = at,
                           .grad = f->grad + at};
}

/* First sweep. */
static void sum_block(void *args, int64_t position, int64_t positions, void *acc)
{
    const leaf *f = args;
    const int64_t most = oct_part_rows(f->c->sv->shape.out_c);
    for (int64_t row = 0, rows; row < positions; row += rows) {
        rows = oct_min_i64(most, positions - row);
        const oct_norm_rows part = part_of(f, position, row, rows, acc);
        oct_norm_grad_sum(&f->c->norm, f->i, &part);
    }
}

/* A part of dC becomes operand rows. */
static void take_part(const leaf *f, int64_t position, int64_t rows, const float *grad)
{
    const call *c = f->c;
    const oct_conv_shape *s = &c->sv->shape;
    if (c->bias) oct_bias_backward(rows, s->out_c, grad, c->bias + f->i * s->out_c);
    oct_conv_grad_rows(&c->plan, rows, grad, c->sv->ch.scale,
                       f->rows + (size_t)position * c->plan.grad_row_bytes);
}

/* Second sweep, of live batch norm. */
static void turn_block(void *args, int64_t position, int64_t positions, void *acc)
{
    const leaf *f = args;
    const call *c = f->c;
    const int64_t most = oct_part_rows(c->sv->shape.out_c);
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

/* The same where no accumulators are needed. */
static void turn_plain(const leaf *f, int64_t positions)
{
    const call *c = f->c;
    const int64_t n = c->sv->shape.out_c;
    for (int64_t row = 0, rows; row < positions; row += rows) {
        float *grad = f->grad + row * n;
        rows = oct_min_i64(oct_part_rows(n), positions - row);
        if (f->mask) oct_clip_part(f->mask, row * n, rows * n, grad);
        if (c->l.bn) oct_norm_grad_frozen(&c->norm, rows, grad, f->part);
        take_part(f, row, rows, c->l.bn ? f->part : grad);
    }
}

static char *room_of_thread(const call *c)
{
    return c->rooms + (size_t)omp_get_thread_num() * c->room.bytes;
}

static void sum_leaf(const oct_context *cx, const call *c, int64_t i)
{
    leaf f = leaf_of(cx, c, i, true);
    f.part = (float *)(void *)room_of_thread(c);
    oct_accumulators_compute(cx, &c->w, i, sum_block, &f);
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

/* Operand rows of leaf i, from `rows` on, and the gradient to its input. */
static void turn_leaf(const oct_context *cx, const call *c, int64_t i, char *room, char *rows)
{
    const oct_conv_shape *s = &c->sv->shape;
    const int64_t samples = oct_leaf_size(&cx->leaves, i);
    leaf f = leaf_of(cx, c, i, !c->l.bn);
    f.part = (float *)(void *)room;
    f.rows = rows;
    if (c->l.bn && c->sv->live)
        oct_accumulators_revisit(cx, &c->w, i, turn_block, &f);
    else
        turn_plain(&f, samples * s->out_h * s->out_w);
    if (c->grad_x)
        oct_conv_backward_data(
            &c->plan,
            &(oct_conv_pass){.samples = samples,
                             .x = rows,
                             .packed = c->weight,
                             .y = c->grad_x + oct_leaf_begin(&cx->leaves, i) * oct_conv_in_numel(s),
                             .add = c->add_x},
            room + c->room.products);
}

static void multiply_group(const oct_context *cx, const call *c, const oct_leaf_group *group)
{
    const oct_conv_shape *s = &c->sv->shape;
    const oct_leaves *leaves = &cx->leaves;
    const int64_t begin = oct_leaf_begin(leaves, group->first);
    const size_t sample = (size_t)(s->out_h * s->out_w) * c->plan.grad_row_bytes;
    char *room = room_of_thread(c), *rows = room + c->room.rows;
    for (int64_t i = group->first; i < group->end; i++)
        turn_leaf(cx, c, i, room, rows + (size_t)(oct_leaf_begin(leaves, i) - begin) * sample);
    const oct_conv_weight_pass pass = {.samples =
                                           oct_leaf_samples(leaves, group->first, group->end),
                                       .grad = rows,
                                       .x = input_of(c, begin * oct_conv_in_numel(s)),
                                       .factor = c->factor,
                                       .sums = group->row,
                                       .add = group->add};
    oct_conv_backward_weight(&c->plan, &pass, room + c->room.products);
}

static void turn(const oct_leaf_layout *turn, const float *row, float *value)
{
    oct_conv_weight_transpose(turn->groups, turn->depth, turn->outs, row, value);
}

oct_leaf_layout oct_qat_conv_turn(const oct_conv_shape *s)
{
    return (oct_leaf_layout){.turn = turn,
                             .groups = s->groups,
                             .depth = oct_conv_depth(s),
                             .outs = s->out_c / s->groups};
}

static void multiply(oct_context *cx, call *c)
{
    oct_leaf_stream stream;
    c->bias = c->l.bias ? oct_leaf_grads_begin(cx, c->l.bias) : NULL;
    oct_leaf_stream_begin(cx, &stream, c->l.weight, c->room.leaves, &c->sv->turn);
    for (int64_t first = 0, end; oct_leaf_stream_next(cx, &stream, &first, &end);) {
#pragma omp parallel for schedule(static)
        for (int64_t i = first; i < end; i++) {
            const oct_leaf_group group = oct_leaf_stream_group(cx, &stream, i);
            multiply_group(cx, c, &group);
        }
    }
    oct_leaf_stream_end(cx, &stream);
    if (c->l.bias) oct_leaf_grads_end(cx, c->l.bias);
}

static bool make_plan(oct_context *cx, call *c)
{
    const unsigned data = c->x->needs_grad ? OCT_CONV_BACKWARD_DATA : 0;
    const oct_conv_config config = {.shape = c->sv->shape,
                                    .kernel = oct_float_kernel_here(),
                                    .numerics = cx->numerics,
                                    .input = c->x->dtype,
                                    .leaf = cx->leaves.leaf,
                                    .max_leaves = oct_leaf_stream_leaves(cx, OCT_CONV_MAX_LEAVES),
                                    .products = OCT_CONV_BACKWARD_WEIGHT | data};
    oct_conv_plan_init(&c->plan, &config);
    c->tables = oct_scratch(cx, c->plan.table_bytes);
    if (c->tables) oct_conv_plan_tables(&c->plan, c->tables);
    return c->tables;
}

static bool begin_rooms(oct_context *cx, call *c)
{
    const oct_conv_shape *s = &c->sv->shape;
    const oct_conv_plan *p = &c->plan;
    const size_t data = p->data.scratch_bytes, weight = p->weight.scratch_bytes;
    const int64_t positions = p->weight.leaves * cx->leaves.leaf * s->out_h * s->out_w;
    c->room.leaves = p->weight.leaves;
    c->room.rows = oct_cache_aligned((size_t)oct_part_floats(s->out_c) * sizeof(float));
    c->room.products = c->room.rows + oct_cache_aligned((size_t)positions * p->grad_row_bytes);
    c->room.bytes = c->room.products + oct_cache_aligned(data > weight ? data : weight);
    c->rooms = oct_scratch(cx, c->room.bytes * (size_t)omp_get_max_threads());
    return c->rooms;
}

/* Before anything is clipped: what a learned scale of the output gets, in the first pass over the accumulators. */
static void learn(oct_context *cx, call *c, const oct_qat_conv *m, const oct_node *node)
{
    const int64_t each = oct_conv_out_numel(&c->sv->shape);
    const int64_t bytes = oct_accumulators_values_bytes(c->sv->shape.out_c);
    const oct_channels *ch = &c->sv->ch;
    const oct_qparams q = node->output->q;
    const oct_epilogue f =
        oct_epilogue_of(&c->l, m->activation, c->x->q, &q, c->addend ? node->input[1] : NULL, ch);
    const bool *dead = memchr(ch->dead, true, (size_t)c->sv->shape.out_c) ? ch->dead : NULL;
    char *scratch = oct_scratch(cx, (size_t)(bytes * omp_get_max_threads()));
    float *rows = scratch ? oct_leaf_grads_begin(cx, c->l.fq->learned) : NULL;
    if (rows) {
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < cx->leaves.local; i++) {
            oct_scale_grad own = {.sum = {.fq = c->l.fq, .q = q},
                                  .grad = c->grad + oct_leaf_begin(&cx->leaves, i) * each};
            oct_accumulators_values(cx, &c->w, oct_accumulators_compute, &f, dead, i,
                                    oct_scale_grad_add, &own,
                                    scratch + omp_get_thread_num() * bytes);
            rows[i] += oct_slope_sum_end(&own.sum, each);
        }
        oct_leaf_grads_end(cx, c->l.fq->learned);
        if (c->w.held) c->w.made = true;
    }
    oct_scratch_end(cx, scratch);
}

/* First sweep, and the sums over all ranks. */
static void norm_backward(oct_context *cx, call *c)
{
    const oct_qat_saved *sv = c->sv;
    const oct_channels *ch = &sv->ch;
    for (int64_t o = 0; o < sv->shape.out_c; o++) {
        const float bias = c->l.bias ? oct_f32(&c->l.bias->value)[o] : 0.0f;
        c->a[o] = c->x->q.scale * ch->scale[o] * ch->inv_std[o];
        c->b[o] = (bias - ch->mean[o]) * ch->inv_std[o];
    }
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++)
        sum_leaf(cx, c, i);
    oct_norm_grad_reduce(cx, c->l.bn, ch, sv->live, sv->shape.out_h * sv->shape.out_w, &c->norm);
}

/* Second sweep. */
static void products_backward(oct_context *cx, call *c)
{
    const oct_qat_saved *sv = c->sv;
    const oct_conv_shape *s = &sv->shape;
    for (int64_t o = 0; o < s->out_c; o++)
        c->factor[o] = c->x->q.scale / sv->ch.scale[o];
    if (c->x->needs_grad) {
        c->weight = oct_scratch(cx, c->plan.data.packed_bytes);
        if (!c->weight) return;
        oct_conv_backward_data_pack(&c->plan, NULL, sv->codes, c->weight);
        c->grad_x = oct_grad_buffer(cx, c->x, &c->add_x);
        if (!c->grad_x) return;
    }
    multiply(cx, c);
}

void oct_qat_conv_backward(oct_context *cx, oct_node *node)
{
    const oct_qat_conv *m = (const oct_qat_conv *)node->module;
    const oct_qat_saved *sv = node->saved;
    const int64_t n = sv->shape.out_c;
    call c = {.l = oct_layer_of(m),
              .sv = sv,
              .x = node->input[0],
              .grad = oct_take_grad(node->output),
              .addend = node->num_inputs > 1};
    c.factor = oct_scratch(cx, (size_t)n * 3 * sizeof *c.factor);
    if (c.factor && make_plan(cx, &c) && begin_rooms(cx, &c)) {
        c.a = c.factor + n;
        c.b = c.a + n;
        const bool learns = oct_fake_quant_learns(c.l.fq);
        if ((c.l.bn || learns) && oct_accumulators_resume(cx, m, sv, c.x, &c.w)) {
            if (learns) learn(cx, &c, m, node);
            if (c.l.bn && oct_norm_grad_begin(cx, n, &c.norm)) norm_backward(cx, &c);
        }
        if (cx->status == OCT_OK) products_backward(cx, &c);
    }
    oct_scratch_end(cx, c.weight);
    oct_accumulators_end(cx, &c.w);
    oct_norm_grad_end(cx, &c.norm);
    oct_scratch_end(cx, c.rooms);
    oct_scratch_end(cx, c.tables);
    oct_scratch_end(cx, c.factor);
    /* The derivative of a sum is 1: what was clipped is the other addend's gradient too. */
    if (c.addend)
        oct_give_grad(cx, node->input[1], c.grad);
    else
        oct_scratch_end(cx, c.grad);
}
