/* Convolution over codes without im2col.
 *
 * Positions are worked in blocks of whole lines, or of whole samples where planes are small, whose
 * accumulators stay in cache between product and requantizer. There are three ways to them:
 *     window  rows of the product are pointers into the input, and taps in the padding are not even
 *             listed (core/product/conv_window.h): where codes of a tap are whole words and padding counts
 *             as 0;
 *     stripe  the input lines of a block are copied once, with their border, into a stripe of scratch,
 *             where the taps of a window line are one run of codes: otherwise;
 *     lines   one filter a channel: line by line (quant/kernel/kernel.h).
 *
 * Codes of 16 bits are 256 * high + low byte: a stripe takes the high bytes, then the low ones, and two
 * exact sums of products of bytes are joined.
 */
#include "quant/kernel/qconv.h"

#include "core/base/whole.h"
#include "core/product/conv_window.h"
#include "quant/kernel/bits.h"

#include <string.h>

enum { ALIGN = 64 };

/* Weights that a block reads for one class of positions after the other stay in the second-level cache
 * when they are not many; of more, some columns at a time are taken through all classes. */
static const int64_t heavy_bytes = 256 * 1024;
enum {
    HEAVY_COLUMNS = 64, /* a multiple of every kernel's col_tile */
    CLASSES = 16,       /* of a block at a time; 9 of 3 x 3 filters in small planes */
};

typedef struct conv_plan {
    bool wide, depthwise;
    bool copies;           /* input lines go through the stripe */
    int64_t taps, run;     /* runs of codes in a window of a group, and their length */
    int64_t border;        /* codes at each end of a line of the stripe */
    int64_t pitch;         /* bytes from one line of the stripe to the next */
    int64_t period, lines; /* of a block: samples, and lines of each */
    int64_t positions;     /* of the largest block */
    int64_t stripe_lines;  /* of one sample of a block */
    int64_t group_bytes;   /* packed weights of one group */
    int64_t tables_at;     /* what is ready: weights, then tables */
    /* Scratch, in bytes from its start. */
    int64_t acc_at, wide_at, mask_at, line_at, braid_at, bytes;
} conv_plan;

static oct_conv_window_layout layout_of(const oct_conv_shape *s)
{
    return (oct_conv_window_layout){.pixel_bytes = s->in_c,
                                    .tap_words = s->in_c / s->groups / OCT_WORD,
                                    .acc_stride = s->out_c,
                                    .wanted = oct_min_i64(oct_max_i64(16384 / s->out_c, 64), 256)};
}

/* Blocks of `wanted` positions or somewhat less, but at least a line, all about the same. */
static void plan_blocks(conv_plan *p, const oct_conv_shape *s, int64_t wanted)
{
    const int64_t most = oct_max_i64(wanted / s->out_w, 1);
    const int64_t blocks = (s->out_h + most - 1) / most;
    p->period = oct_max_i64(wanted / (s->out_h * s->out_w), 1);
    p->lines = p->period > 1 ? s->out_h : (s->out_h + blocks - 1) / blocks;
    p->positions = oct_max_i64(wanted, s->out_w);
}

static conv_plan plan_of(const oct_kernel *kernel, const oct_conv_shape *s, oct_qparams in)
{
    const int64_t group_c = s->in_c / s->groups, group_o = s->out_c / s->groups;
    conv_plan p = {.wide = oct_codes_dtype(in) == OCT_U16, .depthwise = oct_conv_is_depthwise(s)};
    const bool bordered = s->padding > 0 && in.zero_point != 0;
    p.copies = p.wide || (!p.depthwise && (bordered || group_c % OCT_WORD != 0));
    p.taps = s->groups == 1 ? s->kernel_h : (int64_t)s->kernel_h * s->kernel_w;
    p.run = s->groups == 1 ? s->kernel_w * s->in_c : group_c;
    p.group_bytes = p.depthwise ? kernel->depthwise_bytes(s->in_c, s->kernel_h, s->kernel_w)
                                : oct_packed_taps_bytes(kernel, group_o, p.taps, p.run);
    p.tables_at = oct_round_up(p.depthwise ? p.group_bytes : p.group_bytes * s->groups, ALIGN);
    plan_blocks(&p, s, layout_of(s).wanted);

    p.border = s->padding * s->in_c;
    p.pitch = s->in_w * s->in_c + 2 * p.border;
    p.stripe_lines = (p.lines - 1) * s->stride + s->kernel_h;
    const int64_t stripe = p.copies ? p.period * p.stripe_lines * p.pitch + OCT_WORD : 0;
    const int64_t sums = p.positions * s->out_c;
    const int64_t braid =
        p.depthwise ? oct_depthwise_scratch(s->kernel_h, s->kernel_w, s->stride, s->out_w) : 0;
    p.acc_at = oct_round_up(stripe, ALIGN);
    p.wide_at = p.acc_at + oct_round_up(sums * (int64_t)sizeof(int32_t), ALIGN);
    p.mask_at = p.wide_at + (p.wide ? oct_round_up(sums * (int64_t)sizeof(int64_t), ALIGN) : 0);
    p.line_at = p.mask_at + oct_round_up(sums / 8 + 1, ALIGN);
    p.braid_at = p.line_at + oct_round_up(s->kernel_h * (int64_t)sizeof(uint8_t *), ALIGN);
    p.bytes = p.braid_at + oct_round_up(braid, ALIGN);
    return p;
}

