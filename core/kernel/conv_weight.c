/* The gradient of weights as a product over positions: rows are taps and input channels, columns are
 * output channels.
 *
 * The input is turned into planes, one for each channel, so that a row is a start in a plane and its
 * runs are the lines of the output: tap (ky, kx) begins ky lines lower and kx columns further. With a
 * stride, the columns of a line are sorted by their remainder, so that what a tap sees is contiguous.
 * Planes have zeros around them; for the taps of a ky whose lines would be all zeros they are not listed.
 * Gradients become panels of words of one position (float32) or of two neighbours in a line (bfloat16).
 *
 * Planes and panels are made for one block of positions after the other; sums go on from block to block
 * in tiles that stay in cache while their product is at work.
 */
#include "core/base/cpu.h"
#include "core/base/whole.h"
#include "core/kernel/conv_impl.h"
#include "core/kernel/depthwise.h"
#include "core/kernel/turn.h"

#include <string.h>

enum {
    BLOCK_WORDS = 1024, /* of a row, about: 64 columns of panels are 256 KiB */
    CHUNK_SUMS = 32768, /* sums that are finished together: they stay in the second-level cache */
    CHUNK_ROWS = 24,    /* a whole number of the microkernel's blocks */
    MOST_CHUNKS = 10,
    STRIP = 64,             /* positions of a line that are turned at a time */
    STRIP_CHANNELS = 16,    /* of so many channels */
    MERGED_POSITIONS = 256, /* planes with fewer are put in one line where there is one tap */
    FEW_ROWS = 64,          /* fewer of a ky are not worth a product of their own */
};

typedef struct plan {
    const oct_float_kernel *k;
    oct_conv_shape s;
    int64_t samples;
    bool pairs;        /* words of two positions in bfloat16 */
    bool grad_pairs;   /* what rows of the gradient are */
    int64_t ins, outs; /* of a group */
    int64_t block_samples, block_lines, blocks;
    int64_t line_words;            /* of the output */
    int64_t element;               /* bytes of a value in a plane */
    int64_t phases, copies, pitch; /* a line of a plane: (copies, phases, pitch) values */
    int64_t line, sample, plane;   /* values from one to the next */
    bool few_rows;                 /* of one ky */
    int64_t panels, panel_bytes;
    int64_t chunk; /* rows that are multiplied at once */
} plan;

/* One tap: any shape of the positions will do; pairs want lines of even length. */
static oct_conv_shape simplified(const oct_conv_shape *s, int64_t *samples)
{
    oct_conv_shape one = *s;
    if (s->kernel_h != 1 || s->kernel_w != 1 || s->stride != 1 || s->padding != 0) return one;
    if (s->in_w % 2 == 0) return one;
    if (s->in_h % 2 == 0) {
        one.in_h /= 2;
        one.in_w *= 2;
    } else if (s->in_h * s->in_w < MERGED_POSITIONS) {
        one.in_h = 1;
        one.in_w = s->in_h * s->in_w * *samples;
        *samples = *samples > 0;
    }
    one.out_h = one.in_h;
    one.out_w = one.in_w;
    return one;
}

static plan plan_of(const oct_float_kernel *k, oct_numerics numerics, const oct_conv_shape *shape,
                    int64_t samples, bool wide)
{
    plan p = {.k = k, .samples = samples, .grad_pairs = numerics == OCT_NUMERICS_BF16};
    oct_conv_shape *s = &p.s;
    *s = simplified(shape, &p.samples);
    p.pairs = p.grad_pairs && !wide;
    p.ins = s->in_c / s->groups;
    p.outs = s->out_c / s->groups;
    p.line_words = oct_words_of(k, p.pairs, s->out_w);

    const int64_t lines = oct_larger(BLOCK_WORDS / oct_larger(p.line_words, 1), 1);
    p.block_samples = oct_larger(oct_smaller(lines / s->out_h, p.samples), 1);
    p.block_lines = oct_smaller(lines, s->out_h);
    p.blocks = (p.samples + p.block_samples - 1) / p.block_samples *
               ((s->out_h + p.block_lines - 1) / p.block_lines);

    const bool swapped = p.pairs && !k->native_bf16;
    const int64_t shifts = (s->kernel_w - 1) / s->stride;
    const int64_t values = p.line_words * (p.pairs && !swapped ? 2 : 1);
    p.element = p.pairs && !swapped ? 2 : 4;
    p.phases = oct_smaller(s->stride, s->kernel_w);
    p.copies = swapped && shifts > 0 ? 2 : 1;
    p.pitch = values + (swapped ? (shifts + 1) / 2 * 2 : shifts);
    p.line = p.copies * p.phases * p.pitch;
    p.sample = ((p.block_lines - 1) * s->stride + s->kernel_h) * p.line;
    p.plane = p.block_samples * p.sample;

    p.panels = (p.outs + k->col_tile - 1) / k->col_tile;
    p.panel_bytes = p.block_samples * p.block_lines * p.line_words * k->col_tile * 4;
    p.few_rows = s->kernel_w * p.ins < FEW_ROWS;
    const int64_t chunks = CHUNK_SUMS / (p.outs * CHUNK_ROWS);
    p.chunk = oct_larger(oct_smaller(chunks, MOST_CHUNKS), 1) * CHUNK_ROWS;
    return p;
}

