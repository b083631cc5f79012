/* The gradient of weights is a product over positions: rows are taps and input channels, columns are
 * output channels. conv_weight_plan.c says how it is cut, conv_impl.h describes its operands.
 *
 * They are made for one block of positions after the other; sums go on from block to block in tiles that
 * stay in cache while their product is at work. For the taps of a ky whose lines would be all zeros they
 * are not listed.
 *
 * Where a leaf has few positions and there are many sums, writing the sums to memory would cost
 * more than the products. Leaves that fit a block together are then computed side by side: the tree over
 * them is summed in cache, some rows at a time, and only its result is written.
 */
#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/base/leaves.h"
#include "core/base/mem.h"
#include "core/kernel/conv_impl.h"
#include "core/tensor/move.h"

#include <string.h>

/* Returns the scratch of leaf i of several: planes and panels are its alone, the rest is shared. */
static oct_weight_scratch scratch_of_leaf(const oct_weight_scratch *all, int64_t i)
{
    oct_weight_scratch r = *all;
    if (r.tiles) {
        r.tiles += (size_t)i * r.tiles_bytes;
        return r;
    }
    r.planes += (size_t)i * r.planes_bytes;
    r.panels += (size_t)i * r.panels_bytes;
    r.offsets += i * 2 * r.num_offsets;
    return r;
}

OCT_INLINE void write_scaled(int64_t n, const bool add, const float *from, const float *factor,
                             float *restrict to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (add ? to[i] : 0.0F) + (factor ? factor[i] * from[i] : from[i]);
}

/* Writes or adds rows of n sums, times a factor each (NULL: 1), to rows that are `pitch` apart. */
OCT_CLONES static void write_rows(int64_t rows, int64_t n, const float *from, const float *factor,
                                  bool add, int64_t pitch, float *restrict to)
{
    for (int64_t r = 0; r < rows; r++, from += n, to += pitch) {
        if (factor && add)
            write_scaled(n, true, from, factor, to);
        else if (factor)
            write_scaled(n, false, from, factor, to);
        else
            write_scaled(n, add, from, NULL, to);
    }
}

/* Writes or adds the sums of a part, whose rows are (ky, kx, channel); a pass over some channels has gaps. */
static void write_sums(const oct_weight_plan *p, const oct_weight_part *a, const float *from,
                       const float *factor, const oct_conv_weight_pass *c)
{
    const int64_t group_ins = p->s.in_c / p->s.groups, taps = p->s.kernel_h * p->s.kernel_w;
    const int64_t end = p->tiles_bytes > 0 ? taps * p->ins : a->first + a->rows;
    for (int64_t first = a->first, rows; first < end; from += rows * a->columns) {
        const int64_t tap = first / p->ins, channel = first % p->ins;
        rows = p->tiles_bytes > 0    ? a->rows
               : p->ins == group_ins ? end - first
                                     : oct_min_i64(p->ins - channel, end - first);
        write_rows(rows, a->columns, from, factor ? factor + a->column : NULL, c->add, p->outs,
                   c->sums + (tap * group_ins + channel) * p->outs + a->column);
        first += p->tiles_bytes > 0 ? p->ins : rows;
    }
}

/* Adds the products of one block of positions to the sums; after the last block writes them to those of the pass. */
static void multiply_block(const oct_weight_plan *p, const oct_weight_block *b,
                           const oct_weight_scratch *r, const oct_conv_weight_pass *c)
{
    const int64_t rows = p->s.kernel_w * p->ins;
    oct_product product = {.x = r->planes,
                           .rows = r->rows,
                           .runs = r->runs,
                           .packed = r->panels,
                           .panel_bytes = p->panel_bytes,
                           .n = p->outs,
                           .add = !b->first};
    for (oct_kernel_rows ky = {0}; oct_weight_next_rows(p, b, &ky);) {
        product.num_runs = oct_weight_list_runs(p, b, &ky, r->runs);
        oct_weight_compute_offsets(p, &ky, r, &product);
        for (int64_t at = ky.first * rows; at < ky.end * rows; at += product.m) {
            float *sums = p->all_sums ? r->sums + at * p->outs : r->sums;
            product.m = oct_min_i64(r->chunk, ky.end * rows - at);
            oct_weight_list_rows(p, at, product.m, r->rows);
            oct_weight_multiply_rows(p, b, r, &product, at, c->scale, sums);
            const oct_weight_part a = {.first = at, .rows = product.m, .columns = p->outs};
            if (b->last) write_sums(p, &a, sums, c->factor, c);
        }
    }
}

