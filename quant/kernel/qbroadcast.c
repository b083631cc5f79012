/* Codes of an input that repeats, written out as far as they are needed. */
#include "core/base/int_math.h"
#include "quant/kernel/qcodes.h"

#include <string.h>

static void fill_codes(void *to, const void *code, oct_dtype dtype, int64_t n)
{
    if (dtype == OCT_U8) {
        memset(to, *(const uint8_t *)code, (size_t)n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        ((uint16_t *)to)[i] = *(const uint16_t *)code;
}

oct_qcodes oct_qcodes_broadcast(const oct_broadcast *b, int input, oct_qcodes x, int64_t first,
                                int64_t n, void *room)
{
    const oct_dtype dtype = oct_codes_dtype(x.q);
    const int64_t own = oct_broadcast_numel(b, input);
    if (own == b->positions * b->channels) return oct_qcodes_from(x, first);
    for (int64_t i = 0; i < n;) {
        int64_t at[3], step;
        oct_broadcast_place(b, first + i, at);
        const int64_t some = oct_min_i64(n - i, b->channels - at[2]);
        const void *from = oct_qcodes_from(x, oct_broadcast_at(b, input, at, &step)).data;
        void *to = oct_qcodes_place(room, x.q, i);
        if (step)
            memcpy(to, from, (size_t)some * oct_dtype_bytes(dtype));
        else
            fill_codes(to, from, dtype, some);
        i += some;
    }
    return (oct_qcodes){.q = x.q, .data = room};
}