/* What scratch holds. */
typedef struct room {
    char *planes, *panels;
    float *sums;
    oct_row *rows;
    oct_run *runs;
    float *values;  /* (STRIP, STRIP_CHANNELS), or turned */
    uint8_t *codes; /* turned */
} room;

static void *carve(size_t *at, void *scratch, size_t bytes)
{
    void *taken = scratch ? (char *)scratch + *at : NULL;
    *at += oct_aligned(bytes);
    return taken;
}

/* scratch NULL: only the size. */
static size_t room_of(const plan *p, void *scratch, room *r)
{
    size_t at = 0;
    const int64_t rows = p->blocks > 1 ? oct_conv_depth(&p->s) : p->chunk;
    r->planes = carve(&at, scratch, (size_t)(p->ins * p->plane * p->element));
    r->panels = carve(&at, scratch, (size_t)(p->panels * p->panel_bytes));
    r->sums = carve(&at, scratch, (size_t)(rows * p->outs) * sizeof(float));
    r->rows = carve(&at, scratch, (size_t)p->chunk * sizeof(oct_row));
    r->runs = carve(&at, scratch, (size_t)(p->block_samples * p->block_lines) * sizeof(oct_run));
    r->values = carve(&at, scratch, (size_t)STRIP * STRIP_CHANNELS * sizeof(float));
    r->codes = carve(&at, scratch, (size_t)STRIP * STRIP_CHANNELS);
    return at;
}

/* A block of positions: lines [line, line + lines) of samples [sample, sample + samples). */
typedef struct block {
    int64_t sample, samples, line, lines;
    bool first, last;
} block;

/* A piece of a line: `columns` columns from `column` on in the planes of `channels` channels, from the
 * values `at` behind the start of x on, `pitch` apart. */
typedef struct strip {
    int64_t channels, column, columns;
    int64_t at, pitch;
    char *line; /* of the first of the planes */
} strip;

/* n codes as bfloat16, exactly: whole numbers of at most eight bits. */
static inline __attribute__((always_inline)) void
to_halves(const int n, const uint8_t *restrict codes, int32_t zero_point, uint16_t *restrict to)
{
    uint16_t half[16];
    for (int i = 0; i < n; i++) {
        const float value = (float)(codes[i] - zero_point);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        half[i] = (uint16_t)(bits >> 16);
    }
    memcpy(to, half, (size_t)n * sizeof *half);
}

/* Turned codes into the planes, in vectors of one length, of which the last may overlap: lines are
 * short. */
OCT_CLONES
static void write_halves(const strip *t, const uint8_t *codes, int32_t zero_point, int64_t plane)
{
    uint16_t *to = (uint16_t *)(void *)t->line + t->column;
    const int64_t n = t->columns;
    for (int64_t c = 0; c < t->channels; c++, codes += STRIP, to += plane) {
        if (n >= 16) {
            for (int64_t i = 0; i < n; i = i + 16 < n && i + 32 > n ? n - 16 : i + 16)
                to_halves(16, codes + i, zero_point, to + i);
        } else if (n >= 8) {
            to_halves(8, codes, zero_point, to);
            to_halves(8, codes + n - 8, zero_point, to + n - 8);
        } else if (n >= 4) {
            to_halves(4, codes, zero_point, to);
            to_halves(4, codes + n - 4, zero_point, to + n - 4);
        } else {
            for (int64_t i = 0; i < n; i++)
                to_halves(1, codes + i, zero_point, to + i);
        }
    }
}

