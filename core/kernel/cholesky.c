/* Blocks of columns, from left to right: each is factored, then taken off what is right of it. All work is on rows of
 * numbers that change apart from each other, so no sum has an order that threads or vectors could alter. */
#include "core/kernel/cholesky.h"

#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/base/mem.h"

#include <math.h>

enum { BLOCK = 64 };

/* y -= f x */
OCT_CLONES
static void take_off(int64_t n, double f, const double *restrict x, double *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] -= f * x[i];
}

static oct_status factor_corner(double *a, int64_t n, int64_t begin, int64_t end)
{
    for (int64_t k = begin; k < end; k++) {
        double *pivot = &a[k * n + k];
        OCT_CHECK(*pivot > 0 && isfinite(*pivot), OCT_NUMERIC,
                  "a matrix of %lld columns is not positive definite: pivot %lld is %g",
                  (long long)n, (long long)k, *pivot);
        *pivot = sqrt(*pivot);
        for (int64_t i = k + 1; i < end; i++) {
            double *row = a + i * n;
            row[k] /= *pivot;
            for (int64_t j = k + 1; j <= i; j++)
                row[j] -= row[k] * a[j * n + k];
        }
    }
    return OCT_OK;
}

/* Row i of the block, below its corner. */
static void factor_row(const double *a, int64_t n, int64_t begin, int64_t end, double *row)
{
    for (int64_t k = begin; k < end; k++) {
        const double *done = a + k * n;
        double value = row[k];
        for (int64_t j = begin; j < k; j++)
            value -= row[j] * done[j];
        row[k] = value / done[k];
    }
}

static void factor_block(double *a, int64_t n, int64_t begin, int64_t end, double *columns)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = end; i < n; i++) {
        factor_row(a, n, begin, end, a + i * n);
        for (int64_t k = begin; k < end; k++)
            columns[(k - begin) * n + i] = a[i * n + k];
    }
#pragma omp parallel for schedule(dynamic, 16)
    for (int64_t i = end; i < n; i++)
        for (int64_t k = begin; k < end; k++)
            take_off(i - end + 1, a[i * n + k], columns + (k - begin) * n + end, a + i * n + end);
}

oct_status oct_cholesky(double *a, int64_t n)
{
    double *columns = NULL; /* of the block at hand, one after the other */
    oct_status status = OCT_OK;
    OCT_TRY(oct_alloc(&columns, (size_t)(BLOCK * n), sizeof *columns));
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        const int64_t end = oct_min_i64(begin + BLOCK, n);
        OCT_TRY_OUT(factor_corner(a, n, begin, end));
        factor_block(a, n, begin, end, columns);
    }
out:
    oct_free(&columns);
    return status;
}
