/* Comparisons that say where and what when they fail: index, got, wanted. */
#pragma once

#include "core/tensor/tensor.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* Bit for bit; n elements. */
static inline void oct_check_bits_f32(const float *got, const float *want, int64_t n,
                                      const char *what)
{
    for (int64_t i = 0; i < n; i++)
        cr_assert(memcmp(&got[i], &want[i], sizeof(float)) == 0,
                  "%s: element %lld of %lld: got %.9g (%a), wanted %.9g (%a)", what, (long long)i,
                  (long long)n, (double)got[i], (double)got[i], (double)want[i], (double)want[i]);
}

static inline void oct_check_bytes(const void *got, const void *want, int64_t bytes,
                                   const char *what)
{
    const unsigned char *g = got, *w = want;
    for (int64_t i = 0; i < bytes; i++)
        cr_assert(g[i] == w[i], "%s: byte %lld of %lld: got %d, wanted %d", what, (long long)i,
                  (long long)bytes, g[i], w[i]);
}

/* |got - want| <= absolute + relative * |want|; not-a-number never fits. */
static inline void oct_check_near_f32(const float *got, const float *want, int64_t n,
                                      double absolute, double relative, const char *what)
{
    for (int64_t i = 0; i < n; i++) {
        double g = (double)got[i], w = (double)want[i];
        cr_assert(fabs(g - w) <= absolute + relative * fabs(w),
                  "%s: element %lld of %lld: got %.9g, wanted %.9g", what, (long long)i,
                  (long long)n, g, w);
    }
}

/* Same dtype, shape and bytes. */
static inline void oct_check_tensor(const oct_tensor *got, const oct_tensor *want, const char *what)
{
    cr_assert(got->dtype == want->dtype, "%s: got dtype %s, wanted %s", what,
              oct_dtype_name(got->dtype), oct_dtype_name(want->dtype));
    cr_assert(oct_shape_equal(&got->shape, &want->shape), "%s: got shape %s, wanted %s", what,
              oct_text_shape(&got->shape).text, oct_text_shape(&want->shape).text);
    int64_t n = oct_shape_numel(&want->shape);
    if (want->dtype == OCT_F32)
        oct_check_bits_f32(got->data, want->data, n, what);
    else
        oct_check_bytes(got->data, want->data, n * (int64_t)oct_dtype_bytes(want->dtype), what);
}
