/* The gradient of weights as a product over positions: rows are taps and input channels, columns are
 * output channels. Its operands are described in conv_weight_impl.h.
 *
 * They are made for one block of positions after the other; sums go on from block to block in tiles that
 * stay in cache while their product is at work. For the taps of a ky whose lines would be all zeros they
 * are not listed.
 *
 * Where a leaf has few positions and there are many sums, the way of the sums through memory would cost
 * more than the products. Leaves that fit a block together are then worked side by side: the tree over
 * them is summed in cache, some rows at a time, and only its result is written.
 */
#include "core/base/cpu.h"
#include "core/base/leaves.h"
#include "core/base/whole.h"
#include "core/kernel/conv_weight_impl.h"
#include "core/kernel/depthwise.h"
#include "core/kernel/transpose.h"

#include <string.h>

enum {
    BLOCK_WORDS = 1024, /* of a row, about: 64 columns of panels are 256 KiB */
    CHUNK_SUMS = 32768, /* sums that are finished together: they stay in the second-level cache */
    TWIG_SUMS = 16384,  /* the same of each leaf that is worked beside others */
    TWIG_WORDS = 256,   /* of a row, of such leaves together */
    MOST_LEAVES = 1 << OCT_LEAF_GROUP_LEVELS,
    CHUNK_ROWS = 24, /* a whole number of the microkernel's blocks */
    MOST_CHUNKS = 10,
    MERGED_POSITIONS = 256, /* odd planes with fewer are put in one line where there is one tap */
    FEW_ROWS = 64,          /* fewer of a ky are not worth a product of their own */
};

/* One tap: any shape of the positions will do. Long lines are turned in whole vectors, and pairs want
 * lines of even length. A block is enough for what is put in one line, however many samples there are. */
static oct_conv_shape simplified(const oct_conv_shape *s, int64_t *samples)
{
    oct_conv_shape one = *s;
    if (s->kernel_h != 1 || s->kernel_w != 1 || s->stride != 1 || s->padding != 0) return one;
    const int64_t plane = s->in_h * s->in_w;
    const bool even = plane % 2 == 0;
    if (even ? plane * *samples <= BLOCK_WORDS : plane < MERGED_POSITIONS) {
        one.in_h = 1;
        one.in_w = plane * *samples;
        *samples = *samples > 0;
    } else if (even && plane <= BLOCK_WORDS) {
        one.in_h = 1;
        one.in_w = plane;
    } else if (even && s->in_w % 2 != 0) {
        one.in_h /= 2;
        one.in_w *= 2;
    }
    one.out_h = one.in_h;
    one.out_w = one.in_w;
    return one;
}

static oct_weight_plan plan_of(const oct_float_kernel *k, oct_numerics numerics,
                               const oct_conv_shape *shape, int64_t samples, bool wide)
{
    oct_weight_plan p = {.k = k, .samples = samples, .grad_pairs = numerics == OCT_NUMERICS_BF16};
    oct_conv_shape *s = &p.s;
    *s = simplified(shape, &p.samples);
    p.pairs = p.grad_pairs && !wide;
    p.ins = s->in_c / s->groups;
    p.outs = s->out_c / s->groups;
    p.line_words = oct_row_words(k, p.pairs, s->out_w);

    const int64_t lines = oct_max_i64(BLOCK_WORDS / oct_max_i64(p.line_words, 1), 1);
    p.block_samples = oct_max_i64(oct_min_i64(lines / s->out_h, p.samples), 1);
    p.block_lines = oct_min_i64(lines, s->out_h);
    p.blocks = (p.samples + p.block_samples - 1) / p.block_samples *
               ((s->out_h + p.block_lines - 1) / p.block_lines);

    const bool swapped = p.pairs && !k->native_bf16;
    const int64_t shifts = (s->kernel_w - 1) / s->stride;
    const int64_t values = p.line_words * (p.pairs && !swapped ? 2 : 1);
    p.element = p.pairs && !swapped ? 2 : 4;
    p.phases = oct_min_i64(s->stride, s->kernel_w);
    p.copies = swapped && shifts > 0 ? 2 : 1;
    p.pitch = values + (swapped ? (shifts + 1) / 2 * 2 : shifts);
    p.line = p.copies * p.phases * p.pitch;
    p.sample = ((p.block_lines - 1) * s->stride + s->kernel_h) * p.line;
    p.plane = p.block_samples * p.sample;

    p.panels = (p.outs + k->col_tile - 1) / k->col_tile;
    p.panel_bytes = p.block_samples * p.block_lines * p.line_words * k->col_tile * 4;
    p.few_rows = s->kernel_w * p.ins < FEW_ROWS;
    return p;
}

