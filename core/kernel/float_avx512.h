/* The two tables for AVX-512 share this; only files that are compiled for it include it. */
#pragma once

#include "core/product/product.h"

#include <immintrin.h>

static inline __mmask16 oct_first_columns(int64_t count)
{
    return (__mmask16)(count >= 16 ? 0xffffU : (1U << count) - 1);
}

void oct_product_f32_avx512(const oct_product *p);
