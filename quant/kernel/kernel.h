/* Integer kernels: one table of functions for each instruction set, best first in kernel_list.def,
 * the scalar reference last. All variants give the same bits; the reference is the definition.
 *
 * Convolutions and linear layers are a matrix product of code rows with packed weights, exact in
 * int32. The rows of a convolution are not gathered: an output position is a pointer to the corner of
 * its window, and a table of offsets says where its runs of codes lie, so nothing is copied but the
 * border.
 */
#pragma once

#include "core/base/cpu.h"

#include <stdint.h>

/* How an int32 accumulator becomes an unsigned code, per output channel c:
 *     r = round_half_even( (float)(acc + bias[c]) * multiplier[c] )
 *     code = clamp(r, lo, hi) + zero_point
 *     pass = lo <= r <= hi, and with `relu` also v > 0, and with `six` also v < six   (v before rounding)
 * acc + bias wraps never: prepare proves the bound. bias already holds -zero_point_x * sum(w). */
typedef struct oct_requant {
    const int32_t *bias;     /* (C) */
    const float *multiplier; /* (C), may be negative or zero */
    int32_t lo, hi;          /* logical codes: stored minus zero_point */
    int32_t zero_point;
    bool relu; /* gradient of max(0, .) */
    float six; /* upper clip of relu6 in units of the output scale; +inf without */
} oct_requant;

/* Where the codes of one output position lie: `count` runs of k codes, run t at row + offset[t]. */
typedef struct oct_taps {
    int64_t count, k;
    const int64_t *offset;
} oct_taps;

typedef struct oct_kernel {
    oct_isa isa;
    const char *name;
    int col_tile;   /* columns of a packed panel */
    int k_tile;     /* a run of taps is padded to a multiple of this with zero weights */
    int tile_bytes; /* of one packed tile of col_tile x k_tile weights */
    void (*pack_tile)(const int8_t *tile, int8_t *packed); /* tile (col_tile, k_tile) */

    /* acc[m][n] = sum_t sum_k rows[m][offset[t] + k] * b[n][t][k]; every run is readable up to k padded
     * to k_tile; packed from oct_pack_taps, acc rows of stride ldc. Exact. */
    void (*conv)(int64_t m, int64_t n, const oct_taps *taps, const uint8_t *const *rows,
                 const int8_t *packed, int32_t *acc, int64_t ldc);

    /* One filter a channel: acc[m][c] = sum_t rows[m][offset[t] + c] * w[c][t]; taps->k is 1. Rows are
     * readable up to channels padded to 16; acc is contiguous. w (channels, count). */
    int64_t (*depthwise_bytes)(int64_t channels, int64_t taps);
    void (*depthwise_pack)(int64_t channels, int64_t taps, const int8_t *w, int8_t *packed);
    void (*depthwise)(int64_t m, int64_t channels, const oct_taps *taps, const uint8_t *const *rows,
                      const int8_t *packed, int32_t *acc);

    /* Rows of acc (m x n, contiguous rows of n) to codes. mask: bit i of it is element i of this call,
     * whole bytes are written (callers keep m * n of each call but the last a multiple of 8); NULL to
     * leave out. range[2] (min, max of v, with relu/six clips applied, as float; zero is +0) is merged
     * into, NULL to leave out; a multiplier that is not finite makes it NaN, so that a maximum of
     * keys shows it. */
    void (*requantize)(int64_t m, int64_t n, const int32_t *acc, const oct_requant *q,
                       uint8_t *codes, uint8_t *mask, float *range);
} oct_kernel;

#define OCT_KERNEL(ISA, isa) extern const oct_kernel oct_kernel_##isa;
#include "quant/kernel/kernel_list.def"
#undef OCT_KERNEL

/* Best kernel of the set; ends always, REF is in every set. */
const oct_kernel *oct_kernel_select(oct_isa_set have);
const oct_kernel *oct_kernel_here(void); /* of this machine and OCT_ISA */

/* Packed size in bytes, and packing of w (n x k, row-major) for this kernel. */
int64_t oct_packed_bytes(const oct_kernel *kernel, int64_t n, int64_t k);
void oct_pack_weights(const oct_kernel *kernel, int64_t n, int64_t k, const int8_t *w,
                      int8_t *packed);
/* The same for taps: w (n, taps, k), each run padded to k_tile. */
int64_t oct_packed_taps_bytes(const oct_kernel *kernel, int64_t n, int64_t taps, int64_t k);
void oct_pack_taps(const oct_kernel *kernel, int64_t n, int64_t taps, int64_t k, const int8_t *w,
                   int8_t *packed);

/* acc[m][n] = sum_k a[m][k] * b[n][k]: a u8 rows of stride lda (readable up to k padded to k_tile),
 * packed from oct_pack_weights, acc rows of stride ldc. Exact. */
void oct_gemm(const oct_kernel *kernel, int64_t m, int64_t n, int64_t k, const uint8_t *a,
              int64_t lda, const int8_t *packed, int32_t *acc, int64_t ldc);