/* Rows that are multiplied at once. */
static int64_t chunk_of(const oct_weight_plan *p, int64_t leaves)
{
    const int64_t chunks = (leaves > 1 ? TWIG_SUMS : CHUNK_SUMS) / (p->outs * CHUNK_ROWS);
    return oct_max_i64(oct_min_i64(chunks, MOST_CHUNKS), 1) * CHUNK_ROWS;
}

static void *carve(size_t *at, void *scratch, size_t bytes)
{
    void *taken = scratch ? (char *)scratch + *at : NULL;
    *at += oct_aligned(bytes);
    return taken;
}

/* For so many leaves with this plan, or a smaller one. scratch NULL: only the size. */
static size_t room_of(const oct_weight_plan *p, int64_t leaves, void *scratch,
                      oct_weight_scratch *r)
{
    size_t at = 0;
    const int64_t depth = oct_conv_depth(&p->s); /* fewer samples never need more room */
    r->chunk = chunk_of(p, leaves);
    r->num_runs = p->block_samples * p->block_lines;
    r->planes_bytes = oct_aligned((size_t)(p->ins * p->plane * p->element));
    r->panels_bytes = oct_aligned((size_t)(p->panels * p->panel_bytes));
    const int64_t rows = p->blocks > 1 ? depth : oct_min_i64(r->chunk, depth);
    const size_t sums = oct_aligned((size_t)(rows * p->outs) * sizeof(float));
    r->planes = carve(&at, scratch, (size_t)leaves * r->planes_bytes);
    r->panels = carve(&at, scratch, (size_t)leaves * r->panels_bytes);
    r->runs = carve(&at, scratch, (size_t)((leaves > 1 ? 2 : 1) * r->num_runs) * sizeof(oct_run));
    r->sums = carve(&at, scratch, sums);
    for (int i = 0; i < OCT_LEAF_GROUP_LEVELS && leaves > 1; i++)
        r->waiting[i] = carve(&at, scratch, sums);
    r->rows = carve(&at, scratch, (size_t)r->chunk * sizeof(oct_row));
    r->values = carve(&at, scratch, (size_t)OCT_STRIP * OCT_STRIP_CHANNELS * sizeof(float));
    r->codes = carve(&at, scratch, (size_t)OCT_STRIP * OCT_STRIP_CHANNELS);
    return at;
}

/* With the planes and panels of leaf i. */
static oct_weight_scratch room_for_leaf(const oct_weight_scratch *all, int64_t i)
{
    oct_weight_scratch r = *all;
    r.planes += (size_t)i * r.planes_bytes;
    r.panels += (size_t)i * r.panels_bytes;
    return r;
}

/* Kernel rows that are multiplied with the same lines of a block. */
typedef struct kernel_rows {
    int64_t first, end;
    int64_t line, lines; /* of the block: only these are not all zeros */
} kernel_rows;

/* Lines of the block for which kernel row ky lies inside the input. */
static void lines_inside(const oct_weight_plan *p, const oct_weight_block *b, int64_t ky,
                         int64_t *line, int64_t *lines)
{
    const oct_conv_shape *s = &p->s;
    const int64_t above = s->padding - ky, below = s->in_h - 1 + above;
    const int64_t first = oct_max_i64(above > 0 ? (above + s->stride - 1) / s->stride : 0, b->line);
    const int64_t end = oct_min_i64(below < 0 ? 0 : below / s->stride + 1, b->line + b->lines);
    *line = first - b->line;
    *lines = oct_max_i64(end - first, 0);
}

/* The next kernel rows after those in c; false at the end. */
static bool next_kernel_rows(const oct_weight_plan *p, const oct_weight_block *b, kernel_rows *c)
{
    int64_t line, lines;
    c->first = c->end;
    if (c->first == p->s.kernel_h) return false;
    if (p->few_rows) {
        *c = (kernel_rows){0, p->s.kernel_h, 0, b->lines};
        return true;
    }
    lines_inside(p, b, c->end++, &c->line, &c->lines);
    for (; c->end < p->s.kernel_h; c->end++) {
        lines_inside(p, b, c->end, &line, &lines);
        if (line != c->line || lines != c->lines) break;
    }
    return true;
}

