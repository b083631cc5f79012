/* What is known of a convolution before it runs: the kernel table (a pure function of the set of instruction sets, so
 * the choice for a machine that no machine has is a unit test), the order of packed weights, which way it goes, its
 * blocks, its tables, its sizes. qconv.c has the ways. */
#include "quant/kernel/simd_table.h"
#include "quant/kernel/qconv.h"

#include "core/base/mem.h"
#include "core/base/int_math.h"

#include <string.h>

static const oct_kernel *const kernels[] = {
#define OCT_KERNEL(ISA, isa) &oct_kernel_##isa,
#include "quant/kernel/kernel_list.def"
#undef OCT_KERNEL
};

const oct_kernel *oct_kernel_select(oct_isa_set have)
{
    size_t i = 0;
    while (i + 1 < OCT_COUNT(kernels) && !oct_isa_has(have, kernels[i]->isa))
        i++;
    return kernels[i];
}

const oct_kernel *oct_kernel_here(void)
{
    return oct_kernel_select(oct_cpu_isa());
}

/* The order of packed weights, the same for every kernel table. */

int64_t oct_panel_bytes(const oct_kernel *kernel, int64_t taps, int64_t k)
{
    return taps * oct_divide_up(k, OCT_WORD) * kernel->bytes.tile_bytes;
}

int64_t oct_packed_taps_bytes(const oct_kernel *kernel, int64_t n, int64_t taps, int64_t k)
{
    return oct_divide_up(n, kernel->bytes.col_tile) * oct_panel_bytes(kernel, taps, k);
}

/* Packs a run of k weights of `columns` columns, `pitch` apart, and returns where the next one goes. */
static int8_t *pack_run(const oct_kernel *kernel, int64_t columns, int64_t k, int64_t pitch,
                        const int8_t *w, int8_t *packed)
{
    enum { MOST_COLUMNS = 16 };
    int8_t tile[MOST_COLUMNS * OCT_WORD] = {0};
    OCT_ASSERT(kernel->bytes.col_tile <= MOST_COLUMNS);
    for (int64_t at = 0; at < k; at += OCT_WORD, packed += kernel->bytes.tile_bytes) {
        if (k - at < OCT_WORD) memset(tile, 0, sizeof tile);
        for (int64_t c = 0; c < columns; c++) {
            const int8_t *from = w + c * pitch + at;
            if (k - at >= OCT_WORD)
                memcpy(tile + c * OCT_WORD, from, OCT_WORD);
            else
                memcpy(tile + c * OCT_WORD, from, (size_t)(k - at));
        }
        oct_pack_tile(&kernel->bytes, tile, packed);
    }
    return packed;
}

void oct_pack_taps(const oct_kernel *kernel, int64_t n, int64_t taps, int64_t k, const int8_t *w,
                   int8_t *packed)
{
    const int64_t pitch = taps * k;
    for (int64_t col = 0; col < n; col += kernel->bytes.col_tile) {
        const int64_t columns = n - col < kernel->bytes.col_tile ? n - col : kernel->bytes.col_tile;
        for (int64_t tap = 0; tap < taps; tap++)
            packed = pack_run(kernel, columns, k, pitch, w + col * pitch + tap * k, packed);
    }
}

int64_t oct_depthwise_packed_bytes(int taps, int64_t channels, int kernel_h, int kernel_w)
{
    return oct_divide_up(channels, OCT_DEPTHWISE_LANES) * kernel_w * oct_divide_up(kernel_h, taps) *
           OCT_DEPTHWISE_LANES * OCT_DEPTHWISE_WORD;
}

/* Packs as [channels/16][columns][kernel_h/taps][16 channels][taps]; zeros where there is no channel or no row. */
void oct_depthwise_pack_taps(int taps, const oct_depthwise_weights *w, int8_t *packed)
{
    const int width = OCT_DEPTHWISE_WORD / taps;
    for (int64_t c = 0; c < w->channels; c += OCT_DEPTHWISE_LANES)
        for (int x = 0; x < oct_depthwise_columns(w); x++)
            for (int ky = 0; ky < w->kernel_h; ky += taps)
                for (int64_t lane = c; lane < c + OCT_DEPTHWISE_LANES; lane++)
                    for (int tap = ky; tap < ky + taps; tap++, packed += width) {
                        const bool real = lane < w->channels && tap < w->kernel_h;
                        const int32_t code = real ? oct_depthwise_weight(w, lane, tap, x) : 0;
                        memcpy(packed, &code, (size_t)width); /* its low bytes */
                    }
}

/* Blocks of products have about 16384 accumulators, which stay in the second-level cache with what is
 * multiplied; those of an affine plan, which reads each code once, stay in the first-level cache. Where
 * rows fill tiles blocks are larger, so that the edges of small planes have rows enough. */
