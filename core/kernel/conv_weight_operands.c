/* The operands of the gradient of weights are planes of the input and panels of the gradient. */
#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/kernel/conv_impl.h"
#include "core/kernel/transpose.h"

#include <string.h>

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

/* Transposes 16 x 16 bytes: interleaves the first half of the vectors with the second, four times: each time
 * takes the lowest bit of a row's number to the top of a column's. */
static inline void transpose_sixteen(const bytes row[16], uint8_t *to, int64_t to_pitch)
{
    bytes a[16], b[16];
#define LOW_HALVES 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_HALVES 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define ROUND(from, into)                                                                          \
    for (int i = 0; i < 8; i++) {                                                                  \
        into[2 * i] = __builtin_shufflevector(from[i], from[i + 8], LOW_HALVES);                   \
        into[2 * i + 1] = __builtin_shufflevector(from[i], from[i + 8], HIGH_HALVES);              \
    }
    ROUND(row, a)
    ROUND(a, b)
    ROUND(b, a)
    ROUND(a, b)
#undef ROUND
    for (int i = 0; i < 16; i++)
        memcpy(to + i * to_pitch, &b[i], sizeof b[i]);
}

/* Transposes rows of 16 bytes and reads none at or after `end`; `to` has room for rows rounded up to a multiple of 16,
 * and what is written there is not defined. */
static void transpose_bytes(int64_t rows, const uint8_t *from, int64_t from_pitch,
                            const uint8_t *end, uint8_t *to, int64_t to_pitch)
{
    for (int64_t r = 0; r < rows; r += 16, from += 16 * from_pitch, to += 16) {
        bytes row[16] = {{0}};
        for (int i = 0; i < 16 && r + i < rows; i++)
            row[i] = read_bytes(from + i * from_pitch, end);
        transpose_sixteen(row, to, to_pitch);
    }
}

/* to = code - zero_point as bfloat16: the upper half of the float, which is exact for at most eight bits. */
static inline __attribute__((always_inline)) void
codes_to_bf16(const int n, const uint8_t *restrict codes, int32_t zero_point, uint16_t *restrict to)
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

/* Writes one channel's values, rounded to bfloat16, as pairs of floats with the second first; the second copy has the
 * pairs that begin at odd columns. */
static void write_float_pairs(const oct_weight_plan *p, const float *from, const patch *t,
                              float *line)
{
    for (int64_t i = 0; i < t->columns; i++) {
        const int64_t at = t->column + i;
        const float value = oct_bf16_value(oct_bf16_of(from[i]));
        line[at ^ 1] = value;
        if (p->copies == 2 && at > 0) line[p->phases * p->pitch + ((at - 1) ^ 1)] = value;
    }
}

/* Writes a transposed patch to its planes, rounded to bfloat16; for a kernel without it as pairs of floats. */
OCT_CLONES static void write_as_bf16(const oct_weight_plan *p, const float *values, const patch *t)
{
    for (int64_t c = 0; c < t->channels; c++, values += OCT_PATCH_COLUMNS) {
        char *line = t->line + c * p->plane * p->element;
        if (!p->kernel->native_bf16) {
            write_float_pairs(p, values, t, (float *)(void *)line);
            continue;
        }
        uint16_t *to = (uint16_t *)(void *)line + t->column;
        for (int64_t i = 0; i < t->columns; i++)
            to[i] = oct_bf16_of(values[i]);
    }
}

/* Writes a patch of 8-bit codes of x, (columns, channels), to the planes of its channels: as bfloat16 (2 bytes an
 * element), as pairs of floats (pairs), or as floats. `end`: of x, after which nothing is read. */
static void transpose_codes(const oct_weight_plan *p, const oct_conv_input *x, const patch *t,
                            const oct_weight_scratch *r)
{
    const uint8_t *end = x->codes + p->samples * oct_conv_in_numel(&p->s);
    transpose_bytes(t->columns, x->codes + t->at, t->pitch, end, r->codes, OCT_PATCH_COLUMNS);
    if (p->element == 2) {
        write_codes(t, r->codes, x->zero_point, p->plane);
        return;
    }
    decode_codes(t->channels * OCT_PATCH_COLUMNS, r->codes, x->zero_point, r->values);
    if (p->pairs) {
        write_as_bf16(p, r->values, t);
        return;
    }
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
    } else if (p->pairs) {
        oct_transpose_f32(t->columns, t->channels, x->values + t->at, t->pitch, r->values,
                          OCT_PATCH_COLUMNS);
        write_as_bf16(p, r->values, t);
    } else {
        oct_transpose_f32(t->columns, t->channels, x->values + t->at, t->pitch,
                          (float *)(void *)t->line + t->column, p->plane);
    }
}

