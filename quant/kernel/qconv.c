/* Convolution over codes without im2col.
 *
 * With NHWC codes the taps of one window row are contiguous, so an output position is a pointer and a
 * window is a table of offsets (kernel.h: oct_taps). Output lines are worked in blocks of some 64 to 256
 * positions, whose accumulators stay in cache between product and requantizer; a block may span
 * samples, so small planes share the reading of the weights too. Only where a border must be filled, or
 * a run of codes is not a whole number of tiles, are the input lines of a block copied (once, with
 * their border) into a stripe of scratch.
 *
 * Codes of 16 bits are 256 * high + low byte: the stripe takes the high bytes, then the low ones, and
 * two exact products of bytes make the sum.
 */
#include "quant/kernel/qops.h"

#include "core/base/whole.h"
#include "quant/kernel/bits.h"

#include <string.h>

enum { ALIGN = 64 };

typedef struct conv_plan {
    bool depthwise;
    bool copies;           /* input lines go through the stripe */
    int64_t taps, run;     /* runs of codes in a window of a group, and their length */
    int64_t pitch;         /* bytes from one input line to the next, in x or in the stripe */
    int64_t lines, pixels; /* of a block */
    int64_t group_bytes;   /* packed weights of one group */
    /* Scratch, in bytes from its start. */
    int64_t rows_at, stripe_at, acc_at, wide_at, mask_at, bytes;
} conv_plan;

static conv_plan plan_of(const oct_kernel *kernel, const oct_conv_shape *s, bool wide)
{
    conv_plan p = {.depthwise = oct_conv_is_depthwise(s)};
    const int64_t group_c = s->in_c / s->groups, group_o = s->out_c / s->groups;
    const int64_t window = (int64_t)s->kernel_h * s->kernel_w;
    p.taps = s->groups == 1 ? s->kernel_h : window;
    p.run = s->groups == 1 ? s->kernel_w * s->in_c : group_c;
    /* Kernels read whole tiles of a run, and depthwise ones whole blocks of 16 channels. */
    const bool whole = p.depthwise ? s->in_c % 16 == 0 : p.run % kernel->k_tile == 0;
    p.copies = wide || s->padding > 0 || !whole;
    p.pitch = (s->in_w + 2 * s->padding) * s->in_c;
    p.group_bytes = p.depthwise ? kernel->depthwise_bytes(s->in_c, window)
                                : oct_packed_taps_bytes(kernel, group_o, p.taps, p.run);

    const int64_t wanted = oct_smaller(oct_larger(8192 / s->out_c, 64), 256);
    p.lines = oct_larger(wanted / s->out_w, 1);
    p.pixels = p.lines * s->out_w;
    const int64_t samples = (p.lines - 1) / s->out_h + 2; /* that a block may touch */
    const int64_t stripe_lines =
        p.lines * s->stride + samples * oct_larger(s->kernel_h - s->stride, 0);
    p.rows_at = oct_round_up(p.taps * (int64_t)sizeof(int64_t), ALIGN);
    p.stripe_at = p.rows_at + oct_round_up(p.pixels * (int64_t)sizeof(uint8_t *), ALIGN);
    p.acc_at = p.stripe_at + (p.copies ? oct_round_up(stripe_lines * p.pitch + ALIGN, ALIGN) : 0);
    p.wide_at = p.acc_at + oct_round_up(p.pixels * s->out_c * (int64_t)sizeof(int32_t), ALIGN);
    p.mask_at = p.wide_at;
    if (wide) p.mask_at += oct_round_up(p.pixels * s->out_c * (int64_t)sizeof(int64_t), ALIGN);
    p.bytes = p.mask_at + oct_round_up(p.pixels * s->out_c / 8 + 1, ALIGN);
    return p;
}

static bool is_wide(oct_qparams in)
{
    return oct_codes_dtype(in) == OCT_U16;
}