enum {
    BLOCK_SUMS = 16384,
    TILED_BLOCK_SUMS = 65536,
    AFFINE_BLOCK_SUMS = 4096,
    MIN_POSITIONS = 64,
    MAX_POSITIONS = 256,
    SMALL_PLANE = MIN_POSITIONS, /* most see the padding, and a block has whole samples */
    WIDENED_COLUMNS = 32,        /* the fewest that pay for widening codes first */
    FILLING_SAMPLES = 8          /* whose corners of planes are rows enough for a tile */
};

static int64_t positions_wanted(const oct_qconv_plan *p)
{
    const int64_t sums = p->affine                           ? AFFINE_BLOCK_SUMS
                         : p->kernel->tiles && !p->depthwise ? TILED_BLOCK_SUMS
                                                             : BLOCK_SUMS;
    return oct_min_i64(oct_max_i64(sums / p->shape.out_c, MIN_POSITIONS), MAX_POSITIONS);
}

/* Chooses a block's size, about positions_wanted outputs: as many lines in each, or `period` whole small samples. */
static void plan_blocks(oct_qconv_plan *p)
{
    const oct_conv_shape *s = &p->shape;
    if (p->winograd.bytes) {
        p->period = p->winograd.period;
        p->lines = p->winograd.lines;
        p->positions = p->period * p->lines * s->out_w;
        return;
    }
    const int64_t wanted = positions_wanted(p);
    const int64_t most = oct_max_i64(wanted / s->out_w, 1);
    const int64_t blocks = (s->out_h + most - 1) / most;
    p->period = oct_max_i64(wanted / (s->out_h * s->out_w), 1);
    p->lines = p->period > 1 ? s->out_h : (s->out_h + blocks - 1) / blocks;
    p->positions = oct_max_i64(wanted, s->out_w);
}

/* Whether the taps of a window line are one run of codes of a line of x. */
static bool taps_are_one_run(const oct_conv_shape *s)
{
    return s->groups == 1 && s->dilation_w == 1;
}

/* The width of a depthwise kernel for the kernel tables, which know no dilation: with zeros between the
 * weights of its taps. Its lines are picked one by one. */
static int dilated_width(const oct_conv_shape *s)
{
    return (int)oct_conv_extent(s->kernel_w, s->dilation_w);
}

/* Chooses taps and run, the number and length of adjacent codes in a window, and so the bytes of packed weights. */
static void plan_weights(oct_qconv_plan *p)
{
    const oct_conv_shape *s = &p->shape;
    const int64_t group_c = s->in_c / s->groups, group_o = s->out_c / s->groups;
    const bool one_run = taps_are_one_run(s);
    p->taps = one_run ? s->kernel_h : (int64_t)s->kernel_h * s->kernel_w;
    p->run = one_run ? s->kernel_w * s->in_c : group_c;
    if (p->affine)
        p->packed_bytes = s->out_c;
    else if (p->winograd.bytes)
        p->packed_bytes = p->winograd.packed_bytes;
    else if (p->depthwise)
        p->packed_bytes = p->kernel->depthwise_bytes(s->in_c, s->kernel_h, dilated_width(s));
    else
        p->group_bytes = oct_packed_taps_bytes(p->kernel, group_o, p->taps, p->run);
    p->packed_bytes = oct_round_up(p->packed_bytes + p->group_bytes * s->groups, OCT_CACHE_LINE);
}

static bool has_tables(const oct_qconv_plan *p)
{
    return !p->depthwise && !p->affine && !p->winograd.bytes;
}

/* Counts the bytes of the tables: rows and runs of the stripe, or those of windows. */
static void plan_tables(oct_qconv_plan *p)
{
    const oct_conv_shape *s = &p->shape;
    if (!has_tables(p)) return;
    if (p->copies)
        p->table_bytes =
            p->positions * (int64_t)sizeof(oct_row) + p->taps * (int64_t)sizeof(oct_run);
    if (!p->copies || p->window_samples > 0) {
        const oct_conv_window_layout layout = {.pixel_bytes = s->in_c * p->term_bytes,
                                               .tap_words =
                                                   s->in_c / s->groups * p->term_bytes / OCT_WORD,
                                               .acc_stride = s->out_c,
                                               .wanted = positions_wanted(p)};
        oct_conv_window_init(&p->window, s, OCT_FORWARD, &layout);
        p->table_bytes += (int64_t)p->window.table_bytes;
    }
}