OCT_CLONES
static void decode(int64_t n, const uint8_t *codes, int32_t zero_point, float *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)(codes[i] - zero_point);
}

OCT_CLONES
static void decode16(const strip *t, const uint16_t *codes, int32_t zero_point, float *to)
{
    for (int64_t i = 0; i < t->columns; i++, codes += t->pitch) {
        for (int64_t c = 0; c < t->channels; c++)
            to[i * STRIP_CHANNELS + c] = (float)(codes[c] - zero_point);
    }
}

/* One channel's values in pairs with the second first; the second copy has those that begin at odd
 * columns. */
static void write_swapped(const plan *p, const float *from, const strip *t, float *line)
{
    for (int64_t i = 0; i < t->columns; i++) {
        const int64_t at = t->column + i;
        const float value = oct_bf16_value(oct_bf16_of(from[i]));
        line[at ^ 1] = value;
        if (p->copies == 2 && at > 0) line[p->phases * p->pitch + ((at - 1) ^ 1)] = value;
    }
}

/* Turned values (channels, STRIP) into the planes, rounded. */
OCT_CLONES
static void write_rounded(const plan *p, const float *values, const strip *t)
{
    for (int64_t c = 0; c < t->channels; c++, values += STRIP) {
        char *line = t->line + c * p->plane * p->element;
        if (!p->k->native_bf16) {
            write_swapped(p, values, t, (float *)(void *)line);
            continue;
        }
        uint16_t *to = (uint16_t *)(void *)line + t->column;
        for (int64_t i = 0; i < t->columns; i++)
            to[i] = oct_bf16_of(values[i]);
    }
}

static void turn_codes(const plan *p, const oct_conv_input *x, const strip *t, const room *r)
{
    const uint8_t *end = x->codes + p->samples * oct_conv_in_numel(&p->s);
    oct_turn_bytes(t->columns, x->codes + t->at, t->pitch, end, r->codes, STRIP);
    if (p->element == 2) {
        write_halves(t, r->codes, x->zero_point, p->plane);
        return;
    }
    decode(t->channels * STRIP, r->codes, x->zero_point, r->values);
    if (p->pairs) {
        write_rounded(p, r->values, t);
        return;
    }
    for (int64_t c = 0; c < t->channels; c++)
        memcpy((float *)(void *)t->line + c * p->plane + t->column, r->values + c * STRIP,
               (size_t)t->columns * sizeof(float));
}

static void turn_values(const plan *p, const oct_conv_input *x, const strip *t, const room *r)
{
    if (x->codes16) {
        decode16(t, x->codes16 + t->at, x->zero_point, r->values);
        oct_turn_f32(t->columns, t->channels, r->values, STRIP_CHANNELS,
                     (float *)(void *)t->line + t->column, p->plane);
    } else if (p->pairs) {
        oct_turn_f32(t->columns, t->channels, x->values + t->at, t->pitch, r->values, STRIP);
        write_rounded(p, r->values, t);
    } else {
        oct_turn_f32(t->columns, t->channels, x->values + t->at, t->pitch,
                     (float *)(void *)t->line + t->column, p->plane);
    }
}

static void clear_line(const plan *p, char *line)
{
    for (int64_t c = 0; c < p->ins; c++)
        memset(line + c * p->plane * p->element, 0, (size_t)(p->line * p->element));
}

/* Zeros beside what lies in the image: columns [begin, end) of a line of all planes. */
static void clear_columns(const plan *p, char *line, int64_t begin, int64_t end)
{
    for (int64_t at = begin; at < end; at++) {
        for (int64_t c = 0; c < p->ins; c++) {
            if (p->element == 2)
                ((uint16_t *)(void *)line)[c * p->plane + at] = 0;
            else
                ((float *)(void *)line)[c * p->plane + at] = 0;
        }
    }
}

