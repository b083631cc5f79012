/* Convolution forward, and backward to data as a convolution of its own: products of rows in x
 * (or in the rows of the gradient) with packed weights, by the classes of positions that
 * core/product/conv_window.h finds. */
#include "core/kernel/conv.h"

#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/kernel/conv_impl.h"
#include "core/tensor/move.h"

#include <string.h>

/* A block has about this many positions: its rows of x and its results should stay in the second-level
 * cache while all panels of weights are read. */
enum { WANTED_POSITIONS = 512 };
/* Of a tap, which are transposed together: whole quads. */
enum { PACKED_CHANNELS = 32 };

oct_numerics oct_conv_numerics(const oct_conv_shape *s, oct_dtype input, oct_numerics wanted)
{
    enum { LEAST_OPERATIONS = 32 }; /* for each code of the gradient */
    if (wanted != OCT_NUMERICS_INT8) return wanted;
    const int64_t taps = (int64_t)s->kernel_h * s->kernel_w;
    const bool exact =
        taps * s->out_c / s->groups <= OCT_CONV_MAX_CODES && s->out_w <= OCT_CONV_MAX_CODES;
    const bool worth = taps * s->in_c / s->groups >= LEAST_OPERATIONS;
    const bool codes = input == OCT_U8 && !oct_conv_is_depthwise(s) && exact && worth;
    return codes ? OCT_NUMERICS_INT8 : OCT_NUMERICS_BF16;
}

/* Returns the words that a group's part of a row has of `channels`, those of x or of the gradient. */
static int64_t group_words(const oct_conv_config *c, int64_t channels)
{
    const int64_t n = channels / c->shape.groups;
    if (c->numerics == OCT_NUMERICS_INT8) return (n + OCT_WORD - 1) / OCT_WORD;
    return oct_row_words(c->kernel, c->numerics == OCT_NUMERICS_BF16, n);
}

/* Plans one direction: rows of x or of the gradient, `words` 4-byte words a tap, times weights in panels of col_tile
 * columns (channels of the result). */
static void init_product(oct_conv_product *d, const oct_conv_config *c, oct_direction direction)
{
    const oct_conv_shape *s = &c->shape;
    const bool forward = direction == OCT_FORWARD;
    const bool codes = c->numerics == OCT_NUMERICS_INT8;
    oct_winograd *w = &d->winograd;
    if (codes) oct_winograd_init(w, c->bytes, s, c->leaf, direction, OCT_GRAD_FLIP);
    if (w->bytes) { /* conv_bytes.c: rows and sums of a block in scratch */
        const int64_t position =
            (int64_t)sizeof(oct_row) + c->data_digits * w->out_c * (int64_t)sizeof(int32_t);
        _Static_assert((int)OCT_WINOGRAD_CENTER == (int)OCT_GRAD_FLIP, "the center is the offset");
        d->offsets_at = w->center_at;
        d->packed_bytes = (size_t)w->packed_bytes;
        d->scratch_bytes = (size_t)(w->scratch_bytes + w->period * w->lines * w->out_w * position);
        return;
    }
    const int64_t channels = forward ? s->in_c : s->out_c, words = group_words(c, channels);
    const oct_conv_window_layout layout = {.pixel_bytes = words * s->groups * 4,
                                           .tap_words = words,
                                           .acc_stride = forward ? s->out_c : s->in_c,
                                           .wanted = WANTED_POSITIONS};
    const int64_t tile = codes ? c->bytes->col_tile : c->kernel->col_tile;
    const int64_t panel_words = (int64_t)s->kernel_h * s->kernel_w * words;
    d->columns = layout.acc_stride / s->groups;
    d->panel_bytes = panel_words * (codes ? c->bytes->tile_bytes : tile * 4);
    d->group_bytes = (d->columns + tile - 1) / tile * d->panel_bytes;
    d->packed_bytes = (size_t)(s->groups * d->group_bytes);
    oct_conv_window_init(&d->window, s, direction, &layout);
    if (c->numerics == OCT_NUMERICS_BF16 && (forward || c->grad_is_floats)) {
        d->rounded_channels = channels;
        d->scratch_bytes = (size_t)(d->window.period * d->window.x_bytes);
    }
    if (!codes) return;
    d->offsets_at = s->groups * d->group_bytes;
    d->zeros_bytes = panel_words * OCT_WORD;
    d->packed_bytes += (size_t)(oct_conv_window_kinds(&d->window) * s->in_c) * sizeof(int32_t) +
                       (size_t)d->zeros_bytes;
    d->scratch_bytes =
        OCT_CHUNK_ROWS * (sizeof(oct_row) + (size_t)c->data_digits * sizeof(int32_t) *
                                                (size_t)oct_min_i64(d->columns, OCT_CHUNK_COLUMNS));
}

