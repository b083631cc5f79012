/* Every product has one shape: rows of words times packed panels of weights.
 *
 * A word is four bytes of a row: one float, two bfloat16 or four codes. A packed panel holds, for each
 * word of a row, a tile: what that word is multiplied with in each of the panel's columns. A row is not
 * gathered; it is a start in x, and a list of runs says which words after it count and which tiles of
 * the panel they are multiplied with. So a convolution reads its input in place, and taps that fall
 * into the padding are runs that are not listed.
 *
 * Words are taken in the order of the runs, each column in one accumulator from its start on (products of bfloat16:
 * in blocks, core/kernel/float_kernel.h), so the bits of a result depend on the runs alone: not on how many rows or
 * columns a call has, nor on how an instruction set blocks them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct oct_run {
    int64_t x;    /* bytes after a row's start */
    int64_t tile; /* first tile of it in each panel */
    int64_t words;
} oct_run;

/* Lists one more run, merged with the last one where it continues that. */
static inline void oct_runs_add(oct_run *runs, int64_t *count, oct_run run)
{
    oct_run *last = *count > 0 ? &runs[*count - 1] : 0;
    if (last && last->x + 4 * last->words == run.x && last->tile + last->words == run.tile)
        last->words += run.words;
    else
        runs[(*count)++] = run;
}

typedef struct oct_row {
    int64_t x;   /* bytes after oct_product.x */
    int64_t acc; /* elements after oct_product.acc: of column 0 */
} oct_row;

typedef struct oct_product {
    const void *x;
    const oct_row *rows;
    int64_t m;
    const oct_run *runs;
    int64_t num_runs;
    int64_t word_step;  /* of `pairs`: bytes from a word of a row to the next; 0: OCT_WORD */
    const void *packed; /* panels of col_tile columns, panel_bytes apart */
    int64_t panel_bytes;
    int64_t n; /* columns; those of the last panel from n on are not written */
    void *acc; /* int32 of codes, float otherwise */
    bool add;  /* continues the sums in acc instead of starting at 0 */
    /* What a function needs that makes something else of the sums at once (PANEL_STORE of panel.h),
     * whose elements are then what `acc` counts; NULL otherwise. */
    const void *epilogue;
} oct_product;

typedef void oct_product_fn(const oct_product *p);

enum { OCT_WORD = 4 }; /* codes */

/* How an instruction set multiplies codes: u8 of rows times s8 in panels, each word the sum of four products,
 * exact in int32 while the final sum fits. All instruction sets give the same sums. */
typedef struct oct_byte_product {
    int col_tile;   /* columns of a panel */
    int tile_bytes; /* of a packed tile: what col_tile words of weights become */
    void (*pack_tile)(const int8_t *tile,
                      int8_t *packed); /* tile (col_tile, OCT_WORD); NULL: as it is */
    oct_product_fn *product;
    /* Products of numbers of 16 bits, for winograd.h: words are two of them, and a tile is (col_tile, 2). NULL: none. */
    oct_product_fn *pairs;
    int pairs_time; /* of as many terms, in times of `product`; 1: bytes are multiplied as pairs too */
} oct_byte_product;

static inline void oct_pack_tile(const oct_byte_product *k, const int8_t *tile, int8_t *packed)
{
    if (k->pack_tile)
        k->pack_tile(tile, packed);
    else
        memcpy(packed, tile, (size_t)k->tile_bytes);
}