static void clear_line(const oct_weight_plan *p, char *line)
{
    for (int64_t c = 0; c < p->ins; c++)
        memset(line + c * p->plane * p->element, 0, (size_t)(p->line * p->element));
}

/* Clears columns [begin, end) of a line of all planes, which are beside the image. */
static void clear_columns(const oct_weight_plan *p, char *line, int64_t begin, int64_t end)
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

/* Writes one line of the input to all planes, patch by patch, with 0 beside the image; at: index of the line in x. */
static void transpose_line(const oct_weight_plan *p, const oct_conv_input *x, int64_t at,
                           char *line, const oct_weight_scratch *r)
{
    const oct_conv_shape *s = &p->s;
    const bool swapped = p->pairs && p->element == 4;
    if (swapped) clear_line(p, line);
    for (int64_t phase = 0; phase < p->phases; phase++, line += p->pitch * p->element) {
        /* Column k of the phase is pixel k * stride_w - left, which is in the image from begin to end. */
        const int64_t left = s->pad_left - phase, right = s->in_w - 1 + left;
        const int64_t first = left > 0 ? (left + s->stride_w - 1) / s->stride_w : 0;
        const int64_t begin = oct_min_i64(first, p->pitch);
        const int64_t inside = right < 0 ? 0 : oct_min_i64(p->pitch, right / s->stride_w + 1);
        const int64_t end = oct_max_i64(inside, begin);
        if (!swapped) clear_columns(p, line, 0, begin);
        if (!swapped) clear_columns(p, line, end, p->pitch);
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
    }
}

void oct_weight_pack_planes(const oct_weight_plan *p, const oct_conv_input *x,
                            const oct_weight_block *b, const oct_weight_scratch *r)
{
    const oct_conv_shape *s = &p->s;
    const int64_t lines = oct_weight_plane_lines(p, b->lines);
    const int64_t extent_h = oct_conv_extent(s->kernel_h, s->dilation_h);
    for (int64_t n = 0; n < b->samples; n++) {
        for (int64_t l = 0; l < lines; l++) {
            if (l % s->stride_h >= extent_h) continue; /* no tap looks at it */
            const int64_t y = b->line * s->stride_h + l - s->pad_top;
            const int64_t from = ((b->sample + n) * s->in_h + y) * s->in_w * s->in_c;
            char *line = r->planes + (n * p->sample + l * p->line) * p->element;
            if (y < 0 || y >= s->in_h)
                clear_line(p, line);
            else
                transpose_line(p, x, from + b->channel, line, r);
        }
    }
}

/* Reads columns [column, column + count) of the gradient's row as bfloat16, also from pairs of floats, the second
 * first. */
static void read_grad_bf16(const oct_weight_plan *p, const char *row, int64_t column, int64_t count,
                           uint16_t *half)
{
    if (p->kernel->native_bf16) {
        memcpy(half, row + column * 2, (size_t)count * sizeof *half);
        return;
    }
    for (int64_t c = 0; c < count; c++)
        half[c] = oct_bf16_of(((const float *)(const void *)row)[(column + c) ^ 1]);
}

static inline __attribute__((always_inline)) void pair_words(int64_t count,
                                                             const uint16_t *restrict first,
                                                             const uint16_t *restrict second,
                                                             uint32_t *restrict words)
{
    for (int64_t c = 0; c < count; c++)
        words[c] = first[c] | (uint32_t)second[c] << 16;
}

/* A line of the output is packed from its rows (positions), which are row_bytes apart. */
typedef struct grad_line {
    const char *rows;
    int64_t row_bytes, column, count; /* count: columns that are packed at once */
} grad_line;