void oct_conv_plan_init(oct_conv_plan *p, const oct_conv_config *config)
{
    const oct_conv_shape *s = &config->shape;
    *p = (oct_conv_plan){.config = *config, .depthwise = oct_conv_is_depthwise(s)};
    p->config.numerics = oct_conv_numerics(s, config->input, config->numerics);
    if (p->config.numerics == OCT_NUMERICS_INT8 && !config->bytes)
        p->config.numerics = OCT_NUMERICS_BF16;
    config = &p->config;
    p->grad_rows_are_floats =
        p->depthwise || config->numerics == OCT_NUMERICS_F32 || config->grad_is_floats;
    p->grad_row_bytes =
        4 *
        (size_t)(p->grad_rows_are_floats ? s->out_c : group_words(config, s->out_c) * s->groups);
    if (p->depthwise) {
        oct_depthwise_plan_init(p);
        return;
    }
    if (config->products & OCT_CONV_FORWARD) init_product(&p->forward, config, OCT_FORWARD);
    if (config->products & OCT_CONV_BACKWARD_DATA) init_product(&p->data, config, OCT_BACKWARD);
    if (config->products & OCT_CONV_BACKWARD_WEIGHT) oct_weight_product_init(p);
    p->table_bytes = p->forward.window.table_bytes + p->data.window.table_bytes;
}

void oct_conv_plan_tables(oct_conv_plan *p, void *memory)
{
    oct_conv_window *forward = &p->forward.window, *data = &p->data.window;
    if (forward->table_bytes > 0) oct_conv_window_tables(forward, memory);
    if (data->table_bytes > 0) oct_conv_window_tables(data, (char *)memory + forward->table_bytes);
}

/* Rounds rows (rows, channels) to bfloat16, each group's part filled up to whole quads; bytes: of a row that is written. */
static void round_groups(const oct_conv_config *c, oct_group_rows rows, char *to)
{
    const int64_t channels = rows.n, groups = channels / c->shape.groups % 4 ? c->shape.groups : 1;
    rows.pitch = channels;
    rows.n = channels / groups;
    for (int64_t i = 0; i < groups; i++, rows.from += rows.n) {
        oct_round_rows(c->kernel, &rows, to + i * rows.bytes / groups);
        if (rows.factor) rows.factor += rows.n;
    }
}

/* Returns the rows of `samples` samples from sample n of the pass on: those that it has, or in scratch floats that become
 * bfloat16. */
static const char *rows_of_samples(const oct_conv_plan *p, const oct_conv_product *d,
                                   const oct_conv_pass *pass, int64_t n, int64_t samples,
                                   char *scratch)
{
    const int64_t bytes = d->window.layout.pixel_bytes, pixels = d->window.x_bytes / bytes;
    const oct_group_rows rows = {.rows = samples * pixels,
                                 .n = d->rounded_channels,
                                 .bytes = bytes,
                                 .from = (const float *)pass->x + n * pixels * d->rounded_channels};
    if (d->rounded_channels == 0) return (const char *)pass->x + n * d->window.x_bytes;
    round_groups(&p->config, rows, scratch);
    return scratch;
}