/* Divides the scratch of a thread: stripe, accumulators of both widths, mask, lines, columns. */
static void plan_scratch(oct_qconv_plan *p)
{
    const oct_conv_shape *s = &p->shape;
    const int64_t stripe = p->winograd.bytes ? p->winograd.scratch_bytes
                           : p->copies       ? p->period * p->stripe_lines * p->pitch + OCT_WORD
                           : p->term_bytes > 1
                               ? p->period * s->in_h * s->in_w * s->in_c * p->term_bytes
                               : 0;
    const int64_t sums = p->positions * s->out_c;
    /* The columns that depthwise kernels interleave, with room for those of every kernel table. */
    const int64_t columns = p->depthwise ? ((s->out_w - 1) * s->stride_w + dilated_width(s)) *
                                               oct_divide_up(s->kernel_h, OCT_DEPTHWISE_MIN_TAPS) *
                                               OCT_DEPTHWISE_MAX_CHANNELS * OCT_DEPTHWISE_WORD
                                         : 0;
    p->acc_at = oct_round_up(stripe, OCT_CACHE_LINE);
    p->wide_at = p->acc_at + oct_round_up(sums * (int64_t)sizeof(int32_t), OCT_CACHE_LINE);
    p->mask_at =
        p->wide_at + (p->wide ? oct_round_up(sums * (int64_t)sizeof(int64_t), OCT_CACHE_LINE) : 0);
    p->line_at = p->mask_at + oct_round_up(sums / 8 + 1, OCT_CACHE_LINE);
    p->columns_at =
        p->line_at + oct_round_up((s->kernel_h + 1) * (int64_t)sizeof(uint8_t *), OCT_CACHE_LINE);
    p->scratch_bytes = p->columns_at + oct_round_up(columns, OCT_CACHE_LINE);
}

/* Computes the sizes of everything; a line of the stripe reaches over all windows of an output line. */
static void plan_sizes(oct_qconv_plan *p)
{
    const oct_conv_shape *s = &p->shape;
    plan_weights(p);
    plan_blocks(p);
    const int64_t reach = (s->out_w - 1) * s->stride_w + dilated_width(s);
    p->border = s->pad_left * s->in_c;
    p->pitch = oct_max_i64(s->pad_left + s->in_w, reach) * s->in_c * p->term_bytes;
    p->stripe_lines = oct_qconv_stripe_lines(p, p->lines);
    plan_tables(p);
    plan_scratch(p);
}

/* Lines are copied where codes have 16 bits, where padding does not count as 0, or where a tap is no whole word; and
 * where rows are to fill tiles, since those of a stripe are one class, at even distances. */
void oct_qconv_plan_init(oct_qconv_plan *p, const oct_kernel *kernel, const oct_conv_shape *s,
                         oct_qparams in, int64_t samples)
{
    *p = (oct_qconv_plan){.kernel = kernel,
                          .shape = *s,
                          .in = in,
                          .term_bytes = 1,
                          .wide = oct_codes_dtype(in) == OCT_U16,
                          .depthwise = oct_conv_is_depthwise(s)};
    if (!p->wide)
        oct_winograd_init(&p->winograd, &kernel->bytes, s, samples, OCT_FORWARD,
                          (uint8_t)in.zero_point);
    const bool bordered = oct_conv_sees_padding(s) && in.zero_point != 0;
    const bool ragged = s->in_c / s->groups % OCT_WORD != 0;
    p->copies = p->wide || (has_tables(p) && (bordered || ragged));
    /* Rows of one class of positions fill tiles where a block has many samples or, but for the edges, a large plane. */
    if (!p->copies && kernel->tiles && !p->depthwise && oct_conv_sees_padding(s) &&
        taps_are_one_run(s)) {
        p->copies = true;
        p->window_samples = s->out_h * s->out_w < SMALL_PLANE ? FILLING_SAMPLES : 0;
    }
    /* Not where a stride of more than two leaves most of the input out. */
    const bool most_is_seen =
        s->stride_h <= oct_max_i64(s->kernel_h, 2) && s->stride_w <= oct_max_i64(s->kernel_w, 2);
    if (kernel->pairs_codes && has_tables(p) && !p->wide && !ragged && most_is_seen &&
        s->out_c / s->groups >= WIDENED_COLUMNS) {
        p->term_bytes = 2;
        p->copies = p->copies || s->out_h * s->out_w >= SMALL_PLANE;
    }
    plan_sizes(p);
}

void oct_qconv_plan_affine(oct_qconv_plan *p, const oct_kernel *kernel, const oct_conv_shape *s,
                           oct_qparams in)
{
    *p = (oct_qconv_plan){.kernel = kernel,
                          .shape = *s,
                          .in = in,
                          .term_bytes = 1,
                          .affine = true,
                          .wide = oct_codes_dtype(in) == OCT_U16};
    plan_sizes(p);
}