/* Packs a line as bfloat16 words, each of two neighbouring positions (an odd last one with 0), into the panels. */
OCT_CLONES static void pack_bf16_pairs(const oct_weight_plan *p, const grad_line *l, char *tile)
{
    static const uint16_t nothing[OCT_PACKED_COLUMNS];
    const int64_t whole = l->count / OCT_NATIVE_COLUMNS * OCT_NATIVE_COLUMNS;
    const char *row = l->rows;
    for (int64_t at = 0; at < p->s.out_w; at += 2, row += 2 * l->row_bytes) {
        const uint16_t *first = (const uint16_t *)(const void *)row + l->column;
        const uint16_t *second = (const uint16_t *)(const void *)(row + l->row_bytes) + l->column;
        if (at + 1 == p->s.out_w) second = nothing;
        char *to = tile;
        for (int64_t c = 0; c < whole; c += OCT_NATIVE_COLUMNS, to += p->panel_bytes)
            pair_words(OCT_NATIVE_COLUMNS, first + c, second + c, (uint32_t *)(void *)to);
        if (whole < l->count) {
            memset(to, 0, OCT_NATIVE_COLUMNS * sizeof(uint32_t));
            pair_words(l->count - whole, first + whole, second + whole, (uint32_t *)(void *)to);
        }
        tile += OCT_NATIVE_COLUMNS * sizeof(uint32_t);
    }
}

/* Packs a line for a kernel without bfloat16: pairs of positions as floats, the second first. */
static void pack_float_pairs(const oct_weight_plan *p, const grad_line *l, char *tile)
{
    const int64_t columns = p->kernel->col_tile;
    const char *row = l->rows;
    for (int64_t at = 0; at < p->s.out_w; at += 2, row += 2 * l->row_bytes) {
        uint16_t pair[2][OCT_PACKED_COLUMNS] = {{0}};
        read_grad_bf16(p, row, l->column, l->count, pair[0]);
        if (at + 1 < p->s.out_w)
            read_grad_bf16(p, row + l->row_bytes, l->column, l->count, pair[1]);
        char *to = tile;
        for (int64_t c = 0; c < l->count; c += columns, to += p->panel_bytes) {
            float *values = (float *)(void *)to;
            for (int64_t i = 0; i < columns; i++) {
                values[i] = oct_bf16_value(pair[1][c + i]);
                values[columns + i] = oct_bf16_value(pair[0][c + i]);
            }
        }
        tile += 2 * columns * (int64_t)sizeof(float);
    }
}

/* Packs a line of the gradient as words of one float, rounded to bfloat16 where the gradient's rows are. */
static void pack_floats(const oct_weight_plan *p, const grad_line *l, float *tile)
{
    const char *row = l->rows;
    const int64_t columns = p->kernel->col_tile;
    for (int64_t at = 0; at < p->s.out_w; at++, row += l->row_bytes, tile += columns) {
        const float *values = (const float *)(const void *)row + l->column;
        if (!p->grad_pairs && columns == OCT_NATIVE_COLUMNS && l->count == columns) {
            memcpy(tile, values, OCT_NATIVE_COLUMNS * sizeof *tile);
            continue;
        }
        uint16_t half[OCT_PACKED_COLUMNS];
        if (p->grad_pairs) read_grad_bf16(p, row, l->column, l->count, half);
        for (int64_t c = 0; c < columns; c++)
            tile[c] = c >= l->count   ? 0
                      : p->grad_pairs ? oct_bf16_value((uint16_t)half[c])
                                      : values[c];
    }
}

/* Packs the gradient of an output line (a row a position) into the panels, some columns at a time. */
static void pack_line(const oct_weight_plan *p, const char *rows, int64_t row_bytes, char *panel)
{
    const int64_t tile = p->kernel->col_tile, step = p->pairs ? OCT_PACKED_COLUMNS : tile;
    grad_line l = {.rows = rows, .row_bytes = row_bytes};
    for (; l.column < p->outs; l.column += step, panel += step / tile * p->panel_bytes) {
        l.count = oct_min_i64(step, p->outs - l.column);
        if (p->pairs && p->kernel->native_bf16)
            pack_bf16_pairs(p, &l, panel);
        else if (p->pairs)
            pack_float_pairs(p, &l, panel);
        else
            pack_floats(p, &l, (float *)(void *)panel);
    }
}

void oct_weight_pack_panels(const oct_weight_plan *p, const void *grad, const oct_weight_block *b,
                            const oct_weight_scratch *r)
{
    const oct_conv_shape *s = &p->s;
    const int64_t group_bytes = oct_row_words(p->kernel, p->grad_pairs, p->outs) * 4;
    const int64_t row_bytes = s->groups * group_bytes;
    const char *of_group = (const char *)grad + b->group * group_bytes;
    char *to = r->panels;
    for (int64_t n = b->sample; n < b->sample + b->samples; n++) {
        for (int64_t l = b->line; l < b->line + b->lines; l++) {
            pack_line(p, of_group + (n * s->out_h + l) * s->out_w * row_bytes, row_bytes, to);
            to += p->line_words * p->kernel->col_tile * 4;
        }
    }
}
