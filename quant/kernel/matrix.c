/* What is the same for every kernel table: the order of packed weights, and the plain matrix product,
 * which is a convolution of windows of one run. */
#include "quant/kernel/simd.h"

#include <string.h>

static int64_t tiles_of(int64_t count, int tile)
{
    return (count + tile - 1) / tile;
}

int64_t oct_packed_taps_bytes(const oct_kernel *kernel, int64_t n, int64_t taps, int64_t k)
{
    return tiles_of(n, kernel->col_tile) * taps * tiles_of(k, kernel->k_tile) * kernel->tile_bytes;
}

/* Panels of col_tile columns; in a panel the k tiles one after another, run by run. */
void oct_pack_taps(const oct_kernel *kernel, int64_t n, int64_t taps, int64_t k, const int8_t *w,
                   int8_t *packed)
{
    enum { LARGEST_TILE = 256 };
    int8_t tile[LARGEST_TILE];
    int cols = kernel->col_tile, depth = kernel->k_tile;
    OCT_ASSERT(cols * depth <= LARGEST_TILE);
    for (int64_t col = 0; col < n; col += cols) {
        for (int64_t run = 0; run < taps * k; run += k) {
            for (int64_t at = 0; at < k; at += depth) {
                memset(tile, 0, sizeof tile);
                for (int64_t c = 0; c < cols && col + c < n; c++)
                    for (int64_t d = 0; d < depth && at + d < k; d++)
                        tile[c * depth + d] = w[(col + c) * taps * k + run + at + d];
                kernel->pack_tile(tile, packed);
                packed += kernel->tile_bytes;
            }
        }
    }
}

int64_t oct_packed_bytes(const oct_kernel *kernel, int64_t n, int64_t k)
{
    return oct_packed_taps_bytes(kernel, n, 1, k);
}

void oct_pack_weights(const oct_kernel *kernel, int64_t n, int64_t k, const int8_t *w,
                      int8_t *packed)
{
    oct_pack_taps(kernel, n, 1, k, w, packed);
}

void oct_gemm(const oct_kernel *kernel, int64_t m, int64_t n, int64_t k, const uint8_t *a,
              int64_t lda, const int8_t *packed, int32_t *acc, int64_t ldc)
{
    enum { ROWS = 96 }; /* of one call, whose addresses and codes stay in the first-level cache */
    const oct_taps whole = {.count = 1, .k = k, .offset = (const int64_t[]){0}};
    const uint8_t *rows[ROWS];
    for (int64_t i = 0; i < m; i += ROWS) {
        int64_t count = m - i < ROWS ? m - i : ROWS;
        for (int64_t r = 0; r < count; r++)
            rows[r] = a + (i + r) * lda;
        kernel->conv(count, n, &whole, rows, packed, acc + i * ldc, ldc);
    }
}

int64_t oct_interleaved_bytes(int lanes, int64_t channels, int64_t taps)
{
    return tiles_of(channels, OCT_INTERLEAVED(lanes)) * tiles_of(taps, lanes) *
           OCT_INTERLEAVED(lanes) * 4;
}

void oct_interleaved_pack(int lanes, int64_t channels, int64_t taps, const int8_t *w,
                          int8_t *packed)
{
    const int width = 4 / lanes;
    for (int64_t c = 0; c < channels; c += OCT_INTERLEAVED(lanes))
        for (int64_t t = 0; t < taps; t += lanes)
            for (int vector = 0; vector < lanes; vector++)
                for (int lane = 0; lane < lanes; lane++)
                    for (int j = 0; j < 4; j++)
                        for (int tap = 0; tap < lanes; tap++, packed += width) {
                            int64_t channel = c + 4 * (lanes * lane + vector) + j;
                            bool real = channel < channels && t + tap < taps;
                            int32_t code = real ? w[channel * taps + t + tap] : 0;
                            memcpy(packed, &code, (size_t)width); /* its low bytes */
                        }
}
