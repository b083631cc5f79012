/* The gradient of weights is a product over positions: rows are taps and input channels, columns are
 * output channels. Its operands are described in conv_impl.h.
 *
 * They are made for one block of positions after the other; sums go on from block to block in tiles that
 * stay in cache while their product is at work. For the taps of a ky whose lines would be all zeros they
 * are not listed.
 *
 * Where a leaf has few positions and there are many sums, writing the sums to memory would cost
 * more than the products. Leaves that fit a block together are then computed side by side: the tree over
 * them is summed in cache, some rows at a time, and only its result is written.
 */
#include "core/base/mem.h"
#include "core/base/cpu.h"
#include "core/base/leaves.h"
#include "core/base/int_math.h"
#include "core/kernel/conv_impl.h"
#include "core/tensor/move.h"

#include <string.h>

enum {
    BLOCK_VALUES = 1024, /* of a row, about: 64 columns of panels are 256 KiB */
    CHUNK_SUMS = 32768,  /* sums that are written together: they stay in the second-level cache */
    GROUP_SUMS = 16384,  /* the same of each leaf that is computed beside others */
    GROUP_WORDS = 256,   /* of a row, of such leaves together */
    CHUNK_ROWS = 24,     /* a whole number of the microkernel's blocks */
    MAX_CHUNKS = 10,
    SEGMENT_POSITIONS = 512, /* at least, so that making floats of its sums costs little */
    MERGED_POSITIONS = 256,  /* odd planes with fewer are put in one line where there is one tap */
    FEW_ROWS = 64,           /* fewer of a ky are not worth a product of their own */
};

/* Gives a pointwise convolution, whose positions may have any (h, w), long lines of even length: they are transposed in
 * whole vectors and paired. Small planes of all samples become one line (*samples: 1), one block however long. */
static oct_conv_shape reshape_positions(const oct_conv_shape *s, bool codes, int64_t *samples)
{
    oct_conv_shape reshaped = *s;
    if (!oct_conv_is_pointwise(s)) return reshaped;
    const int64_t plane = s->in_h * s->in_w;
    const bool even = plane % 2 == 0;
    if (codes  ? plane * *samples <= OCT_WORD * BLOCK_VALUES
        : even ? plane * *samples <= BLOCK_VALUES
               : plane < MERGED_POSITIONS) {
        reshaped.in_h = 1;
        reshaped.in_w = plane * *samples;
        *samples = *samples > 0;
    } else if (even && plane <= BLOCK_VALUES) {
        reshaped.in_h = 1;
        reshaped.in_w = plane;
    } else if (even && s->in_w % 2 != 0) {
        reshaped.in_h /= 2;
        reshaped.in_w *= 2;
    }
    reshaped.out_h = reshaped.in_h;
    reshaped.out_w = reshaped.in_w;
    return reshaped;
}

/* Plans a line as (copies, phases, pitch) values: a phase has the columns of one remainder by the stride, `shifts` more
 * than the output. Where quads are ordered, copy k begins with value k of a phase, for shifts with remainder k by 4. */
static void plan_planes(oct_weight_plan *p)
{
    const oct_conv_shape *s = &p->s;
    const bool floats = !p->bf16 || p->kernel->bf16_words == OCT_BF16_FLOATS;
    const int64_t extent_w = oct_conv_extent(s->kernel_w, s->dilation_w);
    const int64_t shifts = (extent_w - 1) / s->stride_w;
    p->quads = p->bf16 && p->kernel->bf16_words == OCT_BF16_PARITIES;
    p->element = p->bytes ? 1 : floats ? 4 : 2;
    p->phases = oct_min_i64(s->stride_w, extent_w);
    p->copies = p->quads ? oct_min_i64(shifts + 1, 4) : 1;
    p->pitch = p->line_words * 4 / p->element + (p->quads ? (shifts + 3) / 4 * 4 : shifts);
    p->line = p->copies * p->phases * p->pitch;
    p->sample = oct_weight_plane_lines(p, p->block_lines) * p->line;
    p->plane = p->block_samples * p->sample + (p->bytes ? OCT_PATCH_CHANNELS : 0);
}

/* Returns the samples of a segment. */
static int64_t segment_of(const oct_conv_config *c)
{
    int64_t samples = 1;
    if (c->numerics != OCT_NUMERICS_INT8) return c->leaf;
    while (samples * c->shape.out_h * c->shape.out_w < SEGMENT_POSITIONS && samples < c->leaf)
        samples *= 2;
    return oct_min_i64(samples, c->leaf);
}

/* Plans the gradient of a segment of `samples` samples, in blocks of samples or lines with about BLOCK_VALUES values, of
 * codes words, of bfloat16 twice as many: as many for all tables, whose sums begin again with a block. */
