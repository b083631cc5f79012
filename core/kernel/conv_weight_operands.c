/* The operands of the gradient of weights are planes of the input and panels of the gradient. */
#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/kernel/conv_impl.h"
#include "core/tensor/move.h"

#include <string.h>

OCT_INLINE void round_values(const bool floats, int64_t n, const float *restrict from,
                             const float *factor, void *restrict to)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t half = oct_bf16_word(factor ? from[i] * factor[i] : from[i]);
        if (floats)
            ((float *)to)[i] = oct_bf16_value((uint16_t)half);
        else
            ((uint16_t *)to)[i] = (uint16_t)half;
    }
}

OCT_CLONES void oct_round_rows(const oct_float_kernel *k, const oct_group_rows *g, char *to)
{
    const bool floats = k->bf16_words == OCT_BF16_FLOATS;
    const size_t fill = (size_t)(-g->n & 3) * (floats ? sizeof(float) : sizeof(uint16_t));
    const size_t bytes = (size_t)oct_row_words(k, true, g->n) * 4;
    const float *from = g->from;
    if (g->n % 4 == 0 && g->rows > 1 && g->pitch == g->n && g->bytes == (int64_t)bytes &&
        !g->factor) {
        const oct_group_rows all = {.rows = 1, .n = g->rows * g->n, .from = from};
        oct_round_rows(k, &all, to);
        return;
    }
    for (int64_t r = 0; r < g->rows; r++, from += g->pitch, to += g->bytes) {
        memset(to + bytes - fill, 0, fill);
        if (floats && g->factor)
            round_values(true, g->n, from, g->factor, to);
        else if (floats)
            round_values(true, g->n, from, NULL, to);
        else if (g->factor)
            round_values(false, g->n, from, g->factor, to);
        else
            round_values(false, g->n, from, NULL, to);
        if (k->bf16_words == OCT_BF16_PARITIES)
            oct_order_quads((int64_t)bytes / 2, (uint16_t *)(void *)to, (uint16_t *)(void *)to);
    }
}

/* A patch is transposed at a time: `columns` columns of a line, from `column` on in the planes of
 * `channels` channels. Its first value is value `at` of x, and positions are `pitch` values apart there. */
typedef struct patch {
    int64_t channels, column, columns;
    int64_t at, pitch;
    char *line; /* of the first of the planes */
} patch;

/* Sixteen bytes; __builtin_shufflevector gives the elements of two vectors in another order (gcc 12 and clang). */
typedef uint8_t bytes __attribute__((vector_size(OCT_PATCH_CHANNELS)));

/* Reads a vector, with zeros for what lies at or after `end`. */
static inline bytes read_bytes(const uint8_t *at, const uint8_t *end)
{
    bytes value = {0};
    if (end - at >= OCT_PATCH_CHANNELS)
        memcpy(&value, at, sizeof value);
    else if (end > at)
        memcpy(&value, at, (size_t)(end - at));
    return value;
}

/* Interleaves the first half of `count` vectors with the second: it takes the lowest bit of a row's number to the top of
 * a column's. */
