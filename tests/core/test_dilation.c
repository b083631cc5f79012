/* Dilated images against the definition, of every type, and back. */
#include "core/tensor/conv_shape.h"

#include "core/base/rng.h"

#include <criterion/criterion.h>
#include <string.h>

enum { SEED = 29, CASES = 300, MAX = 6, MAX_C = 9, MAX_STEP = 4 };
enum { MAX_IN = MAX * MAX * MAX_C, MAX_SIDE = (MAX - 1) * MAX_STEP + 1 };

static int64_t draw(uint64_t *counter, int64_t most)
{
    uint32_t bits[4];
    oct_philox(SEED, OCT_STREAM_TEST, (*counter)++, 0, bits);
    return 1 + bits[0] % most;
}

/* Element i as a number. */
static int64_t value_at(oct_dtype dtype, const void *data, int64_t i)
{
    return dtype == OCT_U8    ? ((const uint8_t *)data)[i]
           : dtype == OCT_U16 ? ((const uint16_t *)data)[i]
                              : (int64_t)((const float *)data)[i];
}

static void check_case(oct_dtype dtype, oct_shape shape, int step_h, int step_w)
{
    static float x[MAX_IN], back[MAX_IN], y[MAX_SIDE * MAX_SIDE * MAX_C];
    const oct_dilation d =
        oct_dilation_of(shape, step_h, step_w, dtype, dtype == OCT_U8 ? 128 : 32768);
    const int64_t zero = dtype == OCT_F32 ? 0 : d.zero_point, numel = d.h * d.w * d.c;
    for (int64_t i = 0; i < numel; i++) {
        if (dtype == OCT_U8)
            ((uint8_t *)x)[i] = (uint8_t)(i * 37);
        else if (dtype == OCT_U16)
            ((uint16_t *)x)[i] = (uint16_t)(i * 7919);
        else
            x[i] = (float)(i + 1);
    }
    memset(y, 0xff, sizeof y);
    oct_dilate_image(&d, x, y);
    cr_assert_eq(d.out_h, (d.h - 1) * step_h + 1);
    cr_assert_eq(d.out_w, (d.w - 1) * step_w + 1);
    for (int64_t i = 0; i < d.out_h * d.out_w * d.c; i++) {
        const int64_t at_y = i / d.c / d.out_w, at_x = i / d.c % d.out_w;
        const bool own = at_y % step_h == 0 && at_x % step_w == 0;
        const int64_t from = (at_y / step_h * d.w + at_x / step_w) * d.c + i % d.c;
        cr_assert_eq(value_at(dtype, y, i), own ? value_at(dtype, x, from) : zero);
    }
    if (dtype != OCT_F32) return;
    oct_undilate_image(&d, y, back);
    cr_assert_eq(memcmp(back, x, (size_t)numel * sizeof *x), 0);
}

Test(dilation, puts_zeros_between_the_pixels_and_takes_them_out_again)
{
    static const oct_dtype dtypes[] = {OCT_F32, OCT_U8, OCT_U16};
    uint64_t counter = 0;
    for (int i = 0; i < CASES; i++) {
        const oct_shape shape =
            OCT_SHAPE(2, draw(&counter, MAX), draw(&counter, MAX), draw(&counter, MAX_C));
        const int step_h = (int)draw(&counter, MAX_STEP), step_w = (int)draw(&counter, MAX_STEP);
        check_case(dtypes[i % 3], shape, step_h, step_w);
    }
}
