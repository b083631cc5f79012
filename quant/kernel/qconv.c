/* Convolution over codes without im2col.
 *
 * The positions of the output go by in blocks of whole lines, or of whole samples where planes are small,
 * whose accumulators stay in cache between product and epilogue. The plan chooses one of five ways to them:
 *     window  rows of the product are pointers into the input, and taps in the padding are not even
 *             listed (core/product/conv_window.h): where codes of a tap are whole words and padding counts
 *             as 0;
 *     stripe  the input lines of a block are copied once, with their border, into a stripe of scratch,
 *             where the taps of a window line are one run of codes: otherwise, and where rows are to fill tiles
 *             or codes are widened (a small plane is widened as it is, for the first way);
 *     winograd  3 x 3 filters that make 4 x 4 or 2 x 2 positions at once (core/product/winograd.h): where products of
 *             numbers of 16 bits are so much fewer that they take less time;
 *     lines   one filter a channel: line by line (quant/kernel/kernel.h);
 *     affine  a factor a channel: code by code.
 *
 * A code of 16 bits is 256 * high + low byte: a stripe takes the high bytes, then the low ones, and two
 * exact sums of products of bytes are added.
 */
#include "quant/kernel/qconv.h"

#include "core/base/int_math.h"
#include "quant/rounding/bits.h"

#include <string.h>

/* Weights that a block reads for one class of positions after the other stay in the second-level cache
 * when they are not many; of more, some columns at a time are taken through all classes. */
static const int64_t heavy_bytes = 256 * 1024;
enum {
    HEAVY_COLUMNS = 64, /* a multiple of every kernel's col_tile */
    CLASSES = 16,       /* of a block at a time; 9 of 3 x 3 filters in small planes */
};

/* A pass and the parts of its scratch. */
typedef struct worker {
    const oct_qconv_plan *plan;
    const oct_qconv_pass *pass;
    const oct_requant *requant; /* sums become codes at once; NULL: they are accumulators */
    uint8_t *stripe;
    int32_t *acc;         /* of a block */
    int64_t *wide;        /* the same of 16-bit codes */
    uint8_t *mask;        /* bits of a block that starts inside a byte of the mask */
    const uint8_t **line; /* depthwise: the input lines of one of output */
    void *columns;        /* depthwise: interleaved */
} worker;

/* Whole lines of a few samples. */
typedef struct block {
    int64_t sample, samples, line, lines;
} block;

/* Divides a thread's scratch into the arrays of a pass, at the offsets of the plan. */
static worker make_worker(const oct_qconv_plan *plan, const oct_qconv_pass *pass, void *scratch)
{
    uint8_t *at = scratch;
    return (worker){.plan = plan,
                    .pass = pass,
                    .stripe = at,
                    .acc = (int32_t *)(void *)(at + plan->acc_at),
                    .wide = (int64_t *)(void *)(at + plan->wide_at),
                    .mask = at + plan->mask_at,
                    .line = (const uint8_t **)(void *)(at + plan->line_at),
                    .columns = at + plan->columns_at};
}

/* Returns the requantizer's constants moved to `channel`, and its addend to the element of y that `to` points to. */
static oct_requant requant_at(const worker *w, int64_t channel, const uint8_t *to)
{
    oct_requant q = *w->requant;
    q.bias += channel;
    q.multiplier += channel;
    if (q.addend) q.addend += to - (const uint8_t *)w->pass->y;
    return q;
}

/* Some columns of a group. */
typedef struct columns {
    int64_t group, first, count;
} columns;

/* Multiplies rows of codes with some output channels of a group. out: the block's accumulators, or its codes. */
static void multiply_columns(const worker *w, const oct_product *rows, columns c, void *out)
{
    const oct_qconv_plan *plan = w->plan;
    const oct_conv_shape *s = &plan->shape;
    const oct_kernel *kernel = plan->kernel;
    const int64_t channel = c.group * (s->out_c / s->groups) + c.first;
    oct_product p = *rows;
    p.panel_bytes = oct_panel_bytes(kernel, plan->taps, plan->run);
    p.x = (const char *)rows->x + c.group * (s->in_c / s->groups) * plan->term_bytes;
    p.packed = (const char *)w->pass->packed + c.group * plan->group_bytes +
               c.first / kernel->bytes.col_tile * p.panel_bytes;
    p.n = c.count;
    if (w->requant) {
        uint8_t *to = (uint8_t *)out + channel;
        const oct_requant q = requant_at(w, channel, to);
        p.acc = to;
        (plan->term_bytes > 1 ? kernel->pairs_codes : kernel->product_codes)(&p, &q);
    } else {
        p.acc = (int32_t *)out + channel;
        (plan->term_bytes > 1 ? kernel->bytes.pairs : kernel->bytes.product)(&p);
    }
}