int64_t oct_qconv_ready_bytes(const oct_kernel *kernel, const oct_conv_shape *s, oct_qparams in)
{
    const conv_plan p = plan_of(kernel, s, is_wide(in));
    return p.depthwise ? p.group_bytes : p.group_bytes * s->groups;
}

void oct_qconv_ready(const oct_kernel *kernel, const oct_conv_shape *s, oct_qparams in,
                     const int8_t *codes, void *ready)
{
    const conv_plan p = plan_of(kernel, s, is_wide(in));
    const int64_t group_o = s->out_c / s->groups;
    if (p.depthwise) {
        kernel->depthwise_pack(s->in_c, p.taps, codes, ready);
        return;
    }
    for (int64_t g = 0; g < s->groups; g++)
        oct_pack_taps(kernel, group_o, p.taps, p.run, codes + g * group_o * p.taps * p.run,
                      (int8_t *)ready + g * p.group_bytes);
}

int64_t oct_qconv_scratch_bytes(const oct_kernel *kernel, const oct_conv_shape *s, oct_qparams in)
{
    return plan_of(kernel, s, is_wide(in)).bytes;
}

static void set_offsets(const conv_plan *p, const oct_conv_shape *s, int64_t *offset)
{
    for (int64_t t = 0; t < p->taps; t++) {
        int64_t y = s->groups == 1 ? t : t / s->kernel_w, x = s->groups == 1 ? 0 : t % s->kernel_w;
        offset[t] = y * p->pitch + x * s->in_c;
    }
}

/* Input of a convolution, of which one byte of each code is looked at. */
typedef struct plane_bytes {
    const void *codes;
    oct_dtype dtype;
    bool high;    /* of 16-bit codes */
    uint8_t fill; /* that byte of the zero point */
} plane_bytes;

static plane_bytes bytes_of(const oct_qcodes *x, bool high)
{
    return (plane_bytes){.codes = x->data,
                         .dtype = oct_codes_dtype(x->q),
                         .high = high,
                         .fill = (uint8_t)(high ? x->q.zero_point >> 8 : x->q.zero_point)};
}

OCT_CLONES
static void take_bytes(int64_t n, const uint16_t *restrict codes, int shift, uint8_t *restrict out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (uint8_t)(codes[i] >> shift);
}

/* One input line with its border; y may lie outside the plane. `at`: the line's first code. */
static void copy_line(const oct_conv_shape *s, const plane_bytes *x, int64_t at, int64_t y,
                      uint8_t *out)
{
    const int64_t border = s->padding * s->in_c, inner = s->in_w * s->in_c;
    if (y < 0 || y >= s->in_h) {
        memset(out, x->fill, (size_t)(inner + 2 * border));
        return;
    }
    memset(out, x->fill, (size_t)border);
    if (x->dtype == OCT_U16)
        take_bytes(inner, (const uint16_t *)x->codes + at, x->high ? 8 : 0, out + border);
    else
        memcpy(out + border, (const uint8_t *)x->codes + at, (size_t)inner);
    memset(out + border + inner, x->fill, (size_t)border);
}

/* Points rows at the window corners of `count` output lines from line `first` on, lines counted over
 * all samples. */
static void set_rows(const conv_plan *p, const oct_conv_shape *s, const plane_bytes *x,
                     int64_t first, int64_t count, uint8_t *stripe, const uint8_t **rows)
{
    for (int64_t line = first, end; line < first + count; line = end) {
        const int64_t sample = line / s->out_h, y = line % s->out_h;
        end = oct_smaller((sample + 1) * s->out_h, first + count);
        const int64_t plane = sample * s->in_h * s->in_w * s->in_c;
        const uint8_t *corner = stripe;
        if (p->copies) {
            const int64_t lines = (end - line - 1) * s->stride + s->kernel_h;
            for (int64_t i = 0; i < lines; i++, stripe += p->pitch) {
                const int64_t at = y * s->stride - s->padding + i;
                copy_line(s, x, plane + at * s->in_w * s->in_c, at, stripe);
            }
        } else {
            corner = (const uint8_t *)x->codes + plane + y * s->stride * p->pitch;
        }
        for (int64_t l = line; l < end; l++, corner += s->stride * p->pitch)
            for (int64_t ox = 0; ox < s->out_w; ox++)
                *rows++ = corner + ox * s->stride * s->in_c;
    }
    /* What kernels read behind the last run is multiplied by zero weights, but it must exist. */
    if (p->copies) memset(stripe, 0, ALIGN);
}