/* One line of all planes of a group; at: where the input's line and the group begin. */
static void turn_line(const plan *p, const oct_conv_input *x, int64_t at, char *line, const room *r)
{
    const oct_conv_shape *s = &p->s;
    const bool swapped = p->pairs && p->element == 4;
    if (swapped) clear_line(p, line);
    for (int64_t phase = 0; phase < p->phases; phase++, line += p->pitch * p->element) {
        const int64_t left = s->padding - phase, right = s->in_w - 1 + left;
        const int64_t first = left > 0 ? (left + s->stride - 1) / s->stride : 0;
        const int64_t begin = oct_smaller(first, p->pitch);
        const int64_t inside = right < 0 ? 0 : oct_smaller(p->pitch, right / s->stride + 1);
        const int64_t end = oct_larger(inside, begin);
        if (!swapped) clear_columns(p, line, 0, begin);
        if (!swapped) clear_columns(p, line, end, p->pitch);
        for (int64_t column = begin; column < end; column += STRIP) {
            for (int64_t c = 0; c < p->ins; c += STRIP_CHANNELS) {
                const strip t = {.channels = oct_smaller(STRIP_CHANNELS, p->ins - c),
                                 .column = column,
                                 .columns = oct_smaller(STRIP, end - column),
                                 .at = at + (column * s->stride - left) * s->in_c + c,
                                 .pitch = s->stride * s->in_c,
                                 .line = line + c * p->plane * p->element};
                if (x->codes)
                    turn_codes(p, x, &t, r);
                else
                    turn_values(p, x, &t, r);
            }
        }
    }
}

static void make_planes(const plan *p, const oct_conv_input *x, int64_t group, const block *b,
                        const room *r)
{
    const oct_conv_shape *s = &p->s;
    const int64_t lines = (b->lines - 1) * s->stride + s->kernel_h;
    for (int64_t n = 0; n < b->samples; n++) {
        for (int64_t l = 0; l < lines; l++) {
            if (l % s->stride >= s->kernel_h) continue; /* no tap looks at it */
            const int64_t y = b->line * s->stride + l - s->padding;
            const int64_t from = ((b->sample + n) * s->in_h + y) * s->in_w * s->in_c;
            char *line = r->planes + (n * p->sample + l * p->line) * p->element;
            if (y < 0 || y >= s->in_h)
                clear_line(p, line);
            else
                turn_line(p, x, from + group * p->ins, line, r);
        }
    }
}

/* Columns [column, column + count) of a row of a group's gradient as bfloat16. */
static void read_halves(const plan *p, const char *row, int64_t column, int64_t count,
                        uint16_t *half)
{
    if (p->k->native_bf16) {
        memcpy(half, row + column * 2, (size_t)count * sizeof *half);
        return;
    }
    for (int64_t c = 0; c < count; c++)
        half[c] = oct_bf16_of(((const float *)(const void *)row)[(column + c) ^ 1]);
}

static inline __attribute__((always_inline)) void join(int64_t count,
                                                       const uint16_t *restrict first,
                                                       const uint16_t *restrict second,
                                                       uint32_t *restrict words)
{
    for (int64_t c = 0; c < count; c++)
        words[c] = first[c] | (uint32_t)second[c] << 16;
}

/* A line of the output as words of the panels of `count` columns, from rows (positions) that are
 * row_bytes apart. */
OCT_CLONES
static void pack_native(const plan *p, const char *row, int64_t row_bytes, int64_t column,
                        int64_t count, char *tile)
{
    static const uint16_t nothing[OCT_PACKED_COLUMNS];
    const int64_t whole = count / OCT_MAX_COL_TILE * OCT_MAX_COL_TILE;
    for (int64_t at = 0; at < p->s.out_w; at += 2, row += 2 * row_bytes) {
        const uint16_t *first = (const uint16_t *)(const void *)row + column;
        const uint16_t *second = (const uint16_t *)(const void *)(row + row_bytes) + column;
        if (at + 1 == p->s.out_w) second = nothing;
        char *to = tile;
        for (int64_t c = 0; c < whole; c += OCT_MAX_COL_TILE, to += p->panel_bytes)
            join(OCT_MAX_COL_TILE, first + c, second + c, (uint32_t *)(void *)to);
        if (whole < count) {
            memset(to, 0, OCT_MAX_COL_TILE * sizeof(uint32_t));
            join(count - whole, first + whole, second + whole, (uint32_t *)(void *)to);
        }
        tile += OCT_MAX_COL_TILE * sizeof(uint32_t);
    }
}

