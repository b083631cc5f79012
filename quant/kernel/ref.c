/* The scalar reference: the definition of every integer kernel, and the judge of the fast ones. */
#include "quant/kernel/requant.h"

#include <string.h>

static void pack_tile(const int8_t *tile, int8_t *packed)
{
    packed[0] = tile[0];
}

static void conv(int64_t m, int64_t n, const oct_taps *taps, const uint8_t *const *rows,
                 const int8_t *packed, int32_t *acc, int64_t ldc)
{
    for (int64_t i = 0; i < m; i++) {
        const int8_t *w = packed;
        for (int64_t j = 0; j < n; j++) {
            int32_t sum = 0;
            for (int64_t t = 0; t < taps->count; t++, w += taps->k) {
                const uint8_t *x = rows[i] + taps->offset[t];
                for (int64_t k = 0; k < taps->k; k++)
                    sum += x[k] * w[k];
            }
            acc[i * ldc + j] = sum;
        }
    }
}

static int64_t depthwise_bytes(int64_t channels, int64_t taps)
{
    return channels * taps;
}

static void depthwise_pack(int64_t channels, int64_t taps, const int8_t *w, int8_t *packed)
{
    memcpy(packed, w, (size_t)(channels * taps));
}

static void depthwise(int64_t m, int64_t channels, const oct_taps *taps, const uint8_t *const *rows,
                      const int8_t *packed, int32_t *acc)
{
    for (int64_t i = 0; i < m; i++) {
        for (int64_t c = 0; c < channels; c++) {
            int32_t sum = 0;
            for (int64_t t = 0; t < taps->count; t++)
                sum += rows[i][taps->offset[t] + c] * packed[c * taps->count + t];
            acc[i * channels + c] = sum;
        }
    }
}

static void requantize(int64_t m, int64_t n, const int32_t *acc, const oct_requant *q,
                       uint8_t *codes, uint8_t *mask, float *range)
{
    const oct_requant_limits limits = oct_requant_limits_of(q);
    if (mask) memset(mask, 0, (size_t)((m * n + 7) / 8));
    for (int64_t i = 0; i < m * n; i++) {
        int64_t c = i % n;
        float v = (float)(acc[i] + q->bias[c]) * q->multiplier[c];
        bool pass;
        codes[i] = oct_requant_one(v, &limits, &pass);
        if (mask && pass) mask[i / 8] = (uint8_t)(mask[i / 8] | 1u << (i % 8));
        if (range) {
            float clipped = oct_requant_clip(v, &limits);
            oct_requant_range_merge(range, clipped, clipped);
        }
    }
    if (range) oct_requant_range_end(q, n, range);
}

const oct_kernel oct_kernel_ref = {
    .isa = OCT_ISA_REF,
    .name = "ref",
    .col_tile = 1,
    .k_tile = 1,
    .tile_bytes = 1,
    .pack_tile = pack_tile,
    .conv = conv,
    .depthwise_bytes = depthwise_bytes,
    .depthwise_pack = depthwise_pack,
    .depthwise = depthwise,
    .requantize = requantize,
};