static void multiply(const oct_kernel *kernel, const conv_plan *p, const oct_conv_shape *s,
                     int64_t pixels, const int64_t *offset, const uint8_t **rows,
                     const int8_t *packed, int32_t *acc)
{
    const oct_taps taps = {.count = p->taps, .k = p->run, .offset = offset};
    if (p->depthwise) {
        kernel->depthwise(pixels, s->in_c, &taps, rows, packed, acc);
        return;
    }
    const int64_t group_c = s->in_c / s->groups, group_o = s->out_c / s->groups;
    for (int64_t g = 0; g < s->groups; g++) {
        kernel->conv(pixels, group_o, &taps, rows, packed + g * p->group_bytes, acc + g * group_o,
                     s->out_c);
        for (int64_t i = 0; i < pixels && g + 1 < s->groups; i++)
            rows[i] += group_c;
    }
}

OCT_CLONES
static void take_high(int64_t n, const int32_t *restrict high, int64_t *restrict acc)
{
    for (int64_t i = 0; i < n; i++)
        acc[i] = INT64_C(256) * high[i];
}

OCT_CLONES
static void add_low(int64_t n, const int32_t *restrict low, int64_t *restrict acc)
{
    for (int64_t i = 0; i < n; i++)
        acc[i] += low[i];
}

/* A convolution at work: its plan and the parts of its scratch. */
typedef struct worker {
    const oct_kernel *kernel;
    const oct_conv_shape *s;
    conv_plan p;
    const oct_qcodes *x;
    const int8_t *packed;
    int64_t *offset;
    const uint8_t **rows;
    uint8_t *stripe;
    int32_t *acc;  /* of a block */
    int64_t *wide; /* the same of 16-bit codes */
} worker;

static worker start(const oct_kernel *kernel, const oct_conv_shape *s, const oct_qcodes *x,
                    const void *ready, void *scratch)
{
    uint8_t *at = scratch;
    worker w = {.kernel = kernel,
                .s = s,
                .p = plan_of(kernel, s, is_wide(x->q)),
                .x = x,
                .packed = ready,
                .offset = scratch};
    w.rows = (const uint8_t **)(void *)(at + w.p.rows_at);
    w.stripe = at + w.p.stripe_at;
    w.acc = (int32_t *)(void *)(at + w.p.acc_at);
    w.wide = (int64_t *)(void *)(at + w.p.wide_at);
    set_offsets(&w.p, s, w.offset);
    return w;
}

static void block_of_bytes(const worker *w, bool high, int64_t line, int64_t count, int32_t *acc)
{
    const plane_bytes bytes = bytes_of(w->x, high);
    set_rows(&w->p, w->s, &bytes, line, count, w->stripe, w->rows);
    multiply(w->kernel, &w->p, w->s, count * w->s->out_w, w->offset, w->rows, w->packed, acc);
}

static void block_of_words(const worker *w, int64_t line, int64_t count, int64_t *acc)
{
    const int64_t n = count * w->s->out_w * w->s->out_c;
    block_of_bytes(w, true, line, count, w->acc);
    take_high(n, w->acc, acc);
    block_of_bytes(w, false, line, count, w->acc);
    add_low(n, w->acc, acc);
}