static int64_t rows_with_taps(const oct_weight_plan *p, const oct_weight_part *a)
{
    return a->rows * (p->tiles_bytes > 0 ? p->s.kernel_h * p->s.kernel_w : 1);
}

/* Computes the gradient of one segment and group of the convolution, block by block. c: the pass of this group and
 * segment; b: the group's block, with nothing done yet, fresh where it is the first segment; last: it is the last one. */
static void multiply_segment(const oct_weight_plan *p, oct_weight_block b, bool last,
                             const oct_conv_weight_pass *c, const oct_weight_scratch *r)
{
    const int64_t most = p->block_samples * p->block_lines * p->line_words * OCT_WORD;
    if (p->tiles_bytes > 0) {
        float *sums = r->sums;
        oct_weight_pack_tiles(p, c, &b, r);
        for (oct_weight_part a = {0}; oct_weight_next_part(p, &a);) {
            oct_weight_multiply_tiles(p, &a, r, &(oct_weight_factors){.scale = c->scale}, !b.fresh,
                                      sums);
            if (last) write_sums(p, &a, sums, c->factor, c);
            if (p->all_sums) sums += rows_with_taps(p, &a) * a.columns;
        }
        return;
    }
    b.first = true;
    for (int64_t terms = 0; b.sample < p->samples; b.sample += b.samples) {
        b.samples = oct_min_i64(p->block_samples, p->samples - b.sample);
        for (b.line = 0; b.line < p->s.out_h; b.line += b.lines) {
            b.lines = oct_min_i64(p->block_lines, p->s.out_h - b.line);
            b.ends = b.sample + b.samples == p->samples && b.line + b.lines == p->s.out_h;
            b.last = b.ends && last;
            terms += most;
            if (p->bytes && terms + most > OCT_CONV_MAX_CODES) b.ends = true;
            oct_weight_pack_block(p, c, &b, r);
            multiply_block(p, &b, r, c);
            b.first = p->bytes && b.ends;
            if (!b.first) continue;
            b.fresh = false;
            terms = 0;
        }
    }
}

/* Returns the pass with its inputs, gradient rows and scales moved to sample n, which must begin a segment; samples and
 * sums stay those of the whole pass. */
static oct_conv_weight_pass pass_at_sample(const oct_conv_plan *p, const oct_conv_weight_pass *pass,
                                           int64_t n)
{
    const oct_conv_shape *s = &p->config.shape;
    const int64_t inputs = n * oct_conv_in_numel(s);
    const size_t rows = (size_t)(n * s->out_h * s->out_w) * p->grad_row_bytes;
    oct_conv_weight_pass from = *pass;
    if (from.x.values) from.x.values += inputs;
    if (from.x.codes) from.x.codes += inputs;
    if (from.x.codes16) from.x.codes16 += inputs;
    from.grad = (const char *)from.grad + rows;
    if (from.low) from.low = (const char *)from.low + rows;
    if (from.scale) from.scale += n / p->weight.segment_samples * s->out_c;
    return from;
}

/* A leaf among others is worked in one block, or tile by tile. */
typedef struct group_leaf {
    oct_weight_plan plan;
    oct_weight_block block;
    oct_kernel_rows rows;
    oct_run *runs;
    int64_t num_runs;
} group_leaf;

/* A group has leaves side by side; the last may be short. */
typedef struct leaf_group {
    int64_t leaves;
    group_leaf full, last;
    oct_weight_scratch scratch;
} leaf_group;

/* Describes a leaf of a group, which one thread computes side by side: one block has all positions of the leaf, and r must
 * have room for it. runs: memory for its list of runs. */
static group_leaf group_leaf_of(const oct_weight_plan *p, const oct_weight_scratch *r,
                                oct_run *runs)
{
    const int64_t planes = (p->ins + (p->bytes ? 1 : 0)) * p->plane * p->element;
    OCT_ASSERT(p->tiles_bytes > 0 || (p->blocks == 1 && (size_t)planes <= r->planes_bytes &&
                                      (size_t)(p->panels * p->panel_bytes) <= r->panels_bytes));
    return (group_leaf){
        .plan = *p,
        .block = {.samples = p->samples,
                  .lines = p->s.out_h,
                  .first = true,
                  .last = true,
                  .ends = true,
                  .fresh = true},
        .runs = runs,
    };
}

static group_leaf *leaf_of(leaf_group *t, int64_t i)
{
    return i + 1 < t->leaves ? &t->full : &t->last;
}

