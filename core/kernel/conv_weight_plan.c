/* Plans the gradient of weights: blocks of positions, their operands, leaves side by side, and scratch. */
#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "core/kernel/conv_impl.h"

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

/* Plans a line as (phases, pitch) values: a phase has the columns of one remainder by the stride, `shifts` more than the
 * output. Where quads are ordered, a plane is there several times: in copy k a phase begins with its value k, for shifts
 * with remainder k by 4. So lines of up to 3 shifts are as long as those of the output, and one run. */
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
    p->pitch = p->line_words * 4 / p->element + (p->quads ? shifts / 4 * 4 : shifts);
    p->line = p->phases * p->pitch;
    p->sample = oct_weight_plane_lines(p, p->block_lines) * p->line;
    p->copy = p->block_samples * p->sample;
    p->plane = p->copies * p->copy + (p->bytes ? OCT_PATCH_CHANNELS : 0);
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

oct_weight_plan oct_weight_segment_plan(const oct_conv_config *c, int64_t samples)
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
    p.tiles_bytes = oct_weight_tiles_bytes(&p);
    p.all_sums = p.full < c->leaf || (p.blocks > 1 && p.tiles_bytes == 0);
    return p;
}

/* Carves sums of `bytes`, and as many for each level of the tree where leaves are computed side by side. */
static void carve_sums(int64_t leaves, size_t bytes, void *scratch, size_t *used,
                       oct_weight_scratch *r)
{
    r->sums = oct_carve(scratch, used, bytes);
    for (int i = 0; i < OCT_LEAF_GROUP_LEVELS && leaves > 1; i++)
        r->waiting[i] = oct_carve(scratch, used, bytes);
}

size_t oct_weight_lay_out(const oct_weight_plan *p, int64_t leaves, void *scratch,
                          oct_weight_scratch *r)
{
    size_t used = 0;
    const int64_t depth = oct_conv_depth(&p->s);
    if (p->tiles_bytes > 0) {
        const int64_t part = OCT_TILES_ROWS * OCT_TILES_COLUMNS;
        const int64_t taps = p->s.kernel_h * p->s.kernel_w;
        r->tiles_bytes = p->tiles_bytes;
        r->tiles = oct_carve(scratch, &used, (size_t)leaves * r->tiles_bytes);
        r->points =
            oct_carve(scratch, &used,
                      (size_t)((OCT_TILES_POINTS + p->digits * taps) * part) * sizeof *r->points);
        carve_sums(leaves, (size_t)(p->all_sums ? depth * p->outs : taps * part) * sizeof *r->sums,
                   scratch, &used, r);
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
    carve_sums(leaves, sums, scratch, &used, r);
    r->acc_sums = (p->blocks > 1 ? depth : few) * p->outs;
    r->num_offsets = p->s.kernel_h * p->outs;
    const size_t digits = p->bytes ? (size_t)p->digits * sizeof *r->acc : 0;
    r->acc = oct_carve(scratch, &used, digits * (size_t)r->acc_sums);
    r->offsets = oct_carve(
        scratch, &used, p->bytes ? (size_t)(leaves * 2 * r->num_offsets) * sizeof *r->offsets : 0);
    const int64_t listed = oct_max_i64(r->chunk, p->bytes ? p->s.kernel_h : 0);
    r->rows = oct_carve(scratch, &used, (size_t)listed * sizeof *r->rows);
    const int64_t grad_words = p->s.out_w * oct_row_words(p->kernel, p->grad_bf16, p->outs);
    r->grad = oct_carve(scratch, &used, p->rounds_grad ? (size_t)grad_words * 4 : 0);
    const oct_weight_plan raw = oct_weight_raw_plan(p);
    r->raw = oct_carve(scratch, &used, p->quads ? (size_t)(p->ins * raw.plane * p->element) : 0);
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
    w->segment = oct_weight_segment_plan(&p->config, w->segment_samples);
    /* Leaves that are computed side by side: as many as fit a block together. */
    const int64_t words = w->segment.block_samples * w->segment.block_lines * w->segment.line_words;
    const int64_t most = oct_min_i64(p->config.max_leaves, OCT_CONV_MAX_LEAVES);
    w->leaves = 1;
    while (!w->segment.all_sums && 2 * w->leaves <= most && 2 * w->leaves * words <= GROUP_WORDS)
        w->leaves *= 2;
    const size_t one = oct_weight_lay_out(&w->segment, 1, NULL, &r);
    const size_t all = oct_weight_lay_out(&w->segment, w->leaves, NULL, &r);
    w->scratch_bytes = one > all ? one : all;
}