/* Multiplies a block with all output channels. p[i]: the rows of one class, positions where the padding cuts the same
 * taps off. Many weights go HEAVY_COLUMNS channels at a time through all classes, so that they stay in cache. */
static void multiply_rows(const worker *w, const oct_product *p, int64_t count, void *out)
{
    const oct_conv_shape *s = &w->plan->shape;
    const int64_t channels = s->out_c / s->groups;
    const int64_t at_once = w->plan->group_bytes > heavy_bytes ? HEAVY_COLUMNS : channels;
    for (int64_t g = 0; g < s->groups; g++)
        for (int64_t first = 0; first < channels; first += at_once)
            for (int64_t i = 0; i < count; i++)
                multiply_columns(w, &p[i],
                                 (columns){g, first, oct_min_i64(at_once, channels - first)}, out);
}

/* Puts the class of most positions first: it has most to do while weights come from memory. */
static void move_largest_first(oct_product *p, int64_t count)
{
    for (int64_t i = 1; i < count; i++) {
        if (p[i].m <= p[0].m) continue;
        const oct_product larger = p[i];
        p[i] = p[0];
        p[0] = larger;
    }
}

OCT_CLONES
static void widen_codes(int64_t n, const uint8_t *restrict codes, int16_t *restrict out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = codes[i];
}

/* Multiplies a block whose rows are windows in x itself, or in a widened copy of whole samples, class by class of the taps
 * that the padding leaves. */
static void multiply_window_block(const worker *w, const block *b, void *out)
{
    const oct_qconv_plan *plan = w->plan;
    const oct_conv_window *window = &plan->window;
    const oct_conv_window_block *part = &window->blocks[b->line / plan->lines];
    const int64_t sample = window->x_bytes / plan->term_bytes; /* codes */
    const uint8_t *x = (const uint8_t *)w->pass->x + b->sample * sample;
    if (plan->term_bytes > 1) {
        widen_codes(b->samples * sample, x, (int16_t *)(void *)w->stripe);
        x = w->stripe;
    }
    OCT_ASSERT(window->period == plan->period && part->position == b->line * plan->shape.out_w);
    const oct_conv_window_class *classes = &window->classes[part->first_class];
    oct_product p[CLASSES];
    for (int64_t first = 0, count; first < part->classes; first += count) {
        count = oct_min_i64(part->classes - first, CLASSES);
        for (int64_t i = 0; i < count; i++)
            p[i] = oct_conv_window_product(window, &classes[first + i], b->samples, x, NULL);
        move_largest_first(p, count);
        multiply_rows(w, p, count, out);
    }
}

/* Which byte of each code a stripe holds, and that byte of the zero point. */
typedef struct code_bytes {
    int shift; /* 8: the high bytes */
    uint8_t fill;
} code_bytes;

OCT_CLONES
static void extract_bytes(int64_t n, const uint16_t *restrict codes, int shift,
                          uint8_t *restrict out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (uint8_t)(codes[i] >> shift);
}

/* Writes `count` times the fill, as codes of the stripe, and returns what follows. */
static uint8_t *fill_codes(const worker *w, code_bytes bytes, int64_t count, uint8_t *out)
{
    if (w->plan->term_bytes > 1)
        for (int64_t i = 0; i < count; i++)
            ((int16_t *)(void *)out)[i] = bytes.fill;
    else
        memset(out, bytes.fill, (size_t)count);
    return out + count * w->plan->term_bytes;
}

/* Copies line y of a sample, or fill if it is outside, with its padding; of 16-bit codes the byte at bytes.shift. */
static void copy_line(const worker *w, code_bytes bytes, int64_t sample, int64_t y, uint8_t *out)
{
    const oct_conv_shape *s = &w->plan->shape;
    const int64_t line = w->plan->pitch / w->plan->term_bytes, inner = s->in_w * s->in_c;
    const int64_t at = (sample * s->in_h + y) * inner;
    if (y < 0 || y >= s->in_h) {
        fill_codes(w, bytes, line, out);
        return;
    }
    out = fill_codes(w, bytes, w->plan->border, out);
    const uint8_t *codes = (const uint8_t *)w->pass->x + at;
    if (w->plan->wide)
        extract_bytes(inner, (const uint16_t *)w->pass->x + at, bytes.shift, out);
    else if (w->plan->term_bytes > 1)
        widen_codes(inner, codes, (int16_t *)(void *)out);
    else
        memcpy(out, codes, (size_t)inner);
    fill_codes(w, bytes, line - w->plan->border - inner, out + inner * w->plan->term_bytes);
}

