/* Norms of vectors. Squares are summed in lanes, lanes and chunks along a balanced tree. */

#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/optim/optim.h"

#include <math.h>

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

double oct_clip_grads(oct_params *params, double most)
{
    double sum = 0;
    for (size_t i = 0; i < params->count; i++) {
        const oct_param *param = params->items[i];
        if (oct_param_learns(param)) sum += oct_square_sum(param->grad, oct_numel(&param->value));
    }
    const double norm = sqrt(sum), factor = most / (norm + 1e-6);
    if (factor < 1) oct_params_scale_grads(params, (float)factor);
    return norm;
}
