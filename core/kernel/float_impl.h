/* The tables of float kernels share this.
 *
 * Products of bfloat16 treat denormals as zeros, as the instructions for them do. Set the mode in one
 * function and compute in another that is not inlined: the compiler knows nothing of the mode. */
#pragma once

#include "core/kernel/float_kernel.h"

#include <stdint.h>

enum { OCT_BF16_BLOCK = 32 /* elements of a block of bfloat16 products (float_kernel.h) */ };

#if defined(__x86_64__)
#include <xmmintrin.h>

typedef unsigned oct_float_mode;

static inline oct_float_mode oct_flush_begin(void)
{
    const oct_float_mode before = _mm_getcsr();
    _mm_setcsr(before | 0x8040); /* flush to zero, denormals are zeros */
    return before;
}

static inline void oct_flush_end(oct_float_mode before)
{
    _mm_setcsr(before);
}
#elif defined(__aarch64__)
typedef uint64_t oct_float_mode;

static inline oct_float_mode oct_flush_begin(void)
{
    oct_float_mode before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(before | 1U << 24) : "memory");
    return before;
}

static inline void oct_flush_end(oct_float_mode before)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(before) : "memory");
}
#else
#error "the mode in which this processor takes denormals as zeros belongs here"
#endif

/* Defines `name`, which is `product` with denormals as zeros. */
#define OCT_FLUSHED(name, product)                                                                 \
    static void name(const oct_product *p)                                                         \
    {                                                                                              \
        const oct_float_mode before = oct_flush_begin();                                           \
        product(p);                                                                                \
        oct_flush_end(before);                                                                     \
    }

#ifdef __AVX512F__ /* the tables for AVX-512 */
#include <immintrin.h>

static inline __mmask16 oct_first_columns(int64_t count)
{
    return (__mmask16)(count >= 16 ? 0xffffU : (1U << count) - 1);
}

void oct_product_f32_avx512(const oct_product *p);
#endif