OCT_INLINE void interleave(int count, const bytes *from, bytes *into)
{
    for (int i = 0; i < count / 2; i++) {
        into[2 * i] = __builtin_shufflevector(from[i], from[i + count / 2], 0, 16, 1, 17, 2, 18, 3,
                                              19, 4, 20, 5, 21, 6, 22, 7, 23);
        into[2 * i + 1] = __builtin_shufflevector(from[i], from[i + count / 2], 8, 24, 9, 25, 10,
                                                  26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
}

/* Interleaves 16 rows four times: that transposes 16 x 16 bytes. Writes the first `columns` columns. */
static inline void transpose_sixteen(bytes row[16], int64_t columns, uint8_t *to, int64_t to_pitch)
{
    bytes other[16];
    interleave(16, row, other);
    interleave(16, other, row);
    interleave(16, row, other);
    interleave(16, other, row);
    for (int64_t i = 0; i < columns; i++)
        memcpy(to + i * to_pitch, &row[i], sizeof row[i]);
}

/* Transposes `columns` of rows of 16 bytes and reads none at or after `end`; `to` has room for rows rounded up to a multiple of 16,
 * and what is written there is not defined. */
static void transpose_bytes(int64_t rows, const uint8_t *from, int64_t from_pitch,
                            const uint8_t *end, int64_t columns, uint8_t *to, int64_t to_pitch)
{
    for (int64_t r = 0; r < rows; r += 16, from += 16 * from_pitch, to += 16) {
        bytes row[16] = {{0}};
        for (int i = 0; i < 16 && r + i < rows; i++)
            row[i] = read_bytes(from + i * from_pitch, end);
        transpose_sixteen(row, columns, to, to_pitch);
    }
}

void oct_pack_words(const oct_byte_product *k, const oct_code_rows *r, char *tile,
                    int64_t panel_bytes)
{
    enum { COLUMNS = sizeof(bytes) };
    const bool as_it_is = !k->pack_tile && k->col_tile == COLUMNS;
    for (int64_t first = 0; first < r->rows; first += OCT_WORD, tile += k->tile_bytes) {
        char *to = tile;
        for (int64_t c = 0; c < r->columns; c += COLUMNS) {
            bytes row[OCT_WORD] = {{0}}, other[OCT_WORD];
            for (int i = 0; i < OCT_WORD && first + i < r->rows; i++) {
                const uint8_t *codes = (const uint8_t *)r->codes + (first + i) * r->pitch;
                row[i] = read_bytes(codes + c, codes + r->columns);
            }
            interleave(OCT_WORD, row, other);
            interleave(OCT_WORD, other, row);
            if (as_it_is) {
                memcpy(to, row, sizeof row);
                to += panel_bytes;
                continue;
            }
            int8_t words[sizeof row];
            memcpy(words, row, sizeof row);
            for (int i = 0; i < COLUMNS && c + i < r->columns; i += k->col_tile) {
                oct_pack_tile(k, words + i * OCT_WORD, (int8_t *)to);
                to += panel_bytes;
            }
        }
    }
}

/* to = code - zero_point as bfloat16: the upper half of the float, which is exact for at most eight bits. */
OCT_INLINE void codes_to_bf16(const int n, const uint8_t *restrict codes, int32_t zero_point,
                              uint16_t *restrict to)
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

/* Writes transposed codes into the planes as bfloat16, in vectors of one length; the last may overlap the one before,
 * since lines are short. */
OCT_CLONES static void write_codes(const patch *t, const uint8_t *codes, int32_t zero_point,
                                   int64_t plane)
{
    uint16_t *to = (uint16_t *)(void *)t->line + t->column;
    const int64_t n = t->columns;
    for (int64_t c = 0; c < t->channels; c++, codes += OCT_PATCH_COLUMNS, to += plane) {
        if (n >= 16) {
            for (int64_t i = 0; i < n; i = i + 16 < n && i + 32 > n ? n - 16 : i + 16)
                codes_to_bf16(16, codes + i, zero_point, to + i);
        } else if (n >= 8) {
            codes_to_bf16(8, codes, zero_point, to);
            codes_to_bf16(8, codes + n - 8, zero_point, to + n - 8);
        } else if (n >= 4) {
            codes_to_bf16(4, codes, zero_point, to);
            codes_to_bf16(4, codes + n - 4, zero_point, to + n - 4);
        } else {
            for (int64_t i = 0; i < n; i++)
                codes_to_bf16(1, codes + i, zero_point, to + i);
        }
    }
}

OCT_CLONES static void decode_codes(int64_t n, const uint8_t *codes, int32_t zero_point, float *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)(codes[i] - zero_point);
}

/* to (columns, channels) = code - zero_point of a patch of 16-bit codes. */
OCT_CLONES static void decode_codes16(const patch *t, const uint16_t *codes, int32_t zero_point,
                                      float *to)
{
    for (int64_t i = 0; i < t->columns; i++, codes += t->pitch) {
        for (int64_t c = 0; c < t->channels; c++)
            to[i * OCT_PATCH_CHANNELS + c] = (float)(codes[c] - zero_point);
    }
}

/* Writes a transposed patch to its planes, rounded to bfloat16, as that or as floats. */
OCT_CLONES static void write_rounded(const oct_weight_plan *p, const float *values, const patch *t)
{
    for (int64_t c = 0; c < t->channels; c++, values += OCT_PATCH_COLUMNS) {
        char *line = t->line + c * p->plane * p->element;
        uint16_t *to = (uint16_t *)(void *)line + t->column;
        float *floats = (float *)(void *)line + t->column;
        for (int64_t i = 0; p->element == 2 && i < t->columns; i++)
            to[i] = oct_bf16_of(values[i]);
        for (int64_t i = 0; p->element == 4 && i < t->columns; i++)
            floats[i] = oct_bf16_value(oct_bf16_of(values[i]));
    }
}

/* Writes a patch of 8-bit codes of x, (columns, channels), to the planes of its channels: as bfloat16 (2 bytes an
 * element) or as floats. `end`: of x, after which nothing is read. */
static void transpose_codes(const oct_weight_plan *p, const oct_conv_input *x, const patch *t,
                            const oct_weight_scratch *r)
{
    const uint8_t *end = x->codes + p->samples * oct_conv_in_numel(&p->s);
    if (p->bytes) { /* what is written after the columns is cleared or written later */
        uint8_t *line = (uint8_t *)t->line + t->column;
        transpose_bytes(t->columns, x->codes + t->at, t->pitch, end, t->channels, line, p->plane);
        return;
    }
    transpose_bytes(t->columns, x->codes + t->at, t->pitch, end, OCT_PATCH_CHANNELS, r->codes,
                    OCT_PATCH_COLUMNS);
    if (p->element == 2) {
        write_codes(t, r->codes, x->zero_point, p->plane);
        return;
    }
    decode_codes(t->channels * OCT_PATCH_COLUMNS, r->codes, x->zero_point, r->values);
    for (int64_t c = 0; c < t->channels; c++)
        memcpy((float *)(void *)t->line + c * p->plane + t->column,
               r->values + c * OCT_PATCH_COLUMNS, (size_t)t->columns * sizeof(float));
}

/* Writes a patch of floats or of 16-bit codes of x, (columns, channels), to the planes of its channels. */
static void transpose_values(const oct_weight_plan *p, const oct_conv_input *x, const patch *t,
                             const oct_weight_scratch *r)
{
    if (x->codes16) {
        decode_codes16(t, x->codes16 + t->at, x->zero_point, r->values);
        oct_transpose_f32(t->columns, t->channels, r->values, OCT_PATCH_CHANNELS,
                          (float *)(void *)t->line + t->column, p->plane);
    } else if (p->bf16) {
        oct_transpose_f32(t->columns, t->channels, x->values + t->at, t->pitch, r->values,
                          OCT_PATCH_COLUMNS);
        write_rounded(p, r->values, t);
    } else {
        oct_transpose_f32(t->columns, t->channels, x->values + t->at, t->pitch,
                          (float *)(void *)t->line + t->column, p->plane);
    }
}

/* Clears columns [begin, end) of a line of all planes, which are beside the image. zero: the byte that is zero, of codes
 * the zero point. */
static void clear_columns(const oct_weight_plan *p, int zero, char *line, int64_t begin,
                          int64_t end)
{
    for (int64_t at = begin; at < end; at++) {
        for (int64_t c = 0; c < p->ins; c++) {
            if (p->element == 1)
                line[c * p->plane + at] = (char)zero;
            else if (p->element == 2)
                ((uint16_t *)(void *)line)[c * p->plane + at] = 0;
            else
                ((float *)(void *)line)[c * p->plane + at] = 0;
        }
    }
}

/* Makes the copies of a line of all planes, with their quads in the order of the kernel. */
static void order_line(const oct_weight_plan *p, const oct_weight_plan *raw, const char *from,
                       char *line)
{
    const uint16_t *values = (const uint16_t *)(const void *)from;
    for (int64_t c = 0; c < p->ins; c++, values += raw->plane) {
        uint16_t *to = (uint16_t *)(void *)line + c * p->plane;
        for (int64_t copy = 0; copy < p->copies; copy++, to += p->copy)
            for (int64_t phase = 0; phase < p->phases; phase++)
                oct_order_quads(p->pitch, values + phase * raw->pitch + copy,
                                to + phase * p->pitch);
    }
}

/* Writes one line of the input to all planes, patch by patch, with 0 beside the image; at: index of the line in x. */
static void transpose_line(const oct_weight_plan *p, const oct_conv_input *x, int64_t at,
                           char *line, const oct_weight_scratch *r)
{
    const oct_conv_shape *s = &p->s;
    const int zero = p->bytes ? x->zero_point : 0;
    for (int64_t phase = 0; phase < p->phases; phase++, line += p->pitch * p->element) {
        /* Column k of the phase is pixel k * stride_w - left, which is in the image from begin to end. */
        const int64_t left = s->pad_left - phase, right = s->in_w - 1 + left;
        const int64_t first = left > 0 ? (left + s->stride_w - 1) / s->stride_w : 0;
        const int64_t begin = oct_min_i64(first, p->pitch);
        const int64_t inside = right < 0 ? 0 : oct_min_i64(p->pitch, right / s->stride_w + 1);
        const int64_t end = oct_max_i64(inside, begin);
        for (int64_t column = begin; column < end; column += OCT_PATCH_COLUMNS) {
            for (int64_t c = 0; c < p->ins; c += OCT_PATCH_CHANNELS) {
                const patch t = {.channels = oct_min_i64(OCT_PATCH_CHANNELS, p->ins - c),
                                 .column = column,
                                 .columns = oct_min_i64(OCT_PATCH_COLUMNS, end - column),
                                 .at = at + (column * s->stride_w - left) * s->in_c + c,
                                 .pitch = s->stride_w * s->in_c,
                                 .line = line + c * p->plane * p->element};
                if (x->codes)
                    transpose_codes(p, x, &t, r);
                else
                    transpose_values(p, x, &t, r);
            }
        }
        clear_columns(p, zero, line, 0, begin);
        clear_columns(p, zero, line, end, p->pitch);
    }
}

/* Clears a line of all planes, which is outside of the image. */
static void clear_line(const oct_weight_plan *p, const oct_conv_input *x, char *line)
{
    for (int64_t c = 0; c < p->ins; c++)
        for (int64_t copy = 0; copy < p->copies; copy++)
            memset(line + (c * p->plane + copy * p->copy) * p->element,
                   p->bytes ? x->zero_point : 0, (size_t)(p->line * p->element));
}

/* Makes the planes of p->ins channels of x (all samples of the leaf), as far as the taps of the block see them. */
static void pack_planes(const oct_weight_plan *p, const oct_conv_input *x,
                        const oct_weight_block *b, const oct_weight_scratch *r)
{
    const oct_conv_shape *s = &p->s;
    const int64_t lines = oct_weight_plane_lines(p, b->lines);
    const int64_t extent_h = oct_conv_extent(s->kernel_h, s->dilation_h);
    const oct_weight_plan raw = oct_weight_raw_plan(p);
    if (p->bytes) memset(r->planes + p->ins * p->plane, x->zero_point, (size_t)p->plane);
    for (int64_t n = 0; n < b->samples; n++) {
        for (int64_t l = 0; l < lines; l++) {
            if (l % s->stride_h >= extent_h) continue; /* no tap looks at it */
            const int64_t y = b->line * s->stride_h + l - s->pad_top;
            const int64_t from = ((b->sample + n) * s->in_h + y) * s->in_w * s->in_c;
            char *line = r->planes + (n * p->sample + l * p->line) * p->element;
            if (y < 0 || y >= s->in_h) {
                clear_line(p, x, line);
            } else if (p->quads) {
                transpose_line(&raw, x, from + b->channel, r->raw, r);
                order_line(p, &raw, r->raw, line);
            } else {
                transpose_line(p, x, from + b->channel, line, r);
            }
        }
    }
}

/* A line of the output is packed from its rows (positions), which are row_bytes apart. */
typedef struct grad_line {
    const char *rows;
    int64_t row_bytes, column, count; /* count: columns that are packed at once */
} grad_line;

/* words = pairs of two rows; columns in quads (ordered) are put back into their order. */
OCT_INLINE void pair_words(int64_t columns, bool quads, const uint16_t *restrict lower,
                           const uint16_t *restrict upper, char *to)
{
    typedef uint32_t words __attribute__((vector_size(4 * OCT_PAIR_COLUMNS)));
    words pairs = {0};
    for (int64_t c = 0; c < columns; c++)
        pairs[c] = lower[c] | (uint32_t)upper[c] << 16;
    if (quads)
        pairs = __builtin_shufflevector(pairs, pairs, 1, 3, 0, 2, 5, 7, 4, 6, 9, 11, 8, 10, 13, 15,
                                        12, 14);
    memcpy(to, &pairs, sizeof pairs);
}

/* Packs a line into the panels as bfloat16 words, two for each quad of positions (those after the last are 0). */
OCT_CLONES static void pack_quads(const oct_weight_plan *p, const grad_line *l, char *tile)
{
    static const uint16_t nothing[OCT_PACKED_COLUMNS];
    const int64_t whole = l->count / OCT_PAIR_COLUMNS * OCT_PAIR_COLUMNS;
    const int64_t rest = (l->count - whole + 3) / 4 * 4;
    for (int64_t word = 0; word < p->line_words; word++, tile += OCT_PAIR_COLUMNS * 4) {
        const uint16_t *half[2];
        int at[2];
        oct_halves_of_word(p->kernel, (int)(word % 2), &at[0], &at[1]);
        for (int i = 0; i < 2; i++) {
            const int64_t position = word / 2 * 4 + at[i];
            const char *row = l->rows + position * l->row_bytes;
            half[i] = (const uint16_t *)(const void *)row + l->column;
            if (position >= p->s.out_w) half[i] = nothing;
        }
        char *to = tile;
        for (int64_t c = 0; c < whole; c += OCT_PAIR_COLUMNS, to += p->panel_bytes)
            pair_words(OCT_PAIR_COLUMNS, p->quads, half[0] + c, half[1] + c, to);
        if (rest > 0) pair_words(rest, p->quads, half[0] + whole, half[1] + whole, to);
    }
}

/* Packs a line of the gradient as words of one float, with zeros for what fills the line up. */
static void pack_floats(const oct_weight_plan *p, const grad_line *l, float *tile)
{
    const char *row = l->rows;
    const int64_t columns = p->kernel->col_tile;
    const bool halves = p->grad_bf16 && p->kernel->bf16_words != OCT_BF16_FLOATS;
    for (int64_t at = 0; at < p->line_words; at++, row += l->row_bytes, tile += columns) {
        const float *values = (const float *)(const void *)row + l->column;
        const uint16_t *half = (const uint16_t *)(const void *)row + l->column;
        if (at < p->s.out_w && !halves && l->count == columns) {
            memcpy(tile, values, (size_t)columns * sizeof *tile);
            continue;
        }
        memset(tile, 0, (size_t)columns * sizeof *tile);
        for (int64_t c = 0; at < p->s.out_w && c < l->count; c++)
            tile[c] = halves ? oct_bf16_value(half[oct_place_in_quads(p->kernel, c)]) : values[c];
    }
}

/* Packs the gradient of an output line (a row a position) into the panels, some columns at a time. */
static void pack_line(const oct_weight_plan *p, const char *rows, int64_t row_bytes, char *panel)
{
    const int64_t tile = p->kernel->col_tile, step = p->element == 2 ? OCT_PACKED_COLUMNS : tile;
    grad_line l = {.rows = rows, .row_bytes = row_bytes};
    for (; l.column < p->outs; l.column += step, panel += step / tile * p->panel_bytes) {
        l.count = oct_min_i64(step, p->outs - l.column);
        if (p->element == 2)
            pack_quads(p, &l, panel);
        else
            pack_floats(p, &l, (float *)(void *)panel);
    }
}

/* Packs the gradient of one group and block into r->panels, one output line at a time: INT8 codes as words; floats that are
 * multiplied as bf16 (rounds_grad) after rounding the line into r->grad; all others as they are. */
static void pack_panels(const oct_weight_plan *p, const void *grad, const oct_weight_block *b,
                        const oct_weight_scratch *r)
{
    const oct_conv_shape *s = &p->s;
    const int64_t packed_bytes = p->bytes ? oct_round_up(p->outs, OCT_WORD)
                                          : oct_row_words(p->kernel, p->grad_bf16, p->outs) * 4;
    const int64_t group_bytes = p->rounds_grad ? p->outs * 4 : packed_bytes;
    const int64_t line_bytes =
        p->line_words * (p->bytes ? p->bytes->tile_bytes : p->kernel->col_tile * 4);
    const int64_t row_bytes = s->groups * group_bytes;
    const char *of_group = (const char *)grad + b->group * group_bytes;
    oct_group_rows floats = {
        .rows = s->out_w, .n = p->outs, .pitch = s->out_c, .bytes = packed_bytes};
    char *to = r->panels;
    for (int64_t n = b->sample; n < b->sample + b->samples; n++) {
        for (int64_t l = b->line; l < b->line + b->lines; l++) {
            const char *line = of_group + (n * s->out_h + l) * s->out_w * row_bytes;
            if (p->bytes) {
                oct_pack_words(p->bytes,
                               &(oct_code_rows){(const int8_t *)line, s->out_w, p->outs, row_bytes},
                               to, p->panel_bytes);
            } else if (!p->rounds_grad) {
                pack_line(p, line, row_bytes, to);
            } else {
                floats.from = (const float *)(const void *)line;
                oct_round_rows(p->kernel, &floats, r->grad);
                pack_line(p, r->grad, packed_bytes, to);
            }
            to += line_bytes;
        }
    }
}

void oct_weight_pack_block(const oct_weight_plan *p, const oct_conv_weight_pass *pass,
                           const oct_weight_block *b, const oct_weight_scratch *r)
{
    oct_weight_scratch low = *r;
    low.panels += p->panels * p->panel_bytes;
    pack_planes(p, &pass->x, b, r);
    pack_panels(p, pass->grad, b, r);
    if (p->bytes && p->digits == 2) pack_panels(p, pass->low, b, &low);
}