static bool next_runs(group_leaf *l)
{
    if (!oct_weight_next_rows(&l->plan, &l->block, &l->rows)) return false;
    l->num_runs = oct_weight_list_runs(&l->plan, &l->block, &l->rows, l->runs);
    return true;
}

/* The product of a leaf, but for the rows of the sums. */
static oct_product product_of_leaf(const group_leaf *l, const oct_weight_scratch *r)
{
    return (oct_product){.x = r->planes,
                         .rows = r->rows,
                         .runs = l->runs,
                         .num_runs = l->num_runs,
                         .packed = r->panels,
                         .panel_bytes = l->plan.panel_bytes,
                         .n = l->plan.outs};
}

/* Writes or adds a part of the sums of leaf i. Full leaves share a list of rows. */
static void multiply_part(leaf_group *t, int64_t i, const oct_weight_part *a,
                          const oct_conv_weight_pass *c, bool add, float *to)
{
    const group_leaf *l = leaf_of(t, i);
    const oct_weight_scratch r = scratch_of_leaf(&t->scratch, i);
    const float *scale = c->scale ? c->scale + i * l->plan.s.out_c : NULL;
    if (l->plan.tiles_bytes > 0) {
        const oct_weight_factors factors = {scale, c->factor};
        oct_weight_multiply_tiles(&l->plan, a, &r, &factors, add, to);
        return;
    }
    oct_product product = product_of_leaf(l, &r);
    product.m = a->rows;
    if (i == 0 || l == &t->last) oct_weight_list_rows(&l->plan, a->first, a->rows, r.rows);
    oct_weight_multiply_rows(&l->plan, &l->block, &r, &product, a->first, scale, r.sums);
    write_rows(a->rows, a->columns, r.sums, c->factor, add, a->columns, to);
}

/* Computes a part of the sums leaf by leaf and adds them along the tree: `waiting` is a stack, `height` high, of
 * sums that wait for their right neighbour. */
static void sum_part_over_leaves(leaf_group *t, const oct_weight_part *a,
                                 const oct_conv_weight_pass *c)
{
    const int64_t rows = rows_with_taps(&t->full.plan, a);
    float *const *waiting = t->scratch.waiting;
    int height = 0;
    for (int64_t i = 0; i < t->leaves; i++) {
        const bool is_right = i % 2 == 1;
        int merges = oct_tree_merges(i, t->leaves) - is_right;
        if (!is_right) height++;
        multiply_part(t, i, a, c, is_right, waiting[height - 1]);
        for (; merges > 0; merges--, height--)
            write_rows(rows, a->columns, waiting[height - 1], NULL, true, a->columns,
                       waiting[height - 2]);
    }
    write_sums(&t->full.plan, a, waiting[0], NULL, c);
}

/* Packs the operands of all leaves of a group of the convolution. */
static void pack_leaves(leaf_group *t, const oct_conv_plan *p, int64_t group,
                        const oct_conv_weight_pass *c)
{
    t->full.block.group = t->last.block.group = group;
    t->full.block.channel = t->last.block.channel = c->channel;
    for (int64_t i = 0; i < t->leaves; i++) {
        const group_leaf *l = leaf_of(t, i);
        const oct_weight_scratch r = scratch_of_leaf(&t->scratch, i);
        const oct_conv_weight_pass of_leaf = pass_at_sample(p, c, i * p->config.leaf);
        if (l->plan.tiles_bytes > 0)
            oct_weight_pack_tiles(&l->plan, &of_leaf, &l->block, &r);
        else
            oct_weight_pack_block(&l->plan, &of_leaf, &l->block, &r);
    }
}

/* Multiplies all leaves of a group of the convolution, whose operands are packed. */
static void multiply_leaves(leaf_group *t, const oct_conv_weight_pass *c)
{
    const oct_weight_plan *p = &t->full.plan;
    const int64_t rows = p->s.kernel_w * p->ins;
    oct_weight_part a = {0};
    while (p->tiles_bytes > 0 && oct_weight_next_part(p, &a))
        sum_part_over_leaves(t, &a, c);
    if (p->tiles_bytes > 0) return;
    a.columns = p->outs;
    t->full.rows = t->last.rows = (oct_kernel_rows){0};
    while (next_runs(&t->full) && next_runs(&t->last)) {
        const oct_kernel_rows *ky = &t->full.rows;
        OCT_ASSERT(ky->end == t->last.rows.end);
        for (int64_t i = 0; i < t->leaves; i++) {
            const oct_weight_scratch r = scratch_of_leaf(&t->scratch, i);
            const oct_product product = product_of_leaf(leaf_of(t, i), &r);
            oct_weight_compute_offsets(&leaf_of(t, i)->plan, ky, &r, &product);
        }
        for (a.first = ky->first * rows; a.first < ky->end * rows; a.first += a.rows) {
            a.rows = oct_min_i64(t->scratch.chunk, ky->end * rows - a.first);
            sum_part_over_leaves(t, &a, c);
        }
    }
}