static oct_weight_plan segment_plan(const oct_conv_config *c, int64_t samples)
{
    const bool codes = c->numerics == OCT_NUMERICS_INT8;
    const int64_t tile = codes ? c->bytes->col_tile : c->kernel->col_tile;
    oct_weight_plan p = {.kernel = c->kernel,
                         .samples = samples,
                         .full = segment_of(c),
                         .grad_bf16 = c->numerics == OCT_NUMERICS_BF16};
    p.rounds_grad = p.grad_bf16 && c->grad_is_floats;
    p.bytes = codes ? c->bytes : NULL;
    p.digits = c->weight_digits;
    p.s = reshape_positions(&c->shape, codes, &p.samples);
    p.bf16 = p.grad_bf16 && c->input != OCT_U16;
    p.ins = p.s.in_c / p.s.groups;
    p.outs = p.s.out_c / p.s.groups;
    p.line_words =
        codes ? (p.s.out_w + OCT_WORD - 1) / OCT_WORD : oct_row_words(c->kernel, p.bf16, p.s.out_w);
    p.few_rows = p.s.kernel_w * p.ins < FEW_ROWS;
    int64_t lines = oct_max_i64(BLOCK_VALUES / oct_max_i64(codes ? p.line_words : p.s.out_w, 1), 1);
    if (p.bf16) lines = lines < 4 ? 2 * lines : lines / 4 * 8; /* then blocks of sums are whole */
    p.block_samples = oct_max_i64(oct_min_i64(lines / p.s.out_h, p.samples), 1);
    p.block_lines = oct_min_i64(lines, p.s.out_h);
    p.blocks = (p.samples + p.block_samples - 1) / p.block_samples *
               ((p.s.out_h + p.block_lines - 1) / p.block_lines);
    plan_planes(&p);
    p.panels = (p.outs + tile - 1) / tile;
    p.panel_bytes =
        p.block_samples * p.block_lines * p.line_words * (codes ? c->bytes->tile_bytes : tile * 4);
    p.all_sums = p.blocks > 1 || p.full < c->leaf || oct_weight_tiles_bytes(&p) > 0;
    return p;
}

/* Lays scratch out (NULL: nowhere) for `leaves` leaves; returns its bytes, enough for fewer samples, too. Several
 * blocks need sums of all rows, one only those of a chunk; leaves of a group a second list of runs, and sums that
 * wait in the tree. */
static size_t lay_out_scratch(const oct_weight_plan *p, int64_t leaves, void *scratch,
                              oct_weight_scratch *r)
{
    size_t used = 0;
    const int64_t depth = oct_conv_depth(&p->s);
    const size_t tiles = oct_weight_tiles_bytes(p);
    if (tiles > 0) {
        r->tiles = oct_carve(scratch, &used, tiles);
        r->sums = oct_carve(scratch, &used, (size_t)(depth * p->outs) * sizeof *r->sums);
        return used;
    }
    const int64_t chunks = (leaves > 1 ? GROUP_SUMS : CHUNK_SUMS) / (p->outs * CHUNK_ROWS);
    r->chunk = oct_max_i64(oct_min_i64(chunks, MAX_CHUNKS), p->bytes ? 2 : 1) * CHUNK_ROWS;
    r->num_runs = p->block_samples * p->block_lines;
    r->planes_bytes =
        oct_cache_aligned((size_t)((p->ins + (p->bytes ? 1 : 0)) * p->plane * p->element));
    r->panels_bytes =
        oct_cache_aligned((size_t)((p->bytes ? p->digits : 1) * p->panels * p->panel_bytes));
    const int64_t few = oct_min_i64(r->chunk, depth);
    const size_t sums = (size_t)((p->all_sums ? depth : few) * p->outs) * sizeof *r->sums;
    const size_t patch = (size_t)OCT_PATCH_COLUMNS * OCT_PATCH_CHANNELS;
    const size_t lists = leaves > 1 ? 2 : 1;
    r->planes = oct_carve(scratch, &used, (size_t)leaves * r->planes_bytes);
    r->panels = oct_carve(scratch, &used, (size_t)leaves * r->panels_bytes);
    r->runs = oct_carve(scratch, &used, lists * (size_t)r->num_runs * sizeof *r->runs);
    r->sums = oct_carve(scratch, &used, sums);
    r->acc_sums = (p->blocks > 1 ? depth : few) * p->outs;
    r->num_offsets = p->s.kernel_h * p->outs;
    const size_t digits = p->bytes ? (size_t)p->digits * sizeof *r->acc : 0;
    r->acc = oct_carve(scratch, &used, digits * (size_t)r->acc_sums);
    r->offsets = oct_carve(
        scratch, &used, p->bytes ? (size_t)(leaves * 2 * r->num_offsets) * sizeof *r->offsets : 0);
    for (int i = 0; i < OCT_LEAF_GROUP_LEVELS && leaves > 1; i++)
        r->waiting[i] = oct_carve(scratch, &used, sums);
    const int64_t listed = oct_max_i64(r->chunk, p->bytes ? p->s.kernel_h : 0);
    r->rows = oct_carve(scratch, &used, (size_t)listed * sizeof *r->rows);
    const int64_t grad_words = p->s.out_w * oct_row_words(p->kernel, p->grad_bf16, p->outs);
    r->grad = oct_carve(scratch, &used, p->rounds_grad ? (size_t)grad_words * 4 : 0);
    r->values = oct_carve(scratch, &used, patch * sizeof *r->values);
    r->codes = oct_carve(scratch, &used, patch);
    return used;
}

