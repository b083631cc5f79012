/* A factor and a bias per channel, block by block of rows. */
#include "quant/kernel/qconv.h"

#include "core/base/whole.h"

/* A multiple of 8, so that each block's part of the mask begins with a byte. */
static int64_t block_rows(int64_t channels)
{
    return 8 * oct_max_i64(512 / channels, 1);
}

int64_t oct_qaffine_scratch_bytes(int64_t channels)
{
    return block_rows(channels) * channels * (int64_t)sizeof(int64_t);
}

#define ACCUMULATE(name, code_t, acc_t)                                                            \
    OCT_CLONES                                                                                     \
    static void name(int64_t rows, int64_t channels, const code_t *restrict x, int32_t zero_point, \
                     const int8_t *restrict weight, acc_t *restrict acc)                           \
    {                                                                                              \
        for (int64_t i = 0; i < rows; i++, x += channels, acc += channels)                         \
            for (int64_t c = 0; c < channels; c++)                                                 \
                acc[c] = (acc_t)(x[c] - zero_point) * (weight[c] * (1 << OCT_QAFFINE_BITS));       \
    }
ACCUMULATE(accumulate, uint8_t, int32_t)
ACCUMULATE(accumulate16, uint16_t, int64_t)

void oct_qaffine_forward(const oct_kernel *kernel, int64_t rows, int64_t channels, oct_qcodes x,
                         const int8_t *weight, const oct_epilogue *f, void *y, uint8_t *mask,
                         float *range, void *scratch)
{
    const int64_t out = (int64_t)oct_dtype_bytes(f->out);
    for (int64_t row = 0, count; row < rows; row += count) {
        count = oct_min_i64(block_rows(channels), rows - row);
        const int64_t first = row * channels;
        const oct_epilogue part = oct_epilogue_at(f, first);
        if (oct_codes_dtype(x.q) == OCT_U16)
            accumulate16(count, channels, (const uint16_t *)x.data + first, x.q.zero_point, weight,
                         scratch);
        else
            accumulate(count, channels, (const uint8_t *)x.data + first, x.q.zero_point, weight,
                       scratch);
        oct_epilogue_rows(kernel, &part, count, channels, scratch, (uint8_t *)y + first * out,
                          mask ? mask + first / 8 : NULL, range);
    }
}
