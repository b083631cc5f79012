/* The mean absolute error and the root of the mean squared error, over all outputs of all rows: a label
 * means 1 at its class and 0 elsewhere. */
#include "core/metric/metric.h"

#include <math.h>

enum { SUM, OUTPUTS, NUMBERS };

static int64_t numbers(int64_t n)
{
    (void)n;
    return NUMBERS;
}

static void add_absolute(const oct_output_row *row, double *sums)
{
    for (int64_t k = 0; k < row->n; k++)
        sums[SUM] += fabs(oct_output_error(row, k));
    sums[OUTPUTS] += (double)row->n;
}

static void add_squared(const oct_output_row *row, double *sums)
{
    for (int64_t k = 0; k < row->n; k++)
        sums[SUM] += oct_output_error(row, k) * oct_output_error(row, k);
    sums[OUTPUTS] += (double)row->n;
}

static double mean_of_sum(const double *sums, int64_t n)
{
    (void)n;
    return sums[OUTPUTS] > 0 ? sums[SUM] / sums[OUTPUTS] : (double)NAN;
}

static double root_of_mean(const double *sums, int64_t n)
{
    return sqrt(mean_of_sum(sums, n));
}

const oct_metric oct_metric_mae = {.name = "mae",
                                   .title = "MAE",
                                   .brief = "MAE",
                                   .unit = "",
                                   .smaller_is_better = true,
                                   .numbers = numbers,
                                   .add = add_absolute,
                                   .value = mean_of_sum};
const oct_metric oct_metric_rmse = {.name = "rmse",
                                    .title = "RMSE",
                                    .brief = "RMSE",
                                    .unit = "",
                                    .smaller_is_better = true,
                                    .numbers = numbers,
                                    .add = add_squared,
                                    .value = root_of_mean};
