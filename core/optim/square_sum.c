/* Squares are summed in lanes, lanes and chunks along a balanced tree. */
#include "core/optim/square_sum.h"

#include "core/base/cpu.h"
#include "core/base/int_math.h"

enum { LANES = 16, CHUNKS = 64, PARALLEL_FROM = 1 << 16 };

/* Leaves the sum of a power of two of numbers in the first. */
static void fold(double *sums, int count)
{
    for (int step = 1; step < count; step *= 2)
        for (int i = 0; i < count; i += 2 * step)
            sums[i] += sums[i + step];
}

OCT_CLONES
static double sum_chunk(const float *x, int64_t n)
{
    double lane[LANES] = {0};
    const int64_t whole = n - n % LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] += (double)x[i + k] * (double)x[i + k];
    for (int64_t i = whole; i < n; i++)
        lane[i - whole] += (double)x[i] * (double)x[i];
    fold(lane, LANES);
    return lane[0];
}

double oct_square_sum(const float *x, int64_t n)
{
    double sums[CHUNKS] = {0};
    const int64_t each = (n / CHUNKS / LANES + 1) * LANES;
#pragma omp parallel for schedule(static) if (n >= PARALLEL_FROM)
    for (int c = 0; c < CHUNKS; c++)
        if (c * each < n) sums[c] = sum_chunk(x + c * each, oct_min_i64(each, n - c * each));
    fold(sums, CHUNKS);
    return sums[0];
}