/* Tables of the geometry, behind the weights. Only the way's own are there. */
typedef struct conv_tables {
    oct_conv_window window; /* window */
    oct_row *rows;          /* stripe: of a whole block */
    oct_run *runs;
} conv_tables;

static int64_t tables_bytes(const conv_plan *p, const oct_conv_shape *s)
{
    const oct_conv_window_layout layout = layout_of(s);
    oct_conv_window window;
    if (p->depthwise) return 0;
    if (!p->copies) {
        oct_conv_window_init(&window, s, OCT_FORWARD, &layout);
        return (int64_t)(sizeof(conv_tables) + window.table_bytes);
    }
    return (int64_t)sizeof(conv_tables) + p->positions * (int64_t)sizeof(oct_row) +
           p->taps * (int64_t)sizeof(oct_run);
}

int64_t oct_qconv_ready_bytes(const oct_kernel *kernel, const oct_conv_shape *s, oct_qparams in)
{
    const conv_plan p = plan_of(kernel, s, in);
    return p.tables_at + tables_bytes(&p, s);
}

static void list_stripe(const conv_plan *p, const oct_conv_shape *s, conv_tables *t)
{
    t->rows = (oct_row *)(void *)(t + 1);
    t->runs = (oct_run *)(void *)(t->rows + p->positions);
    const int64_t words = (p->run + OCT_WORD - 1) / OCT_WORD;
    oct_row *row = t->rows;
    for (int64_t n = 0; n < p->period; n++)
        for (int64_t line = 0; line < p->lines; line++)
            for (int64_t x = 0; x < s->out_w; x++, row++) {
                const int64_t at = n * p->stripe_lines + line * s->stride;
                *row = (oct_row){.x = at * p->pitch + x * s->stride * s->in_c,
                                 .acc = (row - t->rows) * s->out_c};
            }
    for (int64_t i = 0; i < p->taps; i++) {
        const int64_t ky = s->groups == 1 ? i : i / s->kernel_w;
        const int64_t kx = s->groups == 1 ? 0 : i % s->kernel_w;
        t->runs[i] =
            (oct_run){.x = ky * p->pitch + kx * s->in_c, .tile = i * words, .words = words};
    }
}

void oct_qconv_ready(const oct_kernel *kernel, const oct_conv_shape *s, oct_qparams in,
                     const int8_t *codes, void *ready)
{
    const conv_plan p = plan_of(kernel, s, in);
    const oct_conv_window_layout layout = layout_of(s);
    const int64_t group_o = s->out_c / s->groups;
    int8_t *packed = ready;
    if (p.depthwise) {
        kernel->depthwise_pack(s->in_c, s->kernel_h, s->kernel_w, codes, packed);
        return;
    }
    for (int64_t g = 0; g < s->groups; g++)
        oct_pack_taps(kernel, group_o, p.taps, p.run, codes + g * group_o * p.taps * p.run,
                      packed + g * p.group_bytes);
    conv_tables *t = (conv_tables *)(void *)(packed + p.tables_at);
    if (p.copies)
        list_stripe(&p, s, t);
    else {
        oct_conv_window_init(&t->window, s, OCT_FORWARD, &layout);
        oct_conv_window_tables(&t->window, t + 1);
    }
}

int64_t oct_qconv_scratch_bytes(const oct_kernel *kernel, const oct_conv_shape *s, oct_qparams in)
{
    return plan_of(kernel, s, in).bytes;
}