/* y = bias + x * packed weights, or y += it, block by block of positions; in a block each class of positions, those
 * that see the same taps, is one product for each group. */
static void multiply_rows(const oct_conv_plan *plan, const oct_conv_product *d,
                          const oct_conv_pass *pass, void *scratch)
{
    const oct_float_kernel *k = plan->config.kernel;
    oct_product_fn *product = plan->config.numerics == OCT_NUMERICS_BF16 ? k->bf16 : k->f32;
    const oct_conv_window *w = &d->window;
    const int64_t stride = w->layout.acc_stride;
    for (int64_t n = 0; n < pass->samples; n += w->period) {
        const int64_t samples = oct_min_i64(w->period, pass->samples - n);
        const char *x = rows_of_samples(plan, d, pass, n, samples, scratch);
        for (const oct_conv_window_block *b = w->blocks; b < w->blocks + w->num_blocks; b++) {
            float *to = pass->y + (n * w->positions + b->position) * stride;
            const int64_t positions = b->positions / w->period * samples;
            for (int64_t i = 0; pass->bias && i < positions; i++)
                memcpy(to + i * stride, pass->bias, (size_t)stride * sizeof *to);
            for (int64_t c = b->first_class; c < b->first_class + b->classes; c++) {
                oct_product p = oct_conv_window_product(w, &w->classes[c], samples, x, to);
                p.panel_bytes = d->panel_bytes;
                p.n = d->columns;
                p.add = pass->add || pass->bias;
                p.packed = pass->packed;
                for (int64_t column = 0; column < stride; column += d->columns) {
                    product(&p);
                    p.packed = (const char *)p.packed + d->group_bytes;
                    p.x = (const char *)p.x + w->layout.tap_words * 4;
                    p.acc = (float *)p.acc + d->columns;
                }
            }
        }
    }
}

/* Columns of one tap of a group are packed together, from weight `at` on. */
typedef struct tap_columns {
    const float *values; /* the layer's weights, or NULL: */
    const int8_t *codes;
    int64_t at, columns;
    int64_t rows, depth; /* `depth` values apart: outputs (backward) or inputs (forward) */
    char *tile;
    int64_t panel_bytes;
} tap_columns;

/* Reads `columns` weights from index `at` on as bfloat16, one in the lower half of each word, and zeros after them. */
OCT_INLINE void read_bf16_words(const tap_columns *t, int64_t at, int64_t columns,
                                uint32_t *restrict words)
{
    if (t->values) {
        for (int64_t c = 0; c < columns; c++)
            words[c] = oct_bf16_word(t->values[at + c]);
    } else {
        for (int64_t c = 0; c < columns; c++)
            words[c] = oct_bf16_word((float)t->codes[at + c]);
    }
    for (int64_t c = columns; c < OCT_PACKED_COLUMNS; c++)
        words[c] = 0;
}

/* Writes the tiles of a quad of outputs in the columns of a panel; returns the bytes. */
OCT_INLINE int64_t store_quad(const oct_float_kernel *k, uint32_t quad[4][OCT_PACKED_COLUMNS],
                              int64_t column, char *tile)
{
    if (k->bf16_words == OCT_BF16_FLOATS) {
        float *values = (float *)(void *)tile;
        for (int i = 0; i < 4; i++, values += k->col_tile)
            for (int c = 0; c < k->col_tile; c++)
                values[c] = oct_bf16_value((uint16_t)quad[i][column + c]);
        return 4 * k->col_tile * (int64_t)sizeof(float);
    }
    uint32_t words[2][OCT_PAIR_COLUMNS];
    for (int i = 0, lower, upper; i < 2; i++) {
        oct_halves_of_word(k, i, &lower, &upper);
        for (int c = 0; c < OCT_PAIR_COLUMNS; c++)
            words[i][c] = quad[lower][column + c] | quad[upper][column + c] << 16;
    }
    memcpy(tile, words, sizeof words);
    return sizeof words;
}

