/* A metric: the mean distance of the outputs from their targets, 1 for the label and 0 for the rest. Its sum is
 * no count, so it is added leaf by leaf and along the tree, and has the same bits on any number of ranks. */
#include "tasks.h"

#include <math.h>

enum { SUM, OUTPUTS, NUMBERS };

static int64_t count_sums(int64_t n)
{
    (void)n;
    return NUMBERS;
}

static void add_row(const oct_output_row *row, double *sums)
{
    const int32_t label = oct_output_class(row);
    for (int64_t k = 0; k < row->n; k++)
        sums[SUM] += fabs((double)row->y[k] - (k == label ? 1.0 : 0.0));
    sums[OUTPUTS] += (double)row->n;
}

static double mean_of_sums(const double *sums, int64_t n)
{
    (void)n;
    return sums[SUM] / sums[OUTPUTS];
}

const oct_metric mean_error_metric = {.name = "mean_error",
                                      .title = "mean_error",
                                      .brief = "err",
                                      .unit = "",
                                      .smaller_is_better = true,
                                      .numbers = count_sums,
                                      .add = add_row,
                                      .value = mean_of_sums};