/* Copies the input lines that a block's windows cover to the stripe, one sample after another. */
static void fill_stripe(const worker *w, const block *b, code_bytes bytes)
{
    const oct_conv_shape *s = &w->plan->shape;
    const int64_t lines = oct_qconv_stripe_lines(w->plan, b->lines);
    const int64_t top = b->line * s->stride_h - s->pad_top;
    uint8_t *out = w->stripe;
    for (int64_t n = b->sample; n < b->sample + b->samples; n++)
        for (int64_t i = 0; i < lines; i++, out += w->plan->pitch)
            copy_line(w, bytes, n, top + i, out);
    memset(out, 0, OCT_WORD); /* the last run is read to the end of its word */
}

/* Sets w->line[ky] to each input line that output line y needs, and with pair the line that y + 1 needs besides; NULL: in
 * the padding. If input is copied, lines come from the stripe, where padding is filled; the first is its line in_stripe. */
static void point_to_lines(const worker *w, int64_t sample, int64_t y, int64_t in_stripe, bool pair)
{
    const oct_conv_shape *s = &w->plan->shape;
    const uint8_t *x = w->pass->x;
    const int64_t count = s->kernel_h + (pair ? 1 : 0);
    for (int64_t ky = 0; ky < count; ky++) {
        const int64_t below = ky * s->dilation_h, at = y * s->stride_h - s->pad_top + below;
        if (w->plan->copies)
            w->line[ky] = w->stripe + (in_stripe + below) * w->plan->pitch;
        else if (at < 0 || at >= s->in_h)
            w->line[ky] = NULL;
        else
            w->line[ky] = x + (sample * s->in_h + at) * s->in_w * s->in_c;
    }
}

/* A depthwise convolution, line by line: to codes, or to sums where codes are made later. */
static void convolve_depthwise_block(const worker *w, const block *b, code_bytes bytes, void *out)
{
    const oct_qconv_plan *plan = w->plan;
    const oct_conv_shape *s = &plan->shape;
    oct_depthwise d = {.channels = s->in_c,
                       .in_w = plan->copies ? plan->pitch / s->in_c : s->in_w,
                       .out_w = s->out_w,
                       .kernel_h = s->kernel_h,
                       .kernel_w = (int)oct_conv_extent(s->kernel_w, s->dilation_w),
                       .stride = s->stride_w,
                       .padding = plan->copies ? 0 : s->pad_left,
                       .fill = bytes.fill,
                       .line = w->line,
                       .packed = w->pass->packed,
                       .scratch = w->columns};
    const bool pairs = plan->kernel->depthwise_pairs && s->kernel_h < OCT_WORD &&
                       s->stride_h == 1 && s->dilation_h == 1;
    for (int64_t i = 0; i < b->samples * b->lines; i += 1 + d.pair) {
        const int64_t n = i / b->lines, y = i % b->lines, at = i * s->out_w * s->out_c;
        d.pair = pairs && y + 1 < b->lines;
        point_to_lines(w, b->sample + n, b->line + y, n * plan->stripe_lines + y * s->stride_h,
                       d.pair);
        if (w->requant) {
            d.codes = (uint8_t *)out + at;
            const oct_requant q = requant_at(w, 0, d.codes);
            plan->kernel->depthwise_codes(&d, &q);
        } else {
            d.acc = (int32_t *)out + at;
            plan->kernel->depthwise(&d);
        }
    }
}