/* Packs one tap as bfloat16 words: each quad of outputs makes some tiles in every panel of the columns. Returns where
 * the next ones go. */
OCT_CLONES static char *pack_quads(const oct_float_kernel *k, const tap_columns *t)
{
    int64_t at = t->at, bytes = 0;
    char *tile = t->tile;
    for (; at < t->at + t->rows * t->depth; tile += bytes) {
        uint32_t quad[4][OCT_PACKED_COLUMNS];
        for (int i = 0; i < 4; i++, at += t->depth)
            read_bf16_words(t, at, at < t->at + t->rows * t->depth ? t->columns : 0, quad[i]);
        char *to = tile;
        for (int64_t c = 0; c < t->columns; c += k->col_tile, to += t->panel_bytes)
            bytes = store_quad(k, quad, c, to);
    }
    return tile;
}

/* Packs a panel of a group's weights (`columns` outputs, p's depth apart) as bfloat16 words: chunks of one tap's inputs are
 * transposed to rows of inputs, and each four rows make a tile. */
static void pack_forward_quads(const oct_conv_plan *p, const float *from, int64_t columns,
                               char *tile)
{
    const int64_t depth = oct_conv_depth(&p->config.shape);
    const int64_t ins = p->config.shape.in_c / p->config.shape.groups;
    float part[PACKED_CHANNELS * OCT_PACKED_COLUMNS];
    for (int64_t at = 0, n; at < depth; at += n) {
        n = oct_min_i64(PACKED_CHANNELS, ins - at % ins);
        oct_transpose_f32(columns, n, from + at, depth, part, OCT_PACKED_COLUMNS);
        const tap_columns t = {.values = part,
                               .columns = columns,
                               .rows = n,
                               .depth = OCT_PACKED_COLUMNS,
                               .tile = tile};
        tile = pack_quads(p->config.kernel, &t);
    }
}

/* A panel holds `tile` outputs of a group, transposed to (depth, tile); the last one is filled up with zeros. */
void oct_conv_forward_pack(const oct_conv_plan *p, const float *weight, void *packed)
{
    const oct_conv_shape *s = &p->config.shape;
    const oct_conv_product *d = &p->forward;
    const int64_t depth = oct_conv_depth(s), tile = p->config.kernel->col_tile;
    if (p->depthwise) {
        oct_depthwise_pack(s, weight, NULL, OCT_FORWARD, packed);
        return;
    }
    const int64_t panels = (d->columns + tile - 1) / tile;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < s->groups * panels; i++) {
        const int64_t c = i % panels * tile, columns = oct_min_i64(tile, d->columns - c);
        const float *from = weight + (i / panels * d->columns + c) * depth;
        float *panel = (float *)(void *)((char *)packed + i * d->panel_bytes);
        if (p->config.numerics == OCT_NUMERICS_BF16) {
            pack_forward_quads(p, from, columns, (char *)panel);
            continue;
        }
        if (columns < tile) memset(panel, 0, (size_t)(depth * tile) * sizeof *panel);
        oct_transpose_f32(columns, depth, from, depth, panel, tile);
    }
}

void oct_conv_forward(const oct_conv_plan *p, const oct_conv_pass *pass, void *scratch)
{
    if (p->depthwise)
        oct_depthwise_multiply(&p->forward.strip, pass, scratch);
    else
        multiply_rows(p, &p->forward, pass, scratch);
}

OCT_CLONES static void scale_rows(int64_t rows, int64_t channels, const float *from,
                                  const float *factor, float *restrict to)
{
    for (int64_t r = 0; r < rows; r++, from += channels, to += channels) {
        for (int64_t c = 0; c < channels; c++)
            to[c] = from[c] * factor[c];
    }
}

