/* The files of conv.h share this. */
#pragma once

#include "core/kernel/bf16.h"
#include "core/kernel/conv.h"

enum {
    OCT_NATIVE_COLUMNS = 16,  /* of a panel whose words are pairs of bfloat16 */
    OCT_DEPTHWISE_LANES = 16, /* channels that are worked together */
    /* Columns that are packed at once, in a loop that vectors take well: a cache line of codes. A
     * multiple of every table's panel. */
    OCT_PACKED_COLUMNS = 64,
};

/* Returns the words that `values` values of a row take; bfloat16 ones come in pairs. */
static inline int64_t oct_row_words(const oct_float_kernel *k, bool pairs, int64_t values)
{
    if (!pairs) return values;
    const int64_t count = (values + 1) / 2;
    return k->native_bf16 ? count : 2 * count;
}

/* Writes the tile (or two, see float_kernel.h) of a pair of rows of bfloat16, each in the lower half of a
 * word; returns where the next one goes. */
static inline __attribute__((always_inline)) char *oct_store_pair_tile(const oct_float_kernel *k,
                                                                       const uint32_t *first,
                                                                       const uint32_t *second,
                                                                       char *tile)
{
    if (k->native_bf16) {
        uint32_t words[OCT_NATIVE_COLUMNS];
        for (int c = 0; c < OCT_NATIVE_COLUMNS; c++)
            words[c] = first[c] | second[c] << 16;
        memcpy(tile, words, sizeof words);
        return tile + sizeof words;
    }
    float *values = (float *)(void *)tile;
    const int columns = k->col_tile;
    for (int c = 0; c < columns; c++) {
        values[c] = oct_bf16_value((uint16_t)second[c]);
        values[columns + c] = oct_bf16_value((uint16_t)first[c]);
    }
    return tile + 2 * columns * (int)sizeof *values;
}

/* Fills in the part of a plan that is about weight gradients. */
void oct_weight_product_init(oct_conv_plan *p);

/* Depthwise layers have one filter a channel. Gradients of the output are rows of floats, (positions, C),
 * whatever the numerics. Every element of y and grad_x is one sum over all taps, those in the padding as
 * zeros; products and sums are rounded one by one. With a group a channel, the transposed layout of sums
 * is that of the weights. */
void oct_depthwise_product_init(oct_conv_product *d, const oct_conv_shape *s,
                                oct_direction direction);
void oct_depthwise_pack(const oct_conv_shape *s, const float *weight, const int8_t *codes,
                        oct_direction direction, void *packed);
void oct_depthwise_multiply(const oct_depthwise_plan *p, const oct_conv_pass *pass, void *scratch);
void oct_depthwise_weight_init(oct_conv_weight_product *w, const oct_conv_shape *s);
/* The channels of a pass begin at a multiple of OCT_DEPTHWISE_LANES, and end there or with all. */
void oct_depthwise_backward_weight(const oct_conv_plan *plan, const oct_conv_weight_pass *pass,
                                   void *scratch);