void oct_weight_product_init(oct_conv_plan *p)
{
    oct_conv_weight_product *w = &p->weight;
    oct_weight_scratch r;
    w->segment_samples = segment_of(&p->config);
    w->leaf_segments = (p->config.leaf + w->segment_samples - 1) / w->segment_samples;
    w->segment = segment_plan(&p->config, w->segment_samples);
    /* Leaves that are computed side by side: as many as fit a block together. */
    const int64_t words = w->segment.block_samples * w->segment.block_lines * w->segment.line_words;
    const int64_t most = oct_min_i64(p->config.max_leaves, OCT_CONV_MAX_LEAVES);
    w->leaves = 1;
    while (!w->segment.all_sums && 2 * w->leaves <= most && 2 * w->leaves * words <= GROUP_WORDS)
        w->leaves *= 2;
    const size_t one = lay_out_scratch(&w->segment, 1, NULL, &r);
    const size_t all = lay_out_scratch(&w->segment, w->leaves, NULL, &r);
    w->scratch_bytes = one > all ? one : all;
}

/* Returns the scratch of leaf i of several: planes and panels are its alone, the rest is shared. */
static oct_weight_scratch scratch_of_leaf(const oct_weight_scratch *all, int64_t i)
{
    oct_weight_scratch r = *all;
    r.planes += (size_t)i * r.planes_bytes;
    r.panels += (size_t)i * r.panels_bytes;
    r.offsets += i * 2 * r.num_offsets;
    return r;
}

static inline __attribute__((always_inline)) void
write_scaled(int64_t n, const bool add, const float *from, const float *factor, float *restrict to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (add ? to[i] : 0.0F) + (factor ? factor[i] * from[i] : from[i]);
}

/* Writes or adds sums, times a factor each; factor NULL: 1. */
OCT_CLONES static void write_rows(int64_t rows, int64_t n, const float *from, const float *factor,
                                  bool add, float *restrict to)
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

/* Writes or adds sums of rows [first, first + m), which are (ky, kx, channel); a pass over some channels has gaps. */
static void write_sums(const oct_weight_plan *p, int64_t first, int64_t m, const float *from,
                       const float *factor, const oct_conv_weight_pass *c)
{
    const int64_t group_ins = p->s.in_c / p->s.groups;
    for (int64_t end = first + m, rows; first < end; first += rows, from += rows * p->outs) {
        const int64_t tap = first / p->ins, channel = first % p->ins;
        rows = p->ins == group_ins ? end - first : oct_min_i64(p->ins - channel, end - first);
        write_rows(rows, p->outs, from, factor, c->add,
                   c->sums + (tap * group_ins + channel) * p->outs);
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
        oct_weight_multiply_offsets(p, &ky, r, &product);
        for (int64_t at = ky.first * rows; at < ky.end * rows; at += product.m) {
            float *sums = p->all_sums ? r->sums + at * p->outs : r->sums;
            product.m = oct_min_i64(r->chunk, ky.end * rows - at);
            oct_weight_list_rows(p, at, product.m, r->rows);
            oct_weight_multiply_rows(p, b, r, &product, at, c->scale, sums);
            if (b->last) write_sums(p, at, product.m, sums, c->factor, c);
        }
    }
}

/* Computes the gradient of one segment and group of the convolution, block by block. c: the pass of this group and
 * segment; b: the group's block, with nothing done yet, fresh where it is the first segment; last: it is the last one. */