/* A convolution at work: its plan, what is ready and the parts of its scratch. */
typedef struct worker {
    const oct_kernel *kernel;
    const oct_conv_shape *s;
    conv_plan p;
    const oct_qcodes *x;
    const int8_t *packed;
    const conv_tables *tables;
    uint8_t *stripe;
    const oct_requant *codes; /* sums become codes at once; NULL: they are accumulators */
    uint8_t *y;               /* those codes, of all samples */
    int32_t *acc;             /* of a block */
    int64_t *wide;            /* the same of 16-bit codes */
    const uint8_t **line;     /* depthwise: the input lines of one of output */
    void *braid;
} worker;

/* Whole lines of a few samples. */
typedef struct block {
    int64_t sample, samples, line, lines;
} block;

static worker start(const oct_kernel *kernel, const oct_conv_shape *s, const oct_qcodes *x,
                    const void *ready, void *scratch)
{
    uint8_t *at = scratch;
    worker w = {.kernel = kernel,
                .s = s,
                .p = plan_of(kernel, s, x->q),
                .x = x,
                .packed = ready,
                .stripe = scratch};
    w.tables = (const conv_tables *)(const void *)(w.packed + w.p.tables_at);
    w.acc = (int32_t *)(void *)(at + w.p.acc_at);
    w.wide = (int64_t *)(void *)(at + w.p.wide_at);
    w.line = (const uint8_t **)(void *)(at + w.p.line_at);
    w.braid = at + w.p.braid_at;
    return w;
}

/* How codes are made of the sums of what begins at channel `channel` and in y at `to`. */
static oct_requant requant_at(const worker *w, int64_t channel, const uint8_t *to)
{
    oct_requant q = *w->codes;
    q.bias += channel;
    q.multiplier += channel;
    if (q.addend) q.addend += to - w->y;
    return q;
}

/* The product of columns from `first` on of group g. out: of the block, accumulators or codes. */
static void multiply_columns(const worker *w, const oct_product *of, int64_t g, int64_t first,
                             int64_t columns, void *out)
{
    const oct_conv_shape *s = w->s;
    const int64_t channel = g * (s->out_c / s->groups) + first;
    oct_product p = *of;
    p.panel_bytes = oct_panel_bytes(w->kernel, w->p.taps, w->p.run);
    p.x = (const char *)of->x + g * (s->in_c / s->groups);
    p.packed = w->packed + g * w->p.group_bytes + first / w->kernel->col_tile * p.panel_bytes;
    p.n = columns;
    if (w->codes) {
        uint8_t *to = (uint8_t *)out + channel;
        const oct_requant q = requant_at(w, channel, to);
        p.acc = to;
        w->kernel->product_codes(&p, &q);
    } else {
        p.acc = (int32_t *)out + channel;
        w->kernel->product(&p);
    }
}

/* A convolution's products over a block, group by group. */
static void multiply(const worker *w, const oct_product *p, int64_t count, void *out)
{
    const int64_t columns = w->s->out_c / w->s->groups;
    const int64_t most = w->p.group_bytes > heavy_bytes ? HEAVY_COLUMNS : columns;
    for (int64_t g = 0; g < w->s->groups; g++)
        for (int64_t first = 0; first < columns; first += most)
            for (int64_t i = 0; i < count; i++)
                multiply_columns(w, &p[i], g, first, oct_min_i64(most, columns - first), out);
}

/* The class of most positions goes first: it has most to do while weights come from memory. */
static void largest_first(oct_product *p, int64_t count)
{
    for (int64_t i = 1; i < count; i++) {
        if (p[i].m <= p[0].m) continue;
        const oct_product larger = p[i];
        p[i] = p[0];
        p[0] = larger;
    }
}

static void block_of_window(const worker *w, const block *b, void *out)
{
    const oct_conv_window *window = &w->tables->window;
    const oct_conv_window_block *lines = &window->blocks[b->line / w->p.lines];
    const uint8_t *x = (const uint8_t *)w->x->data + b->sample * window->x_bytes;
    OCT_ASSERT(window->period == w->p.period && lines->position == b->line * w->s->out_w);
    const oct_conv_window_class *class = &window->classes[lines->first_class];
    oct_product p[CLASSES];
    for (int64_t first = 0, count; first < lines->classes; first += count) {
        count = oct_min_i64(lines->classes - first, CLASSES);
        for (int64_t i = 0; i < count; i++)
            p[i] = oct_conv_window_product(window, &class[first + i], b -> samples, x, NULL);
        largest_first(p, count);
        multiply(w, p, count, out);
    }
}

/* Which byte of each code a stripe holds, and that byte of the zero point. */
typedef struct half {
    int shift; /* 8: the high bytes */
    uint8_t fill;
} half;

