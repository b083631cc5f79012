/* What the two tables for AVX-512 share; for files that are compiled for it. */
#pragma once

#include "core/product/product.h"

#include <immintrin.h>

static inline __mmask16 oct_first_columns(int64_t count)
{
    return (__mmask16)(count >= 16 ? 0xffffU : (1U << count) - 1);
}

void oct_product_f32_avx512(const oct_product *p);