/* The same of floats, two words a pair with the second first. */
static void pack_swapped(const plan *p, const char *row, int64_t row_bytes, int64_t column,
                         int64_t count, char *tile)
{
    const int64_t columns = p->k->col_tile;
    for (int64_t at = 0; at < p->s.out_w; at += 2, row += 2 * row_bytes) {
        uint16_t pair[2][OCT_PACKED_COLUMNS] = {{0}};
        read_halves(p, row, column, count, pair[0]);
        if (at + 1 < p->s.out_w) read_halves(p, row + row_bytes, column, count, pair[1]);
        char *to = tile;
        for (int64_t c = 0; c < count; c += columns, to += p->panel_bytes) {
            float *values = (float *)(void *)to;
            for (int64_t i = 0; i < columns; i++) {
                values[i] = oct_bf16_value(pair[1][c + i]);
                values[columns + i] = oct_bf16_value(pair[0][c + i]);
            }
        }
        tile += 2 * columns * (int64_t)sizeof(float);
    }
}

static void pack_floats(const plan *p, const char *row, int64_t row_bytes, int64_t column,
                        int64_t count, float *tile)
{
    for (int64_t at = 0; at < p->s.out_w; at++, row += row_bytes, tile += p->k->col_tile) {
        const float *values = (const float *)(const void *)row + column;
        if (!p->grad_pairs && count == OCT_MAX_COL_TILE) {
            memcpy(tile, values, OCT_MAX_COL_TILE * sizeof *tile);
            continue;
        }
        uint16_t half[OCT_MAX_COL_TILE];
        if (p->grad_pairs) read_halves(p, row, column, count, half);
        for (int64_t c = 0; c < p->k->col_tile; c++)
            tile[c] = c >= count      ? 0
                      : p->grad_pairs ? oct_bf16_value((uint16_t)half[c])
                                      : values[c];
    }
}

static void pack_line(const plan *p, const char *rows, int64_t row_bytes, char *panel)
{
    const int64_t tile = p->k->col_tile, step = p->pairs ? OCT_PACKED_COLUMNS : tile;
    for (int64_t c = 0; c < p->outs; c += step, panel += step / tile * p->panel_bytes) {
        const int64_t count = oct_smaller(step, p->outs - c);
        if (p->pairs && p->k->native_bf16)
            pack_native(p, rows, row_bytes, c, count, panel);
        else if (p->pairs)
            pack_swapped(p, rows, row_bytes, c, count, panel);
        else
            pack_floats(p, rows, row_bytes, c, count, (float *)(void *)panel);
    }
}

static void make_panels(const plan *p, const void *grad, int64_t group, const block *b,
                        const room *r)
{
    const oct_conv_shape *s = &p->s;
    const int64_t group_bytes = oct_words_of(p->k, p->grad_pairs, p->outs) * 4;
    const int64_t row_bytes = s->groups * group_bytes;
    char *to = r->panels;
    for (int64_t n = b->sample; n < b->sample + b->samples; n++) {
        for (int64_t l = b->line; l < b->line + b->lines; l++) {
            pack_line(p,
                      (const char *)grad + (n * s->out_h + l) * s->out_w * row_bytes +
                          group * group_bytes,
                      row_bytes, to);
            to += p->line_words * p->k->col_tile * 4;
        }
    }
}

/* Kernel rows that are multiplied with the same lines of a block. */
typedef struct kernel_rows {
    int64_t first, end;
    int64_t line, lines; /* of the block: only these are not all zeros */
} kernel_rows;

/* Lines of the block for which kernel row ky lies inside the input. */
static void lines_inside(const plan *p, const block *b, int64_t ky, int64_t *line, int64_t *lines)
{
    const oct_conv_shape *s = &p->s;
    const int64_t above = s->padding - ky, below = s->in_h - 1 + above;
    const int64_t first = oct_larger(above > 0 ? (above + s->stride - 1) / s->stride : 0, b->line);
    const int64_t end = oct_smaller(below < 0 ? 0 : below / s->stride + 1, b->line + b->lines);
    *line = first - b->line;
    *lines = oct_larger(end - first, 0);
}

/* The next kernel rows after those in c; false at the end. */
static bool next_kernel_rows(const plan *p, const block *b, kernel_rows *c)
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

static int64_t list_runs(const plan *p, const block *b, const kernel_rows *c, oct_run *runs)
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
static int64_t row_start(const plan *p, int64_t at)
{
    const int64_t tap = at / p->ins, ky = tap / p->s.kernel_w, kx = tap % p->s.kernel_w;
    const int64_t shift = kx / p->s.stride, copy = p->copies == 2 ? shift % 2 : 0;
    return (at % p->ins * p->plane + ky * p->line +
            (copy * p->phases + kx % p->s.stride) * p->pitch + shift - copy) *
           p->element;
}

