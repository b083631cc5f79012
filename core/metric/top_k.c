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

/* Counts a row, and whether fewer than k outputs come before the one of its class. */
static void count_row(const oct_output_row *row, int64_t k, double *sums)
{
    const int32_t class = oct_output_class(row);
    const bool known = class >= 0 && class < row->n;
    int64_t before = known ? 0 : row->n;
    for (int64_t i = 0; known && i < row->n; i++)
        before += is_larger(row->y[i], row->y[class]) ||
                  (i < class && !is_larger(row->y[class], row->y[i]));
    sums[HITS] += before < k;
    sums[ROWS]++;
}

static double percent(const double *sums, int64_t n)
{
    (void)n;
    return sums[ROWS] > 0 ? 100.0 * sums[HITS] / sums[ROWS] : 0;
}

#define TOP_K(k, heading, short)                                                                   \
    static void add_top##k(const oct_output_row *row, double *sums)                                \
    {                                                                                              \
        count_row(row, k, sums);                                                                   \
    }                                                                                              \
    const oct_metric oct_metric_top##k = {.name = "top" #k,                                        \
                                          .title = heading,                                        \
                                          .brief = short,                                          \
                                          .unit = "%",                                             \
                                          .counts = true,                                          \
                                          .of = OCT_METRIC_OF_CLASSES,                             \
                                          .numbers = numbers,                                      \
                                          .add = add_top##k,                                       \
                                          .value = percent}
TOP_K(1, "accuracy", "acc");
TOP_K(5, "top5", "top5");