/* Writes the rows of a block, as offsets of windows in the stripe, and the runs of codes of a window. */
static void write_stripe_tables(oct_qconv_plan *p, void *memory)
{
    const oct_conv_shape *s = &p->shape;
    const int64_t pixel = s->in_c * p->term_bytes;
    const int64_t words = oct_divide_up(p->run * p->term_bytes, OCT_WORD);
    oct_row *row = p->rows = memory;
    p->runs = (oct_run *)(void *)(p->rows + p->positions);
    for (int64_t n = 0; n < p->period; n++)
        for (int64_t line = 0; line < p->lines; line++)
            for (int64_t x = 0; x < s->out_w; x++, row++) {
                const int64_t at = n * p->stripe_lines + line * s->stride_h;
                *row = (oct_row){.x = at * p->pitch + x * s->stride_w * pixel,
                                 .acc = (row - p->rows) * s->out_c};
            }
    for (int64_t i = 0; i < p->taps; i++) {
        const int64_t ky = taps_are_one_run(s) ? i : i / s->kernel_w;
        const int64_t kx = taps_are_one_run(s) ? 0 : i % s->kernel_w;
        p->runs[i] = (oct_run){.x = ky * s->dilation_h * p->pitch + kx * s->dilation_w * pixel,
                               .tile = i * words,
                               .words = words};
    }
}

void oct_qconv_plan_tables(oct_qconv_plan *p, void *memory)
{
    if (!has_tables(p)) return;
    if (p->copies) write_stripe_tables(p, memory);
    if (!p->copies || p->window_samples > 0)
        oct_conv_window_tables(&p->window, p->copies ? (void *)(p->runs + p->taps) : memory);
}

/* Packs the weights of n columns for bytes.pairs, in panels as large as those of oct_pack_taps: the terms of a column are
 * whole words, and each is a number of 16 bits. */
static void pack_pairs(const oct_qconv_plan *p, int64_t n, const int8_t *codes, int8_t *packed)
{
    const int64_t terms = p->taps * p->run, columns = p->kernel->bytes.col_tile;
    int16_t *to = (int16_t *)(void *)packed;
    for (int64_t first = 0; first < n; first += columns)
        for (int64_t i = 0; i < terms; i += 2)
            for (int64_t c = first; c < first + columns; c++, to += 2)
                for (int lane = 0; lane < 2; lane++)
                    to[lane] = c < n ? codes[c * terms + i + lane] : 0;
}

void oct_qconv_pack(const oct_qconv_plan *p, const int8_t *codes, void *packed)
{
    const oct_conv_shape *s = &p->shape;
    const int64_t group_o = s->out_c / s->groups;
    if (p->affine) {
        memcpy(packed, codes, (size_t)s->out_c);
        return;
    }
    if (p->depthwise) {
        const oct_depthwise_weights w = {s->in_c, s->kernel_h, s->kernel_w, s->dilation_w, codes};
        p->kernel->depthwise_pack(&w, packed);
        return;
    }
    if (p->winograd.bytes) {
        oct_winograd_pack(&p->winograd, codes, 0, s->out_c / p->kernel->bytes.col_tile, packed);
        return;
    }
    for (int64_t g = 0; g < s->groups; g++) {
        const int8_t *of_group = codes + g * group_o * p->taps * p->run;
        int8_t *to = (int8_t *)packed + g * p->group_bytes;
        if (p->term_bytes > 1)
            pack_pairs(p, group_o, of_group, to);
        else
            oct_pack_taps(p->kernel, group_o, p->taps, p->run, of_group, to);
    }
}

/* Sums may be taken in any order, so positive and negative terms alone are bounds of all partial sums. */
int64_t oct_qconv_bound(const oct_conv_shape *s, const int8_t *codes, int64_t channel, int64_t bias,
                        int32_t x_lo, int32_t x_hi)
{
    const int64_t k = oct_conv_depth(s);
    const int8_t *w = codes + channel * k;
    /* most, least: of the whole sum; above, below: of any partial sum, in any order. */
    int64_t most = 0, least = 0, above = 0, below = 0;
    for (int64_t i = 0; i < k; i++) {
        const int64_t a = (int64_t)w[i] * x_lo, b = (int64_t)w[i] * x_hi;
        most += oct_max_i64(a, b);
        least += oct_min_i64(a, b);
        above += oct_max_i64(oct_max_i64(a, b), 0);
        below += oct_min_i64(oct_min_i64(a, b), 0);
    }
    return oct_max_i64(oct_max_i64(most + bias, -(least + bias)), oct_max_i64(above, -below));
}