static half half_of(oct_qparams q, int shift)
{
    return (half){.shift = shift, .fill = (uint8_t)(q.zero_point >> shift)};
}

OCT_CLONES
static void take_bytes(int64_t n, const uint16_t *restrict codes, int shift, uint8_t *restrict out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (uint8_t)(codes[i] >> shift);
}

/* Line y of a sample, which may lie outside the plane, with its border. */
static void copy_line(const worker *w, half h, int64_t sample, int64_t y, uint8_t *out)
{
    const oct_conv_shape *s = w->s;
    const int64_t border = w->p.border, inner = s->in_w * s->in_c;
    const int64_t at = (sample * s->in_h + y) * inner;
    if (y < 0 || y >= s->in_h) {
        memset(out, h.fill, (size_t)w->p.pitch);
        return;
    }
    memset(out, h.fill, (size_t)border);
    if (w->p.wide)
        take_bytes(inner, (const uint16_t *)w->x->data + at, h.shift, out + border);
    else
        memcpy(out + border, (const uint8_t *)w->x->data + at, (size_t)inner);
    memset(out + border + inner, h.fill, (size_t)border);
}

static void fill_stripe(const worker *w, const block *b, half h)
{
    const oct_conv_shape *s = w->s;
    const int64_t lines = (b->lines - 1) * s->stride + s->kernel_h;
    const int64_t top = b->line * s->stride - s->padding;
    uint8_t *out = w->stripe;
    for (int64_t n = b->sample; n < b->sample + b->samples; n++)
        for (int64_t i = 0; i < lines; i++, out += w->p.pitch)
            copy_line(w, h, n, top + i, out);
    memset(out, 0, OCT_WORD); /* the last run is read to the end of its word */
}

/* Of all samples of a period but the last block of a plane may have fewer lines. */
static void block_of_stripe(const worker *w, const block *b, void *out)
{
    const oct_product p = {.x = w->stripe,
                           .rows = w->tables->rows,
                           .m = b->samples * b->lines * w->s->out_w,
                           .runs = w->tables->runs,
                           .num_runs = w->p.taps};
    multiply(w, &p, 1, out);
}

/* The lines of input that line `y` of output looks at; of the stripe, which has no outside, its own. */
static void aim(const worker *w, int64_t sample, int64_t y, int64_t in_stripe)
{
    const oct_conv_shape *s = w->s;
    for (int64_t ky = 0; ky < s->kernel_h; ky++) {
        const int64_t at = y * s->stride - s->padding + ky;
        if (w->p.copies)
            w->line[ky] = w->stripe + (in_stripe + ky) * w->p.pitch;
        else if (at < 0 || at >= s->in_h)
            w->line[ky] = NULL;
        else
            w->line[ky] = (const uint8_t *)w->x->data + (sample * s->in_h + at) * s->in_w * s->in_c;
    }
}

static void block_of_lines(const worker *w, const block *b, half h, void *out)
{
    const oct_conv_shape *s = w->s;
    oct_depthwise d = {.channels = s->in_c,
                       .in_w = w->p.copies ? w->p.pitch / s->in_c : s->in_w,
                       .out_w = s->out_w,
                       .kernel_h = s->kernel_h,
                       .kernel_w = s->kernel_w,
                       .stride = s->stride,
                       .padding = w->p.copies ? 0 : s->padding,
                       .fill = h.fill,
                       .line = w->line,
                       .packed = w->packed,
                       .scratch = w->braid};
    for (int64_t i = 0; i < b->samples * b->lines; i++) {
        const int64_t n = i / b->lines, y = i % b->lines, at = i * s->out_w * s->out_c;
        aim(w, b->sample + n, b->line + y, n * w->p.stripe_lines + y * s->stride);
        if (w->codes) {
            d.codes = (uint8_t *)out + at;
            const oct_requant q = requant_at(w, 0, d.codes);
            w->kernel->depthwise_codes(&d, &q);
        } else {
            d.acc = (int32_t *)out + at;
            w->kernel->depthwise(&d);
        }
    }
}