static int64_t list_runs(const oct_weight_plan *p, const oct_weight_block *b, const kernel_rows *c,
                         oct_run *runs)
{
    int64_t count = 0;
    for (int64_t n = 0; n < b->samples; n++) {
        for (int64_t l = c->line; l < c->line + c->lines; l++) {
            const oct_run run = {.x = (n * p->sample + l * p->s.stride * p->line) * p->element,
                                 .tile = (n * b->lines + l) * p->line_words,
                                 .words = p->line_words};
            oct_run *last = count > 0 ? &runs[count - 1] : NULL;
            if (last && last->x + 4 * last->words == run.x && last->tile + last->words == run.tile)
                last->words += run.words;
            else
                runs[count++] = run;
        }
    }
    return count;
}

/* Where row `at` = (ky, kx, channel) begins in the planes. */
static int64_t row_start(const oct_weight_plan *p, int64_t at)
{
    const int64_t tap = at / p->ins, ky = tap / p->s.kernel_w, kx = tap % p->s.kernel_w;
    const int64_t shift = kx / p->s.stride, copy = p->copies == 2 ? shift % 2 : 0;
    return (at % p->ins * p->plane + ky * p->line +
            (copy * p->phases + kx % p->s.stride) * p->pitch + shift - copy) *
           p->element;
}

/* What is multiplied, and where the sums of a group go. */
typedef struct call {
    const char *grad;
    oct_conv_input x;
    int64_t group;
    const float *factor; /* of the group, or NULL: 1 */
    float *turned;       /* of the group */
    bool add;
} call;

/* From some samples on. */
static call call_from(const call *c, int64_t grad_bytes, int64_t inputs)
{
    call from = *c;
    from.grad += grad_bytes;
    if (c->x.values) from.x.values += inputs;
    if (c->x.codes) from.x.codes += inputs;
    if (c->x.codes16) from.x.codes16 += inputs;
    return from;
}

static inline __attribute__((always_inline)) void
write_scaled(int64_t n, const bool add, const float *from, const float *factor, float *restrict to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (add ? to[i] : 0.0F) + (factor ? factor[i] * from[i] : from[i]);
}

/* factor NULL: 1. */
OCT_CLONES
static void write_sums(int64_t rows, int64_t n, const float *from, const float *factor, bool add,
                       float *restrict to)
{
    for (int64_t r = 0; r < rows; r++, from += n, to += n) {
        if (factor && add)
            write_scaled(n, true, from, factor, to);
        else if (factor)
            write_scaled(n, false, from, factor, to);
        else
            write_scaled(n, add, from, NULL, to);
    }
}

static oct_product product_of(const oct_weight_plan *p, const oct_weight_scratch *r, bool add)
{
    return (oct_product){.x = r->planes,
                         .rows = r->rows,
                         .runs = r->runs,
                         .packed = r->panels,
                         .panel_bytes = p->panel_bytes,
                         .n = p->outs,
                         .add = add};
}

/* Rows [first, first + m) of the product. */
static void list_rows(const oct_weight_plan *p, int64_t first, int64_t m, oct_row *rows)
{
    for (int64_t i = 0; i < m; i++)
        rows[i] = (oct_row){row_start(p, first + i), i * p->outs};
}

static void multiply_rows(const oct_weight_plan *p, oct_product *product, float *sums)
{
    product->acc = sums;
    if (p->pairs)
        p->k->bf16(product);
    else
        p->k->f32(product);
}

/* After the last block sums are done. */
static void multiply_block(const oct_weight_plan *p, const oct_weight_block *b,
                           const oct_weight_scratch *r, const call *c)
{
    const int64_t rows = p->s.kernel_w * p->ins;
    oct_product product = product_of(p, r, !b->first);
    for (kernel_rows ky = {0}; next_kernel_rows(p, b, &ky);) {
        product.num_runs = list_runs(p, b, &ky, r->runs);
        for (int64_t at = ky.first * rows; at < ky.end * rows; at += product.m) {
            float *sums = p->blocks > 1 ? r->sums + at * p->outs : r->sums;
            product.m = oct_min_i64(r->chunk, ky.end * rows - at);
            list_rows(p, at, product.m, r->rows);
            multiply_rows(p, &product, sums);
            if (b->last)
                write_sums(product.m, p->outs, sums, c->factor, c->add, c->turned + at * p->outs);
        }
    }
}

