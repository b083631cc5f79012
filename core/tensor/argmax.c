/* The index of the largest value is found by type. */
#include "core/tensor/argmax.h"

#include <math.h>
#include <string.h>

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

static oct_status rows_of_numbers(const int32_t *number, int64_t samples, int64_t classes,
                                  float *rows)
{
    memset(rows, 0, (size_t)(samples * classes) * sizeof(float));
    for (int64_t i = 0; i < samples; i++) {
        OCT_CHECK(number[i] >= 0 && number[i] < classes, OCT_DATA,
                  "the model says class %d, but there are %lld classes", (int)number[i],
                  (long long)classes);
        rows[i * classes + number[i]] = 1.0F;
    }
    return OCT_OK;
}

oct_status oct_class_rows(const oct_tensor *y, int64_t samples, int64_t classes, float *rows)
{
    const int64_t numel = oct_numel(y);
    char text[96];
    OCT_CHECK(
        (y->dtype == OCT_F32 && numel == samples * classes) ||
            (y->dtype == OCT_S32 && numel == samples),
        OCT_PREPARE,
        "the model returns %s %s for %lld samples of %lld classes; it must return a logit for "
        "each class (f32), or a class number (s32)",
        oct_dtype_name(y->dtype), oct_shape_text(&y->shape, text), (long long)samples,
        (long long)classes);
    if (y->dtype == OCT_S32) return rows_of_numbers(y->data, samples, classes, rows);
    memcpy(rows, y->data, (size_t)numel * sizeof(float));
    return OCT_OK;
}
