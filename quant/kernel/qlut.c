/* Functions of one code: tables, and bounds. */
#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "quant/rounding/bits.h"
#include "quant/kernel/qcodes.h"

int64_t oct_qtable_size(oct_qparams x)
{
    return oct_codes_dtype(x) == OCT_U16 ? 65536 : 256;
}

#define OCT_LOOK_UP(name, in_t, out_t)                                                             \
    static void name(int64_t n, const in_t *x, const uint16_t *table, out_t *y)                    \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                            \
            y[i] = (out_t)table[x[i]];                                                             \
    }

#define OCT_LOOK_UP_CHANNELS(name, in_t, out_t)                                                    \
    static void name(int64_t rows, int64_t channels, const in_t *x, const uint16_t *table,         \
                     out_t *y)                                                                     \
    {                                                                                              \
        const int64_t size = (int64_t)1 << (8 * sizeof(in_t));                                     \
        for (int64_t r = 0; r < rows; r++, x += channels, y += channels)                           \
            for (int64_t c = 0; c < channels; c++)                                                 \
                y[c] = (out_t)table[c * size + x[c]];                                              \
    }

OCT_LOOK_UP(look_up_8_8, uint8_t, uint8_t)
OCT_LOOK_UP(look_up_8_16, uint8_t, uint16_t)
OCT_LOOK_UP(look_up_16_8, uint16_t, uint8_t)
OCT_LOOK_UP(look_up_16_16, uint16_t, uint16_t)
OCT_LOOK_UP_CHANNELS(channels_8_8, uint8_t, uint8_t)
OCT_LOOK_UP_CHANNELS(channels_8_16, uint8_t, uint16_t)
OCT_LOOK_UP_CHANNELS(channels_16_8, uint16_t, uint8_t)
OCT_LOOK_UP_CHANNELS(channels_16_16, uint16_t, uint16_t)

void oct_qlut_forward(int64_t n, oct_qcodes x, const uint16_t *table, oct_qparams y, void *codes)
{
    const bool wide = oct_codes_dtype(y) == OCT_U16;
    if (oct_codes_dtype(x.q) == OCT_U8)
        wide ? look_up_8_16(n, x.data, table, codes) : look_up_8_8(n, x.data, table, codes);
    else
        wide ? look_up_16_16(n, x.data, table, codes) : look_up_16_8(n, x.data, table, codes);
}

void oct_qlut_channels(int64_t rows, int64_t channels, oct_qcodes x, const uint16_t *table,
                       oct_qparams y, void *codes)
{
    const bool wide = oct_codes_dtype(y) == OCT_U16;
    if (oct_codes_dtype(x.q) == OCT_U8)
        wide ? channels_8_16(rows, channels, x.data, table, codes)
             : channels_8_8(rows, channels, x.data, table, codes);
    else
        wide ? channels_16_16(rows, channels, x.data, table, codes)
             : channels_16_8(rows, channels, x.data, table, codes);
}

OCT_CLONES
static void clamp_block(int64_t n, int32_t lo, int32_t hi, int32_t *logical)
{
    for (int64_t i = 0; i < n; i++) {
        const int32_t above = logical[i] < lo ? lo : logical[i];
        logical[i] = above > hi ? hi : above;
    }
}

void oct_qclamp_forward(int64_t n, oct_qcodes x, int32_t lo, int32_t hi, void *codes)
{
    int32_t logical[OCT_FLAG_BLOCK];
    for (int64_t i = 0; i < n; i += OCT_FLAG_BLOCK) {
        const int64_t count = oct_min_i64(n - i, OCT_FLAG_BLOCK);
        oct_qcodes_load(x, i, count, logical);
        clamp_block(count, lo, hi, logical);
        oct_qcodes_store(logical, count, x.q, codes, i);
    }
}