/* Convolves a block with one byte of each input code (shift 8: the high one). out: its accumulators or codes. */
static void multiply_byte_block(const worker *w, const block *b, int shift, void *out)
{
    const oct_qconv_plan *plan = w->plan;
    const code_bytes bytes = {.shift = shift, .fill = (uint8_t)(plan->in.zero_point >> shift)};
    const bool copies =
        plan->copies && (plan->window_samples == 0 || b->samples < plan->window_samples);
    if (copies) fill_stripe(w, b, bytes);
    if (plan->winograd.bytes) {
        const oct_conv_shape *s = &plan->shape;
        const oct_winograd_block part = {b->samples, b->line, b->lines};
        oct_winograd_multiply(&plan->winograd, &part,
                              (const uint8_t *)w->pass->x + b->sample * s->in_h * s->in_w * s->in_c,
                              w->pass->packed, out, w->stripe);
    } else if (plan->depthwise) {
        convolve_depthwise_block(w, b, bytes, out);
    } else if (copies) {
        /* A block has all samples of a period, but the last one of a plane may have fewer lines. */
        const oct_product p = {.x = w->stripe,
                               .rows = plan->rows,
                               .m = b->samples * b->lines * plan->shape.out_w,
                               .runs = plan->runs,
                               .num_runs = plan->taps};
        multiply_rows(w, &p, 1, out);
    } else {
        multiply_window_block(w, b, out);
    }
}

/* Adds the sums of the next lower byte: acc = 256 * acc + sums. */
OCT_CLONES
static void append_byte_sums(int64_t n, const int32_t *restrict sums, int64_t *restrict acc)
{
    for (int64_t i = 0; i < n; i++)
        acc[i] = 256 * acc[i] + sums[i];
}

/* Computes the accumulators of a block of 16-bit codes: 256 times the sums of high bytes plus those of low ones. */
static void multiply_word_block(const worker *w, const block *b, int64_t *acc)
{
    const int64_t n = b->samples * b->lines * w->plan->shape.out_w * w->plan->shape.out_c;
    memset(acc, 0, (size_t)n * sizeof *acc);
    multiply_byte_block(w, b, 8, w->acc);
    append_byte_sums(n, w->acc, acc);
    multiply_byte_block(w, b, 0, w->acc);
    append_byte_sums(n, w->acc, acc);
}

#define SCALE_CODES(name, code_t, acc_t)                                                           \
    OCT_CLONES                                                                                     \
    static void name(int64_t rows, int64_t n, const code_t *restrict x, int32_t zero_point,        \
                     const int8_t *restrict weight, acc_t *restrict acc)                           \
    {                                                                                              \
        for (int64_t i = 0; i < rows; i++, x += n, acc += n)                                       \
            for (int64_t c = 0; c < n; c++)                                                        \
                acc[c] = (acc_t)(x[c] - zero_point) * (weight[c] * (1 << OCT_QCONV_AFFINE_BITS));  \
    }
SCALE_CODES(scale_codes, uint8_t, int32_t)
SCALE_CODES(scale_codes16, uint16_t, int64_t)

/* Computes a block's accumulators of a batch norm on its own: (code - zero_point) * weight of the channel. */
static void scale_affine_block(const worker *w, const block *b, void *acc)
{
    const oct_conv_shape *s = &w->plan->shape;
    const int32_t zero_point = w->plan->in.zero_point;
    const int64_t rows = b->samples * b->lines * s->out_w, n = s->out_c;
    const int64_t first = (b->sample * s->in_h + b->line) * s->in_w * n;
    if (w->plan->wide)
        scale_codes16(rows, n, (const uint16_t *)w->pass->x + first, zero_point, w->pass->packed,
                      acc);
    else
        scale_codes(rows, n, (const uint8_t *)w->pass->x + first, zero_point, w->pass->packed, acc);
}

/* Computes block after block, into `all` or, where that is NULL, into scratch, and shows each to `visit`
 * unless that is NULL. */
static void compute_blocks(const worker *w, void *all, oct_acc_visit *visit, void *args)
{
    const oct_qconv_plan *plan = w->plan;
    const oct_conv_shape *s = &plan->shape;
    const int64_t samples = w->pass->samples, element = w->requant ? 1 : plan->wide ? 8 : 4;
    block b = {0};
    for (; b.sample < samples; b.sample += plan->period) {
        b.samples = oct_min_i64(plan->period, samples - b.sample);
        for (b.line = 0; b.line < s->out_h; b.line += plan->lines) {
            b.lines = oct_min_i64(plan->lines, s->out_h - b.line);
            const int64_t position = (b.sample * s->out_h + b.line) * s->out_w;
            void *acc = all          ? (char *)all + position * s->out_c * element
                        : plan->wide ? (void *)w->wide
                                     : w->acc;
            if (plan->affine)
                scale_affine_block(w, &b, acc);
            else if (plan->wide)
                multiply_word_block(w, &b, acc);
            else
                multiply_byte_block(w, &b, 0, acc);
            if (visit) visit(args, position, b.samples * b.lines * s->out_w, acc);
        }
    }
}