static void multiply_segment(const oct_weight_plan *p, oct_weight_block b, bool last,
                             const oct_conv_weight_pass *c, const oct_weight_scratch *r)
{
    const int64_t most = p->block_samples * p->block_lines * p->line_words * OCT_WORD;
    if (oct_weight_tiles_bytes(p) > 0) {
        oct_weight_add_tiles(p, &b, c, r->sums, r->tiles);
        if (last) write_sums(p, 0, p->s.kernel_h * p->s.kernel_w * p->ins, r->sums, c->factor, c);
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

/* Returns the pass from sample n on, the first one of a segment. */
static oct_conv_weight_pass pass_from(const oct_conv_plan *p, const oct_conv_weight_pass *pass,
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

/* A leaf among others is worked in one block. */
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

/* Describes a leaf that is worked beside others: one block has all its positions. runs: memory for its list of runs. */
static group_leaf group_leaf_of(const oct_weight_plan *p, const oct_weight_scratch *r,
                                oct_run *runs)
{
    OCT_ASSERT(p->blocks == 1);
    OCT_ASSERT((size_t)((p->ins + (p->bytes ? 1 : 0)) * p->plane * p->element) <= r->planes_bytes);
    OCT_ASSERT((size_t)(p->panels * p->panel_bytes) <= r->panels_bytes);
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

/* Computes rows [first, first + m) leaf by leaf and adds them along the tree: `waiting` is a stack, `height` high, of
 * sums that wait for their right neighbour. Full leaves share a list of rows. */
static void sum_rows_over_leaves(leaf_group *t, int64_t first, int64_t m,
                                 const oct_conv_weight_pass *c)
{
    const int64_t n = t->full.plan.outs;
    float *const sums = t->scratch.sums, *const *waiting = t->scratch.waiting;
    int height = 0;
    for (int64_t i = 0; i < t->leaves; i++) {
        const group_leaf *l = leaf_of(t, i);
        const oct_weight_scratch r = scratch_of_leaf(&t->scratch, i);
        const bool is_right = i % 2 == 1;
        int merges = oct_tree_merges(i, t->leaves) - is_right;
        const float *scale = c->scale ? c->scale + i * l->plan.s.out_c : NULL;
        oct_product product = product_of_leaf(l, &r);
        product.m = m;
        if (i == 0 || l == &t->last) oct_weight_list_rows(&l->plan, first, m, r.rows);
        oct_weight_multiply_rows(&l->plan, &l->block, &r, &product, first, scale, sums);
        if (!is_right) height++;
        write_rows(m, n, sums, c->factor, is_right, waiting[height - 1]);
        for (; merges > 0; merges--, height--)
            write_rows(m, n, waiting[height - 1], NULL, true, waiting[height - 2]);
    }
    write_sums(&t->full.plan, first, m, waiting[0], NULL, c);
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
        const oct_conv_weight_pass of_leaf = pass_from(p, c, i * p->config.leaf);
        oct_weight_pack_block(&l->plan, &of_leaf, &l->block, &r);
    }
}

/* Multiplies all leaves of a group of the convolution, whose operands are packed. */
static void multiply_leaves(leaf_group *t, const oct_conv_weight_pass *c)
{
    const int64_t rows = t->full.plan.s.kernel_w * t->full.plan.ins;
    t->full.rows = t->last.rows = (oct_kernel_rows){0};
    while (next_runs(&t->full) && next_runs(&t->last)) {
        const oct_kernel_rows *ky = &t->full.rows;
        OCT_ASSERT(ky->end == t->last.rows.end);
        for (int64_t i = 0; i < t->leaves; i++) {
            const oct_weight_scratch r = scratch_of_leaf(&t->scratch, i);
            const oct_product product = product_of_leaf(leaf_of(t, i), &r);
            oct_weight_multiply_offsets(&leaf_of(t, i)->plan, ky, &r, &product);
        }
        for (int64_t at = ky->first * rows, m; at < ky->end * rows; at += m) {
            m = oct_min_i64(t->scratch.chunk, ky->end * rows - at);
            sum_rows_over_leaves(t, at, m, c);
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
    const oct_weight_plan last = segment_plan(&p->config, pass->samples - (t.leaves - 1) * leaf);
    lay_out_scratch(&p->weight.segment, t.leaves, scratch, &t.scratch);
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
    if (oct_weight_tiles_bytes(&p->weight.segment) > 0) cut.step = OCT_WINOGRAD_LANES;
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
    const oct_weight_plan first =
        pass->samples >= each ? p->weight.segment : segment_plan(&p->config, pass->samples);
    oct_conv_weight_pass group_pass;
    oct_weight_scratch r;
    lay_out_scratch(&first, 1, scratch, &r);
    for (int g = 0; g < s->groups; g++) {
        if (!pass_of_group(p, pass, g, &group_pass)) continue;
        for (int64_t n = 0; n < pass->samples; n += each) {
            const int64_t rest = pass->samples - n;
            const bool full = n == 0 || rest >= each;
            oct_weight_plan segment = full ? first : segment_plan(&p->config, rest);
            const oct_conv_weight_pass from = pass_from(p, &group_pass, n);
            segment.ins = group_pass.channels;
            multiply_segment(
                &segment, (oct_weight_block){.group = g, .channel = from.channel, .fresh = n == 0},
                rest <= each, &from, &r);
        }
    }
}