/* out: accumulators of the block, or its codes. */
static void block_of_bytes(const worker *w, const block *b, int shift, void *out)
{
    const half h = half_of(w->x->q, shift);
    if (w->p.copies) fill_stripe(w, b, h);
    if (w->p.depthwise)
        block_of_lines(w, b, h, out);
    else if (w->p.copies)
        block_of_stripe(w, b, out);
    else
        block_of_window(w, b, out);
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

static void block_of_words(const worker *w, const block *b, int64_t *acc)
{
    const int64_t n = b->samples * b->lines * w->s->out_w * w->s->out_c;
    block_of_bytes(w, b, 8, w->acc);
    take_high(n, w->acc, acc);
    block_of_bytes(w, b, 0, w->acc);
    add_low(n, w->acc, acc);
}

/* Block by block, into `all` or, where that is NULL, into scratch; each is shown to `visit` unless that
 * is NULL. */
static void work(const worker *w, int64_t samples, void *all, oct_acc_visit *visit, void *args)
{
    const oct_conv_shape *s = w->s;
    const int64_t element = w->codes ? 1 : w->p.wide ? 8 : 4;
    block b = {0};
    for (; b.sample < samples; b.sample += w->p.period) {
        b.samples = oct_min_i64(w->p.period, samples - b.sample);
        for (b.line = 0; b.line < s->out_h; b.line += w->p.lines) {
            b.lines = oct_min_i64(w->p.lines, s->out_h - b.line);
            const int64_t position = (b.sample * s->out_h + b.line) * s->out_w;
            void *acc = all         ? (char *)all + position * s->out_c * element
                        : w->p.wide ? (void *)w->wide
                                    : w->acc;
            if (w->p.wide)
                block_of_words(w, &b, acc);
            else
                block_of_bytes(w, &b, 0, acc);
            if (visit) visit(args, position, b.samples * b.lines * s->out_w, acc);
        }
    }
}

void oct_qconv_visit(const oct_kernel *kernel, const oct_conv_shape *s, int64_t samples,
                     oct_qcodes x, const void *ready, void *all, oct_acc_visit *visit, void *args,
                     void *scratch)
{
    const worker w = start(kernel, s, &x, ready, scratch);
    work(&w, samples, all, visit, args);
}

void oct_qconv_accumulate(const oct_kernel *kernel, const oct_conv_shape *s, int64_t samples,
                          oct_qcodes x, const void *ready, void *acc, void *scratch)
{
    oct_qconv_visit(kernel, s, samples, x, ready, acc, NULL, NULL, scratch);
}

/* As oct_qconv_forward, where codes can be made while sums are in registers. */
static void work_codes(worker *w, int64_t samples, const oct_epilogue *f, uint8_t *y)
{
    const oct_requant q = oct_epilogue_requant(f);
    w->codes = &q;
    w->y = y;
    work(w, samples, y, NULL, NULL);
}

/* What finishes blocks, and where to. */
typedef struct finisher {
    const oct_kernel *kernel;
    const oct_epilogue *f;
    int64_t channels;
    uint8_t *y, *mask;
    float *range;
    uint8_t *aside; /* bits of a block that starts inside a byte of the mask */
} finisher;

static void finish_block(void *args, int64_t position, int64_t positions, void *acc)
{
    const finisher *to = args;
    const int64_t first = position * to->channels;
    const oct_epilogue part = oct_epilogue_at(to->f, first);
    const bool whole = first % 8 == 0;
    uint8_t *bits = !to->mask ? NULL : whole ? to->mask + first / 8 : to->aside;
    oct_epilogue_rows(to->kernel, &part, positions, to->channels, acc,
                      to->y + first * (int64_t)oct_dtype_bytes(part.out), bits, to->range);
    if (bits && !whole) oct_bits_append(to->mask, first, bits, positions * to->channels);
}

void oct_qconv_forward(const oct_kernel *kernel, const oct_conv_shape *s, int64_t samples,
                       oct_qcodes x, const void *ready, const oct_epilogue *f, void *y,
                       uint8_t *mask, float *range, void *scratch)
{
    worker w = start(kernel, s, &x, ready, scratch);
    if (!mask && !range && kernel->product_codes && oct_epilogue_requantizes(f)) {
        work_codes(&w, samples, f, y);
        return;
    }
    finisher to = {.kernel = kernel,
                   .f = f,
                   .channels = s->out_c,
                   .y = y,
                   .mask = mask,
                   .range = range,
                   .aside = (uint8_t *)scratch + w.p.mask_at};
    work(&w, samples, NULL, finish_block, &to);
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
        most += oct_max_i64(a, b);
        least += oct_min_i64(a, b);
        above += oct_max_i64(oct_max_i64(a, b), 0);
        below += oct_min_i64(oct_min_i64(a, b), 0);
    }
    return oct_max_i64(oct_max_i64(most + bias, -(least + bias)), oct_max_i64(above, -below));
}
