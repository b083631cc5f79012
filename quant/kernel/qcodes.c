/* Codes of either width in memory, as the numbers that they stand for. */
#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "quant/kernel/qcodes.h"

#include <string.h>

oct_qcodes oct_qcodes_of(const oct_tensor *x)
{
    return (oct_qcodes){.q = x->q, .data = x->data};
}

oct_qcodes oct_qcodes_from(oct_qcodes x, int64_t first)
{
    const int64_t bytes = (int64_t)oct_dtype_bytes(oct_codes_dtype(x.q));
    return (oct_qcodes){.q = x.q, .data = (const uint8_t *)x.data + first * bytes};
}

void *oct_qcodes_place(void *codes, oct_qparams q, int64_t first)
{
    return (uint8_t *)codes + first * (int64_t)oct_dtype_bytes(oct_codes_dtype(q));
}

bool oct_qparams_equal(oct_qparams a, oct_qparams b)
{
    return a.scale == b.scale && a.zero_point == b.zero_point && a.qmin == b.qmin &&
           a.qmax == b.qmax;
}

/* The loops have one text for both widths. */
#define OCT_CODES(code_t, load, store, ends)                                                       \
    OCT_CLONES                                                                                     \
    static void load(const code_t *restrict x, int64_t n, int32_t zero_point,                      \
                     int32_t *restrict logical)                                                    \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                            \
            logical[i] = x[i] - zero_point;                                                        \
    }                                                                                              \
                                                                                                   \
    OCT_CLONES                                                                                     \
    static void store(const int32_t *restrict logical, int64_t n, int32_t zero_point,              \
                      code_t *restrict codes)                                                      \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                            \
            codes[i] = (code_t)(logical[i] + zero_point);                                          \
    }                                                                                              \
                                                                                                   \
    OCT_CLONES                                                                                     \
    static void ends(const code_t *x, int64_t n, int32_t found[2])                                 \
    {                                                                                              \
        code_t least = x[0], most = x[0];                                                          \
        for (int64_t i = 1; i < n; i++) {                                                          \
            least = x[i] < least ? x[i] : least;                                                   \
            most = x[i] > most ? x[i] : most;                                                      \
        }                                                                                          \
        found[0] = least;                                                                          \
        found[1] = most;                                                                           \
    }

OCT_CODES(uint8_t, load8, store8, ends8)
OCT_CODES(uint16_t, load16, store16, ends16)

void oct_qcodes_load(oct_qcodes x, int64_t first, int64_t n, int32_t *logical)
{
    if (oct_codes_dtype(x.q) == OCT_U8)
        load8((const uint8_t *)x.data + first, n, x.q.zero_point, logical);
    else
        load16((const uint16_t *)x.data + first, n, x.q.zero_point, logical);
}

void oct_qcodes_store(const int32_t *logical, int64_t n, oct_qparams q, void *codes, int64_t first)
{
    if (oct_codes_dtype(q) == OCT_U8)
        store8(logical, n, q.zero_point, (uint8_t *)codes + first);
    else
        store16(logical, n, q.zero_point, (uint16_t *)codes + first);
}

void oct_qcodes_range(oct_qcodes x, int64_t n, float *range)
{
    if (n == 0) return;
    int32_t found[2];
    if (oct_codes_dtype(x.q) == OCT_U8)
        ends8(x.data, n, found);
    else
        ends16(x.data, n, found);
    const float low = (float)(found[0] - x.q.zero_point) * x.q.scale;
    const float high = (float)(found[1] - x.q.zero_point) * x.q.scale;
    range[0] = low < range[0] ? low : range[0];
    range[1] = high > range[1] ? high : range[1];
}

int64_t oct_qtable_size(oct_qparams x)
{
    return oct_codes_dtype(x) == OCT_U16 ? 65536 : 256;
}

/* Repeats one code. */
static void fill_codes(void *to, const void *code, oct_dtype dtype, int64_t n)
{
    if (dtype == OCT_U8) {
        memset(to, *(const uint8_t *)code, (size_t)n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        ((uint16_t *)to)[i] = *(const uint16_t *)code;
}

/* Goes pixel by pixel: copies the codes of its channels or, if step is 0, repeats the one code of all channels. */
oct_qcodes oct_qcodes_broadcast(const oct_broadcast *b, int input, oct_qcodes x, int64_t first,
                                int64_t n, void *room)
{
    const oct_dtype dtype = oct_codes_dtype(x.q);
    if (oct_broadcast_numel(b, input) == b->positions * b->channels)
        return oct_qcodes_from(x, first);
    for (int64_t i = 0; i < n;) {
        int64_t place[3], step;
        oct_broadcast_place(b, first + i, place);
        const int64_t count = oct_min_i64(n - i, b->channels - place[2]);
        const void *from = oct_qcodes_from(x, oct_broadcast_at(b, input, place, &step)).data;
        void *to = oct_qcodes_place(room, x.q, i);
        if (step)
            memcpy(to, from, (size_t)count * oct_dtype_bytes(dtype));
        else
            fill_codes(to, from, dtype, count);
        i += count;
    }
    return (oct_qcodes){.q = x.q, .data = room};
}