/* Restricts a pass to one group of the convolution: its channels (false: none), factors and sums. */
static bool pass_of_group(const oct_conv_plan *p, const oct_conv_weight_pass *pass, int64_t group,
                          oct_conv_weight_pass *group_pass)
{
    const oct_conv_shape *s = &p->config.shape;
    const int64_t outs = s->out_c / s->groups, ins = s->in_c / s->groups, first = group * ins;
    const int64_t end = pass->channels > 0 ? pass->channel + pass->channels : s->in_c;
    *group_pass = *pass;
    group_pass->channel = oct_max_i64(pass->channel, first);
    group_pass->channels = oct_min_i64(end, first + ins) - group_pass->channel;
    if (group_pass->factor) group_pass->factor += group * outs;
    if (group_pass->scale) group_pass->scale += group * outs;
    group_pass->sums += group * outs * oct_conv_depth(s) + (group_pass->channel - first) * outs;
    return group_pass->channels > 0;
}

/* Computes the gradient from several leaves side by side. */
static void multiply_side_by_side(const oct_conv_plan *p, const oct_conv_weight_pass *pass,
                                  void *scratch)
{
    const int64_t leaf = p->config.leaf;
    leaf_group t = {.leaves = (pass->samples + leaf - 1) / leaf};
    OCT_ASSERT(t.leaves <= p->weight.leaves);
    const oct_weight_plan last =
        oct_weight_segment_plan(&p->config, pass->samples - (t.leaves - 1) * leaf);
    oct_weight_lay_out(&p->weight.segment, t.leaves, scratch, &t.scratch);
    t.full = group_leaf_of(&p->weight.segment, &t.scratch, t.scratch.runs);
    t.last = group_leaf_of(&last, &t.scratch, t.scratch.runs + t.scratch.num_runs);
    oct_conv_weight_pass group_pass;
    for (int g = 0; g < p->config.shape.groups; g++) {
        if (!pass_of_group(p, pass, g, &group_pass)) continue;
        t.full.plan.ins = t.last.plan.ins = group_pass.channels;
        pack_leaves(&t, p, g, &group_pass);
        multiply_leaves(&t, &group_pass);
    }
}

oct_cut oct_conv_weight_cut(const oct_conv_plan *p, int64_t passes, int threads)
{
    oct_cut cut = oct_cut_columns(passes, p->config.shape.in_c, threads);
    if (p->depthwise) cut.step = OCT_DEPTHWISE_LANES;
    if (p->weight.segment.tiles_bytes > 0) cut.step = OCT_WINOGRAD_LANES;
    return cut;
}

void oct_conv_backward_weight(const oct_conv_plan *p, const oct_conv_weight_pass *pass,
                              void *scratch)
{
    const oct_conv_shape *s = &p->config.shape;
    if (p->depthwise) {
        oct_depthwise_backward_weight(p, pass, scratch);
        return;
    }
    if (pass->samples > p->config.leaf) {
        multiply_side_by_side(p, pass, scratch);
        return;
    }
    if (pass->samples == 0 && !pass->add)
        memset(pass->sums, 0, (size_t)(s->out_c * oct_conv_depth(s)) * sizeof *pass->sums);
    const int64_t each = p->weight.segment_samples;
    const oct_weight_plan first = pass->samples >= each
                                      ? p->weight.segment
                                      : oct_weight_segment_plan(&p->config, pass->samples);
    oct_conv_weight_pass group_pass;
    oct_weight_scratch r;
    oct_weight_lay_out(&first, 1, scratch, &r);
    for (int g = 0; g < s->groups; g++) {
        if (!pass_of_group(p, pass, g, &group_pass)) continue;
        for (int64_t n = 0; n < pass->samples; n += each) {
            const int64_t rest = pass->samples - n;
            const bool full = n == 0 || rest >= each;
            oct_weight_plan segment = full ? first : oct_weight_segment_plan(&p->config, rest);
            const oct_conv_weight_pass from = pass_at_sample(p, &group_pass, n);
            segment.ins = group_pass.channels;
            multiply_segment(
                &segment, (oct_weight_block){.group = g, .channel = from.channel, .fresh = n == 0},
                rest <= each, &from, &r);
        }
    }
}