/* One leaf, block by block. */
static void multiply_leaf(const oct_weight_plan *p, const call *c, const oct_weight_scratch *r)
{
    oct_weight_block b = {.first = true};
    for (; b.sample < p->samples; b.sample += b.samples) {
        b.samples = oct_min_i64(p->block_samples, p->samples - b.sample);
        for (b.line = 0; b.line < p->s.out_h; b.line += b.lines) {
            b.lines = oct_min_i64(p->block_lines, p->s.out_h - b.line);
            b.last = b.sample + b.samples == p->samples && b.line + b.lines == p->s.out_h;
            oct_weight_pack_planes(p, &c->x, c->group, &b, r);
            oct_weight_pack_panels(p, c->grad, c->group, &b, r);
            multiply_block(p, &b, r, c);
            b.first = false;
        }
    }
}

/* A leaf among others, in one block. */
typedef struct twig_leaf {
    oct_weight_plan plan;
    oct_weight_block block;
    kernel_rows rows;
    oct_run *runs;
    int64_t num_runs;
} twig_leaf;

/* Leaves side by side, of which the last may be short. */
typedef struct twig {
    int64_t leaves;
    twig_leaf full, last;
    oct_weight_scratch room;
} twig;

static twig_leaf twig_leaf_of(const oct_weight_plan *p, const oct_weight_scratch *room,
                              oct_run *runs)
{
    OCT_ASSERT(p->blocks == 1);
    OCT_ASSERT((size_t)(p->ins * p->plane * p->element) <= room->planes_bytes);
    OCT_ASSERT((size_t)(p->panels * p->panel_bytes) <= room->panels_bytes);
    return (twig_leaf){
        .plan = *p,
        .block = {.samples = p->samples, .lines = p->s.out_h, .first = true, .last = true},
        .runs = runs,
    };
}

static const twig_leaf *leaf_of(const twig *t, int64_t i)
{
    return i + 1 < t->leaves ? &t->full : &t->last;
}

static bool next_runs(twig_leaf *l)
{
    if (!next_kernel_rows(&l->plan, &l->block, &l->rows)) return false;
    l->num_runs = list_runs(&l->plan, &l->block, &l->rows, l->runs);
    return true;
}

/* Rows [first, first + m), leaf by leaf: an odd one is added to its left neighbour of the tree. */
static void sum_chunk(const twig *t, int64_t first, int64_t m, const call *c)
{
    const int64_t n = t->full.plan.outs;
    float *const sums = t->room.sums, *const *waiting = t->room.waiting;
    int height = 0;
    for (int64_t i = 0; i < t->leaves; i++) {
        const twig_leaf *l = leaf_of(t, i);
        const oct_weight_scratch room = room_for_leaf(&t->room, i);
        const bool adds = i % 2 == 1;
        int joins = oct_tree_joins(i, t->leaves) - adds;
        oct_product product = product_of(&l->plan, &room, false);
        product.m = m;
        product.runs = l->runs;
        product.num_runs = l->num_runs;
        if (i == 0 || l == &t->last) list_rows(&l->plan, first, m, room.rows);
        multiply_rows(&l->plan, &product, sums);
        if (!adds) height++;
        write_sums(m, n, sums, c->factor, adds, waiting[height - 1]);
        for (; joins > 0; joins--, height--)
            write_sums(m, n, waiting[height - 1], NULL, true, waiting[height - 2]);
    }
    write_sums(m, n, waiting[0], NULL, c->add, c->turned + first * n);
}

/* One group. grad_bytes, inputs: of a full leaf. */
static void multiply_twig(twig *t, const call *c, int64_t grad_bytes, int64_t inputs)
{
    const int64_t rows = t->full.plan.s.kernel_w * t->full.plan.ins;
    for (int64_t i = 0; i < t->leaves; i++) {
        const twig_leaf *l = leaf_of(t, i);
        const oct_weight_scratch room = room_for_leaf(&t->room, i);
        const call own = call_from(c, i * grad_bytes, i * inputs);
        oct_weight_pack_planes(&l->plan, &own.x, own.group, &l->block, &room);
        oct_weight_pack_panels(&l->plan, own.grad, own.group, &l->block, &room);
    }
    t->full.rows = t->last.rows = (kernel_rows){0};
    while (next_runs(&t->full) && next_runs(&t->last)) {
        const kernel_rows *ky = &t->full.rows;
        OCT_ASSERT(ky->end == t->last.rows.end);
        for (int64_t at = ky->first * rows, m; at < ky->end * rows; at += m) {
            m = oct_min_i64(t->room.chunk, ky->end * rows - at);
            sum_chunk(t, at, m, c);
        }
    }
}