OCT_CLONES
static void add_scaled(int64_t rows, int64_t n, const float *from, const float *factor,
                       float *restrict to)
{
    if (!factor) {
        for (int64_t i = 0; i < rows * n; i++)
            to[i] += from[i];
        return;
    }
    for (int64_t r = 0; r < rows; r++, from += n, to += n) {
        for (int64_t i = 0; i < n; i++)
            to[i] += factor[i] * from[i];
    }
}

/* Rows [first, first + m) of the product; after the last block they are done. */
static void multiply_rows(const plan *p, oct_product *product, const block *b, int64_t first,
                          const room *r, const float *factor, float *turned)
{
    float *sums = p->blocks > 1 ? r->sums + first * p->outs : r->sums;
    for (int64_t i = 0; i < product->m; i++)
        r->rows[i] = (oct_row){row_start(p, first + i), i * p->outs};
    product->acc = sums;
    if (p->pairs)
        p->k->bf16(product);
    else
        p->k->f32(product);
    if (b->last) add_scaled(product->m, p->outs, sums, factor, turned + first * p->outs);
}

static void multiply_block(const plan *p, const block *b, const room *r, const float *factor,
                           float *turned)
{
    const int64_t rows = p->s.kernel_w * p->ins;
    oct_product product = {.x = r->planes,
                           .rows = r->rows,
                           .runs = r->runs,
                           .packed = r->panels,
                           .panel_bytes = p->panel_bytes,
                           .n = p->outs,
                           .add = !b->first};
    for (kernel_rows c = {0}; next_kernel_rows(p, b, &c);) {
        product.num_runs = list_runs(p, b, &c, r->runs);
        for (int64_t at = c.first * rows; at < c.end * rows; at += product.m) {
            product.m = oct_smaller(p->chunk, c.end * rows - at);
            multiply_rows(p, &product, b, at, r, factor, turned);
        }
    }
}

static void backward_group(const plan *p, int64_t group, const void *grad, const oct_conv_input *x,
                           const float *factor, float *turned, const room *r)
{
    block b = {.first = true};
    for (; b.sample < p->samples; b.sample += b.samples) {
        b.samples = oct_smaller(p->block_samples, p->samples - b.sample);
        for (b.line = 0; b.line < p->s.out_h; b.line += b.lines) {
            b.lines = oct_smaller(p->block_lines, p->s.out_h - b.line);
            b.last = b.sample + b.samples == p->samples && b.line + b.lines == p->s.out_h;
            make_planes(p, x, group, &b, r);
            make_panels(p, grad, group, &b, r);
            multiply_block(p, &b, r, factor, turned);
            b.first = false;
        }
    }
}

size_t oct_conv_backward_weight_scratch_bytes(const oct_float_kernel *k, oct_numerics numerics,
                                              const oct_conv_shape *s, int64_t samples)
{
    if (oct_conv_is_depthwise(s)) return oct_depthwise_backward_weight_scratch_bytes(s);
    room r;
    const plan narrow = plan_of(k, numerics, s, samples, false);
    const plan wide = plan_of(k, numerics, s, samples, true);
    const size_t a = room_of(&narrow, NULL, &r), b = room_of(&wide, NULL, &r);
    return a > b ? a : b;
}

void oct_conv_backward_weight(const oct_float_kernel *k, oct_numerics numerics,
                              const oct_conv_shape *s, int64_t samples, const void *grad,
                              const oct_conv_input *x, const float *factor, float *turned,
                              void *scratch)
{
    if (oct_conv_is_depthwise(s)) {
        oct_depthwise_backward_weight(s, samples, grad, x, factor, turned, scratch);
        return;
    }
    const plan p = plan_of(k, numerics, s, samples, x->codes16 != NULL);
    room r;
    room_of(&p, scratch, &r);
    for (int64_t g = 0; g < s->groups; g++)
        backward_group(&p, g, grad, x, factor ? factor + g * p.outs : NULL,
                       turned + g * oct_conv_depth(s) * p.outs, &r);
}

void oct_conv_turn(int64_t groups, int64_t depth, int64_t outs, const float *turned, float *weight)
{
    for (int64_t g = 0; g < groups; g++)
        oct_turn_f32(depth, outs, turned + g * depth * outs, outs, weight + g * depth * outs,
                     depth);
}
