/* What is the same for every kernel table: the order of packed weights. */
#include "quant/kernel/depthwise_simd.h"
#include "quant/kernel/kernel.h"

#include <string.h>

static int64_t divide_up(int64_t count, int64_t step)
{
    return (count + step - 1) / step;
}

int64_t oct_panel_bytes(const oct_kernel *kernel, int64_t taps, int64_t k)
{
    return taps * divide_up(k, OCT_WORD) * kernel->tile_bytes;
}

int64_t oct_packed_taps_bytes(const oct_kernel *kernel, int64_t n, int64_t taps, int64_t k)
{
    return divide_up(n, kernel->col_tile) * oct_panel_bytes(kernel, taps, k);
}

/* Packs a run of k weights of `columns` columns, `pitch` apart, and returns where the next one goes. */
static int8_t *pack_run(const oct_kernel *kernel, int64_t columns, int64_t k, int64_t pitch,
                        const int8_t *w, int8_t *packed)
{
    enum { MOST_COLUMNS = 16 };
    int8_t tile[MOST_COLUMNS * OCT_WORD] = {0};
    OCT_ASSERT(kernel->col_tile <= MOST_COLUMNS);
    for (int64_t at = 0; at < k; at += OCT_WORD, packed += kernel->tile_bytes) {
        if (k - at < OCT_WORD) memset(tile, 0, sizeof tile);
        for (int64_t c = 0; c < columns; c++) {
            const int8_t *from = w + c * pitch + at;
            if (k - at >= OCT_WORD)
                memcpy(tile + c * OCT_WORD, from, OCT_WORD);
            else
                memcpy(tile + c * OCT_WORD, from, (size_t)(k - at));
        }
        kernel->pack_tile(tile, packed);
    }
    return packed;
}

void oct_pack_taps(const oct_kernel *kernel, int64_t n, int64_t taps, int64_t k, const int8_t *w,
                   int8_t *packed)
{
    const int64_t pitch = taps * k;
    for (int64_t col = 0; col < n; col += kernel->col_tile) {
        const int64_t columns = n - col < kernel->col_tile ? n - col : kernel->col_tile;
        for (int64_t tap = 0; tap < taps; tap++)
            packed = pack_run(kernel, columns, k, pitch, w + col * pitch + tap * k, packed);
    }
}

int64_t oct_depthwise_scratch(int kernel_h, int kernel_w, int stride, int64_t out_w)
{
    const int64_t columns = (out_w - 1) * stride + kernel_w;
    return columns * divide_up(kernel_h, OCT_DEPTHWISE_MIN_TAPS) * OCT_DEPTHWISE_MAX_CHANNELS *
           OCT_DEPTHWISE_WORD;
}

int64_t oct_depthwise_packed_bytes(int taps, int64_t channels, int kernel_h, int kernel_w)
{
    return divide_up(channels, OCT_DEPTHWISE_LANES) * kernel_w * divide_up(kernel_h, taps) *
           OCT_DEPTHWISE_LANES * OCT_DEPTHWISE_WORD;
}

void oct_depthwise_pack_taps(int taps, const oct_depthwise_weights *w, int8_t *packed)
{
    const int width = OCT_DEPTHWISE_WORD / taps;
    for (int64_t c = 0; c < w->channels; c += OCT_DEPTHWISE_LANES)
        for (int x = 0; x < oct_depthwise_columns(w); x++)
            for (int ky = 0; ky < w->kernel_h; ky += taps)
                for (int64_t lane = c; lane < c + OCT_DEPTHWISE_LANES; lane++)
                    for (int tap = ky; tap < ky + taps; tap++, packed += width) {
                        const bool real = lane < w->channels && tap < w->kernel_h;
                        const int32_t code = real ? oct_depthwise_weight(w, lane, tap, x) : 0;
                        memcpy(packed, &code, (size_t)width); /* its low bytes */
                    }
}