int64_t oct_conv_backward_weight_leaves(const oct_float_kernel *k, oct_numerics numerics,
                                        const oct_conv_shape *s, int64_t leaf)
{
    if (oct_conv_is_depthwise(s)) return 1;
    const oct_weight_plan narrow = plan_of(k, numerics, s, leaf, false);
    const oct_weight_plan wide = plan_of(k, numerics, s, leaf, true);
    const int64_t words = narrow.block_samples * narrow.block_lines * narrow.line_words;
    int64_t leaves = 1;
    if (narrow.blocks > 1 || wide.blocks > 1) return 1;
    while (leaves < MOST_LEAVES && 2 * leaves * words <= TWIG_WORDS)
        leaves *= 2;
    return leaves;
}

size_t oct_conv_backward_weight_scratch_bytes(const oct_float_kernel *k, oct_numerics numerics,
                                              const oct_conv_shape *s, int64_t leaf, int64_t leaves)
{
    if (oct_conv_is_depthwise(s)) return oct_depthwise_backward_weight_scratch_bytes(s);
    size_t most = 0;
    for (int wide = 0; wide <= 1; wide++) {
        oct_weight_scratch r;
        const oct_weight_plan p = plan_of(k, numerics, s, leaf, wide);
        const size_t one = room_of(&p, 1, NULL, &r), all = room_of(&p, leaves, NULL, &r);
        if (most < one) most = one;
        if (most < all) most = all;
    }
    return most;
}

void oct_conv_backward_weight(const oct_float_kernel *k, oct_numerics numerics,
                              const oct_conv_shape *s, int64_t samples, int64_t leaf,
                              const void *grad, const oct_conv_input *x, const float *factor,
                              float *turned, bool add, void *scratch)
{
    if (oct_conv_is_depthwise(s)) {
        OCT_ASSERT(samples <= leaf);
        oct_depthwise_backward_weight(s, samples, grad, x, factor, turned, add, scratch);
        return;
    }
    const int64_t outs = s->out_c / s->groups, sums = oct_conv_depth(s) * outs;
    if (samples == 0 && !add) memset(turned, 0, (size_t)(s->groups * sums) * sizeof *turned);
    const bool wide = x->codes16;
    const oct_weight_plan p = plan_of(k, numerics, s, oct_min_i64(leaf, samples), wide);
    twig t = {.leaves = oct_max_i64((samples + leaf - 1) / leaf, 1)};
    room_of(&p, t.leaves, scratch, &t.room);
    if (t.leaves > 1) {
        OCT_ASSERT(t.leaves <= MOST_LEAVES);
        const int64_t rest = samples - (t.leaves - 1) * leaf;
        const oct_weight_plan last = plan_of(k, numerics, s, rest, wide);
        t.full = twig_leaf_of(&p, &t.room, t.room.runs);
        t.last = twig_leaf_of(&last, &t.room, t.room.runs + t.room.num_runs);
    }
    const int64_t row = (int64_t)oct_conv_grad_row_bytes(k, numerics, s);
    for (int g = 0; g < s->groups; g++) {
        const call c = {.grad = grad,
                        .x = *x,
                        .group = g,
                        .factor = factor ? factor + g * outs : NULL,
                        .turned = turned + g * sums,
                        .add = add};
        if (t.leaves > 1)
            multiply_twig(&t, &c, leaf * s->out_h * s->out_w * row, leaf * oct_conv_in_numel(s));
        else
            multiply_leaf(&p, &c, &t.room);
    }
}

void oct_conv_weight_transpose(int64_t groups, int64_t depth, int64_t outs, const float *turned,
                               float *weight)
{
    for (int64_t g = 0; g < groups; g++)
        oct_transpose_f32(depth, outs, turned + g * depth * outs, outs, weight + g * depth * outs,
                          depth);
}
