/* Place of the largest value, by type. */
#include "core/tensor/argmax.h"

#include <math.h>

static int32_t of_f32(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n && !isnan(x[best]); i++)
        if (!(x[i] <= x[best])) best = i;
    return (int32_t)best;
}

#define OF_CODES(name, type)                                                                       \
    static int32_t of_##name(const type *x, int64_t n)                                             \
    {                                                                                              \
        int64_t best = 0;                                                                          \
        for (int64_t i = 1; i < n; i++)                                                            \
            if (x[i] > x[best]) best = i;                                                          \
        return (int32_t)best;                                                                      \
    }
OF_CODES(u8, uint8_t)
OF_CODES(u16, uint16_t)

void oct_argmax_rows(oct_dtype dtype, int64_t rows, int64_t n, const void *x, int32_t *index)
{
    for (int64_t r = 0; r < rows; r++)
        index[r] = dtype == OCT_U8    ? of_u8((const uint8_t *)x + r * n, n)
                   : dtype == OCT_U16 ? of_u16((const uint16_t *)x + r * n, n)
                                      : of_f32((const float *)x + r * n, n);
}