void oct_conv_grad_rows(const oct_conv_plan *p, int64_t rows, const float *grad_y,
                        const float *factor, void *out)
{
    const int64_t channels = p->config.shape.out_c;
    const oct_group_rows all = {.rows = rows,
                                .n = channels,
                                .bytes = (int64_t)p->grad_row_bytes,
                                .from = grad_y,
                                .factor = factor};
    if (!p->grad_rows_are_floats)
        round_groups(&p->config, all, out);
    else if (factor)
        scale_rows(rows, channels, grad_y, factor, out);
    else
        memcpy(out, grad_y, (size_t)(rows * channels) * sizeof *grad_y);
}

/* Packs one tap as floats: each output, `depth` weights after the one before, makes one tile of col_tile input
 * channels, of 4 bytes each, in every panel. */
static void pack_floats(const oct_float_kernel *k, const tap_columns *t)
{
    int64_t at = t->at;
    char *tile = t->tile;
    for (int64_t o = 0; o < t->rows; o++, at += t->depth, tile += k->col_tile * 4) {
        char *to = tile;
        for (int64_t c = 0; c < t->columns; c += k->col_tile, to += t->panel_bytes) {
            float *values = (float *)(void *)to;
            for (int64_t i = 0; i < k->col_tile; i++) {
                const int64_t from = at + c + i;
                values[i] = c + i >= t->columns ? 0
                            : t->values         ? t->values[from]
                                                : (float)t->codes[from];
            }
        }
    }
}

void oct_conv_backward_data_pack(const oct_conv_plan *p, const float *weight, const int8_t *codes,
                                 void *packed)
{
    const oct_conv_shape *s = &p->config.shape;
    const oct_conv_product *d = &p->data;
    const oct_float_kernel *k = p->config.kernel;
    const int64_t taps = (int64_t)s->kernel_h * s->kernel_w, tap_bytes = d->panel_bytes / taps;
    const tap_columns all = {.values = weight,
                             .codes = codes,
                             .rows = s->out_c / s->groups,
                             .depth = oct_conv_depth(s),
                             .panel_bytes = d->panel_bytes};
    if (p->depthwise) {
        oct_depthwise_pack(s, weight, codes, OCT_BACKWARD, packed);
        return;
    }
    if (p->config.numerics == OCT_NUMERICS_INT8) {
        oct_conv_byte_pack(p, codes, packed);
        return;
    }
    const int64_t blocks = (d->columns + OCT_PACKED_COLUMNS - 1) / OCT_PACKED_COLUMNS;
    /* Turn i packs a block of columns (input channels) of one tap of one group. */
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < s->groups * blocks * taps; i++) {
        const int64_t g = i / (blocks * taps), tap = i % taps;
        const int64_t c = i / taps % blocks * OCT_PACKED_COLUMNS;
        tap_columns t = all;
        t.columns = oct_min_i64(OCT_PACKED_COLUMNS, d->columns - c);
        t.at = g * t.rows * t.depth + tap * d->columns + c;
        t.tile = (char *)packed + g * d->group_bytes + c / k->col_tile * d->panel_bytes +
                 tap * tap_bytes;
        if (p->config.numerics == OCT_NUMERICS_BF16)
            pack_quads(k, &t);
        else
            pack_floats(k, &t);
    }
}

void oct_conv_backward_data(const oct_conv_plan *p, const oct_conv_pass *pass, void *scratch)
{
    if (p->depthwise)
        oct_depthwise_multiply(&p->data.strip, pass, scratch);
    else if (p->config.numerics == OCT_NUMERICS_INT8)
        oct_conv_byte_multiply(p, pass, scratch);
    else
        multiply_rows(p, &p->data, pass, scratch);
}

OCT_CLONES void oct_bias_backward(int64_t rows, int64_t pitch, int64_t channels,
                                  const float *grad_y, float *restrict grad_bias)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < channels; c++)
            grad_bias[c] += grad_y[r * pitch + c];
    }
}