void oct_qconv_visit(const oct_kernel *kernel, const oct_conv_shape *s, int64_t samples,
                     oct_qcodes x, const void *ready, oct_acc_visit *visit, void *args,
                     void *scratch)
{
    const worker w = start(kernel, s, &x, ready, scratch);
    const int64_t total = samples * s->out_h;
    for (int64_t line = 0; line < total; line += w.p.lines) {
        const int64_t count = oct_smaller(w.p.lines, total - line);
        if (is_wide(x.q))
            block_of_words(&w, line, count, w.wide);
        else
            block_of_bytes(&w, false, line, count, w.acc);
        visit(args, line * s->out_w, count * s->out_w, is_wide(x.q) ? (void *)w.wide : w.acc);
    }
}

void oct_qconv_accumulate(const oct_kernel *kernel, const oct_conv_shape *s, int64_t samples,
                          oct_qcodes x, const void *ready, void *acc, void *scratch)
{
    const worker w = start(kernel, s, &x, ready, scratch);
    const int64_t total = samples * s->out_h, line_n = s->out_w * s->out_c;
    for (int64_t line = 0; line < total; line += w.p.lines) {
        const int64_t count = oct_smaller(w.p.lines, total - line);
        if (is_wide(x.q))
            block_of_words(&w, line, count, (int64_t *)acc + line * line_n);
        else
            block_of_bytes(&w, false, line, count, (int32_t *)acc + line * line_n);
    }
}

/* What finishes blocks, and where to. */
typedef struct finisher {
    const oct_kernel *kernel;
    const oct_finish *f;
    int64_t channels;
    uint8_t *y, *mask;
    float *range;
    uint8_t *aside; /* bits of a block that starts inside a byte of the mask */
} finisher;

static void finish_block(void *args, int64_t position, int64_t positions, void *acc)
{
    const finisher *to = args;
    const int64_t first = position * to->channels;
    const oct_finish part = oct_finish_at(to->f, first);
    const bool whole = first % 8 == 0;
    uint8_t *bits = !to->mask ? NULL : whole ? to->mask + first / 8 : to->aside;
    oct_finish_rows(to->kernel, &part, positions, to->channels, acc,
                    to->y + first * (int64_t)oct_dtype_bytes(part.out), bits, to->range);
    if (bits && !whole) oct_bits_append(to->mask, first, bits, positions * to->channels);
}

void oct_qconv_forward(const oct_kernel *kernel, const oct_conv_shape *s, int64_t samples,
                       oct_qcodes x, const void *ready, const oct_finish *f, void *y, uint8_t *mask,
                       float *range, void *scratch)
{
    const conv_plan p = plan_of(kernel, s, is_wide(x.q));
    finisher to = {.kernel = kernel,
                   .f = f,
                   .channels = s->out_c,
                   .y = y,
                   .mask = mask,
                   .range = range,
                   .aside = (uint8_t *)scratch + p.mask_at};
    oct_qconv_visit(kernel, s, samples, x, ready, finish_block, &to, scratch);
}

int64_t oct_qconv_bound(const oct_conv_shape *s, const int8_t *codes, int64_t channel, int64_t bias,
                        int32_t x_lo, int32_t x_hi)
{
    const int64_t k = (int64_t)s->kernel_h * s->kernel_w * (s->in_c / s->groups);
    const int8_t *w = codes + channel * k;
    /* most, least: of the whole sum; above, below: of any partial sum, in any order. */
    int64_t most = 0, least = 0, above = 0, below = 0;
    for (int64_t i = 0; i < k; i++) {
        const int64_t a = (int64_t)w[i] * x_lo, b = (int64_t)w[i] * x_hi;
        most += oct_larger(a, b);
        least += oct_smaller(a, b);
        above += oct_larger(oct_larger(a, b), 0);
        below += oct_smaller(oct_smaller(a, b), 0);
    }
    return oct_larger(oct_larger(most + bias, -(least + bias)), oct_larger(above, -below));
}
