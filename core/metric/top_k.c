/* The share of rows whose class is among the k largest outputs: of equal outputs the first counts as the
 * larger one, and a NaN is larger than all numbers, as oct_argmax_rows says. */
#include "core/metric/metric.h"

#include <math.h>

enum { HITS, ROWS, NUMBERS };

static int64_t numbers(int64_t n)
{
    (void)n;
    return NUMBERS;
}

static bool is_larger(float a, float b)
{
    return a > b || (isnan(a) && !isnan(b));
}

/* How many outputs come before the one of the row's class. */
static int64_t outputs_before(const oct_output_row *row)
{
    const int32_t class = oct_output_class(row);
    if (class < 0 || class >= row->n) return row->n;
    const float own = row->y[class];
    int64_t before = 0;
    for (int64_t k = 0; k < row->n; k++)
        before += is_larger(row->y[k], own) || (k < class && !is_larger(own, row->y[k]));
    return before;
}

static void count_row(const oct_output_row *row, int64_t k, double *sums)
{
    sums[HITS] += outputs_before(row) < k;
    sums[ROWS]++;
}

static void add_top1(const oct_output_row *row, double *sums)
{
    count_row(row, 1, sums);
}

static void add_top5(const oct_output_row *row, double *sums)
{
    count_row(row, 5, sums);
}

static double percent(const double *sums, int64_t n)
{
    (void)n;
    return sums[ROWS] > 0 ? 100.0 * sums[HITS] / sums[ROWS] : 0;
}

const oct_metric oct_metric_top1 = {.name = "top1",
                                    .title = "accuracy",
                                    .brief = "acc",
                                    .unit = "%",
                                    .counts = true,
                                    .of = OCT_METRIC_OF_CLASSES,
                                    .numbers = numbers,
                                    .add = add_top1,
                                    .value = percent};
const oct_metric oct_metric_top5 = {.name = "top5",
                                    .title = "top5",
                                    .brief = "top5",
                                    .unit = "%",
                                    .counts = true,
                                    .of = OCT_METRIC_OF_CLASSES,
                                    .numbers = numbers,
                                    .add = add_top5,
                                    .value = percent};
