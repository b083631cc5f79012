/* What the convolution of a layer needs to know: which way it goes, its blocks, its tables, its sizes.
 * qconv.c has the ways. */
#include "quant/kernel/qconv.h"

#include "core/base/mem.h"
#include "core/base/int_math.h"

#include <string.h>

/* Blocks of products have about 16384 accumulators, which stay in the second-level cache with what is
 * multiplied; those of an affine plan, which reads each code once, stay in the first-level cache. */
enum { BLOCK_SUMS = 16384, AFFINE_BLOCK_SUMS = 4096, MIN_POSITIONS = 64, MAX_POSITIONS = 256 };

static int64_t positions_wanted(const oct_qconv_plan *p)
{
    const int64_t sums = p->affine ? AFFINE_BLOCK_SUMS : BLOCK_SUMS;
    return oct_min_i64(oct_max_i64(sums / p->shape.out_c, MIN_POSITIONS), MAX_POSITIONS);
}

static oct_conv_window_layout layout_of(const oct_qconv_plan *p)
{
    return (oct_conv_window_layout){.pixel_bytes = p->shape.in_c,
                                    .tap_words = p->shape.in_c / p->shape.groups / OCT_WORD,
                                    .acc_stride = p->shape.out_c,
                                    .wanted = positions_wanted(p)};
}

/* Blocks have `wanted` positions or somewhat less, but at least a line, all about the same. */
static void plan_blocks(oct_qconv_plan *p)
{
    const oct_conv_shape *s = &p->shape;
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
static int extent_w(const oct_conv_shape *s)
{
    return (int)oct_conv_extent(s->kernel_w, s->dilation_w);
}

static void plan_weights(oct_qconv_plan *p)
{
    const oct_conv_shape *s = &p->shape;
    const int64_t group_c = s->in_c / s->groups, group_o = s->out_c / s->groups;
    const bool one_run = taps_are_one_run(s);
    p->taps = one_run ? s->kernel_h : (int64_t)s->kernel_h * s->kernel_w;
    p->run = one_run ? s->kernel_w * s->in_c : group_c;
    if (p->affine)
        p->packed_bytes = s->out_c;
    else if (p->depthwise)
        p->packed_bytes = p->kernel->depthwise_bytes(s->in_c, s->kernel_h, extent_w(s));
    else
        p->group_bytes = oct_packed_taps_bytes(p->kernel, group_o, p->taps, p->run);
    p->packed_bytes = oct_round_up(p->packed_bytes + p->group_bytes * s->groups, OCT_CACHE_LINE);
}

static void plan_tables(oct_qconv_plan *p)
{
    const oct_conv_window_layout layout = layout_of(p);
    if (p->depthwise || p->affine) return;
    if (p->copies) {
        p->table_bytes =
            p->positions * (int64_t)sizeof(oct_row) + p->taps * (int64_t)sizeof(oct_run);
    } else {
        oct_conv_window_init(&p->window, &p->shape, OCT_FORWARD, &layout);
        p->table_bytes = (int64_t)p->window.table_bytes;
    }
}

static void plan_scratch(oct_qconv_plan *p)
{
    const oct_conv_shape *s = &p->shape;
    const int64_t stripe = p->copies ? p->period * p->stripe_lines * p->pitch + OCT_WORD : 0;
    const int64_t sums = p->positions * s->out_c;
    const int64_t columns =
        p->depthwise ? oct_depthwise_scratch(s->kernel_h, extent_w(s), s->stride_w, s->out_w) : 0;
    p->acc_at = oct_round_up(stripe, OCT_CACHE_LINE);
    p->wide_at = p->acc_at + oct_round_up(sums * (int64_t)sizeof(int32_t), OCT_CACHE_LINE);
    p->mask_at =
        p->wide_at + (p->wide ? oct_round_up(sums * (int64_t)sizeof(int64_t), OCT_CACHE_LINE) : 0);
    p->line_at = p->mask_at + oct_round_up(sums / 8 + 1, OCT_CACHE_LINE);
    p->columns_at =
        p->line_at + oct_round_up(s->kernel_h * (int64_t)sizeof(uint8_t *), OCT_CACHE_LINE);
    p->scratch_bytes = p->columns_at + oct_round_up(columns, OCT_CACHE_LINE);
}

static void plan_all(oct_qconv_plan *p)
{
    const oct_conv_shape *s = &p->shape;
    plan_weights(p);
    plan_blocks(p);
    const int64_t seen = (s->out_w - 1) * s->stride_w + extent_w(s);
    p->border = s->pad_left * s->in_c;
    p->pitch = oct_max_i64(s->pad_left + s->in_w, seen) * s->in_c;
    p->stripe_lines = oct_qconv_stripe_lines(p, p->lines);
    plan_tables(p);
    plan_scratch(p);
}

void oct_qconv_plan_init(oct_qconv_plan *p, const oct_kernel *kernel, const oct_conv_shape *s,
                         oct_qparams in)
{
    *p = (oct_qconv_plan){.kernel = kernel,
                          .shape = *s,
                          .in = in,
                          .wide = oct_codes_dtype(in) == OCT_U16,
                          .depthwise = oct_conv_is_depthwise(s)};
    const bool bordered = oct_conv_sees_padding(s) && in.zero_point != 0;
    const bool ragged = s->in_c / s->groups % OCT_WORD != 0;
    p->copies = p->wide || (!p->depthwise && (bordered || ragged));
    plan_all(p);
}

void oct_qconv_plan_affine(oct_qconv_plan *p, const oct_kernel *kernel, const oct_conv_shape *s,
                           oct_qparams in)
{
    *p = (oct_qconv_plan){.kernel = kernel,
                          .shape = *s,
                          .in = in,
                          .affine = true,
                          .wide = oct_codes_dtype(in) == OCT_U16};
    plan_all(p);
}

static void list_stripe(oct_qconv_plan *p, void *memory)
{
    const oct_conv_shape *s = &p->shape;
    const int64_t words = (p->run + OCT_WORD - 1) / OCT_WORD;
    oct_row *row = p->rows = memory;
    p->runs = (oct_run *)(void *)(p->rows + p->positions);
    for (int64_t n = 0; n < p->period; n++)
        for (int64_t line = 0; line < p->lines; line++)
            for (int64_t x = 0; x < s->out_w; x++, row++) {
                const int64_t at = n * p->stripe_lines + line * s->stride_h;
                *row = (oct_row){.x = at * p->pitch + x * s->stride_w * s->in_c,
                                 .acc = (row - p->rows) * s->out_c};
            }
    for (int64_t i = 0; i < p->taps; i++) {
        const int64_t ky = taps_are_one_run(s) ? i : i / s->kernel_w;
        const int64_t kx = taps_are_one_run(s) ? 0 : i % s->kernel_w;
        p->runs[i] = (oct_run){.x = ky * s->dilation_h * p->pitch + kx * s->dilation_w * s->in_c,
                               .tile = i * words,
                               .words = words};
    }
}

void oct_qconv_plan_tables(oct_qconv_plan *p, void *memory)
{
    if (p->depthwise || p->affine) return;
    if (p->copies)
        list_stripe(p, memory);
    else
        oct_conv_window_tables(&p->window, memory);
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
    for (int64_t g = 0; g < s->groups; g++)
        oct_pack_taps(p->kernel, group_o, p->taps, p->run, codes + g * group_o * p->taps * p->run,
                      (int8_t *)packed + g * p->group_bytes);
}

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