void oct_qconv_accumulate(const oct_qconv_plan *p, const oct_qconv_pass *pass, oct_acc_visit *visit,
                          void *args, void *scratch)
{
    const worker w = make_worker(p, pass, scratch);
    compute_blocks(&w, pass->y, visit, args);
}

/* What the epilogue of a block needs. */
typedef struct epilogue_args {
    const worker *w;
    const oct_epilogue *f;
} epilogue_args;

/* Makes outputs of a block; bits that begin inside a byte of the mask are made in scratch and appended. */
static void epilogue_block(void *args, int64_t position, int64_t positions, void *acc)
{
    const epilogue_args *call = args;
    const oct_qconv_pass *pass = call->w->pass;
    const int64_t n = call->w->plan->shape.out_c, first = position * n;
    const oct_epilogue part = oct_epilogue_at(call->f, first);
    const bool byte_aligned = first % 8 == 0;
    uint8_t *bits = !pass->mask ? NULL : byte_aligned ? pass->mask + first / 8 : call->w->mask;
    oct_epilogue_rows(
        call->w->plan->kernel, &part,
        &(oct_acc_rows){.m = positions,
                        .n = n,
                        .acc = acc,
                        .y = (char *)pass->y + first * (int64_t)oct_dtype_bytes(part.out),
                        .mask = bits,
                        .range = pass->range});
    if (bits && !byte_aligned) oct_bits_append(pass->mask, first, bits, positions * n);
}

void oct_qconv_forward(const oct_qconv_plan *p, const oct_qconv_pass *pass, const oct_epilogue *f,
                       void *scratch)
{
    worker w = make_worker(p, pass, scratch);
    /* Codes are made while the sums are in registers, where neither mask nor range wants more. */
    if (!p->affine && !p->winograd.bytes && p->kernel->product_codes && !pass->mask &&
        !pass->range && oct_epilogue_requantizes(f)) {
        const oct_requant q = oct_epilogue_requant(f);
        w.requant = &q;
        compute_blocks(&w, pass->y, NULL, NULL);
    } else {
        compute_blocks(&w, NULL, epilogue_block, &(epilogue_args){&w, f});
    }
}

/* Sums over rows of accumulators, for the statistics of a batch. A block of channels keeps its sums in registers while
 * all rows go by; the order of a channel's terms is that of the rows, whatever the block. */
enum { SUM_CHANNELS = 32 };

/* Channels [c, c + wide) of all rows; where `wide` is a constant, the sums stay in registers. */
#define SUM_BLOCK()                                                                                \
    do {                                                                                           \
        double total[SUM_CHANNELS], squares[SUM_CHANNELS];                                         \
        for (int64_t j = 0; j < wide; j++) {                                                       \
            total[j] = sum[c + j];                                                                 \
            squares[j] = sum[n + c + j];                                                           \
        }                                                                                          \
        for (int64_t i = 0; i < rows; i++)                                                         \
            for (int64_t j = 0; j < wide; j++) {                                                   \
                const double a = (double)(acc[i * n + c + j] - offset[c + j]);                     \
                total[j] += a;                                                                     \
                squares[j] += a * a;                                                               \
            }                                                                                      \
        for (int64_t j = 0; j < wide; j++) {                                                       \
            sum[c + j] = total[j];                                                                 \
            sum[n + c + j] = squares[j];                                                           \
        }                                                                                          \
    } while (0)

#define SUMS(name, acc_t)                                                                          \
    OCT_CLONES                                                                                     \
    void name(int64_t rows, int64_t n, int64_t channels, const acc_t *restrict acc,                \
              const acc_t *restrict offset, double *restrict sum)                                  \
    {                                                                                              \
        int64_t c = 0;                                                                             \
        for (; c + SUM_CHANNELS <= channels; c += SUM_CHANNELS) {                                  \
            enum { wide = SUM_CHANNELS };                                                          \
            SUM_BLOCK();                                                                           \
        }                                                                                          \
        for (; c + 16 <= channels; c += 16) {                                                      \
            enum { wide = 16 };                                                                    \
            SUM_BLOCK();                                                                           \
        }                                                                                          \
        if (c < channels) {                                                                        \
            const int64_t wide = channels - c;                                                     \
            SUM_BLOCK();                                                                           \
        }                                                                                          \
    }
SUMS(oct_acc_sums, int32_t)
SUMS(oct_acc_sums16, int64_t)
