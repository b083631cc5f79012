/* Integers: the smaller, the larger, and the next multiple. */
#pragma once

#include <stdint.h>

static inline int64_t oct_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t oct_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* n / step, rounded up; n not negative, of any size. */
static inline int64_t oct_divide_up(int64_t n, int64_t step)
{
    return n / step + (n % step != 0);
}

/* The next multiple of `step` that is not below `n`; n not negative. */
static inline int64_t oct_round_up(int64_t n, int64_t step)
{
    return (n + step - 1) / step * step;
}
