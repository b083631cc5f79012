/* The confusion matrix counts rows by their class and by the class that they are told to be of. Its figure is
 * the balanced accuracy, the mean over classes that have rows of the share that is told rightly. */
#include "core/metric/metric.h"
#include "core/tensor/argmax.h"

#include <math.h>
#include <string.h>

enum { CLASSES_MOST = 2048 };

static int64_t numbers(int64_t n)
{
    return n * n;
}

static void add(const oct_output_row *row, double *counts)
{
    const int32_t class = oct_output_class(row);
    int32_t told;
    if (class < 0 || class >= row->n) return;
    oct_argmax_rows(OCT_F32, 1, row->n, row->y, &told);
    counts[class * row->n + told]++;
}

static double value(const double *counts, int64_t n)
{
    double sum = 0, classes = 0;
    for (int64_t k = 0; k < n; k++) {
        double rows = 0;
        for (int64_t told = 0; told < n; told++)
            rows += counts[k * n + told];
        if (rows == 0) continue;
        sum += 100 * counts[k * n + k] / rows;
        classes++;
    }
    return classes > 0 ? sum / classes : (double)NAN;
}

static void fill(const double *counts, int64_t n, double *cells)
{
    memcpy(cells, counts, (size_t)(n * n) * sizeof *cells);
}

static const oct_metric_details details = {.fill = fill};

const oct_metric oct_metric_confusion = {.name = "confusion",
                                         .title = "balanced accuracy",
                                         .brief = "bal. acc",
                                         .unit = "%",
                                         .counts = true,
                                         .of = OCT_METRIC_OF_CLASSES,
                                         .most = CLASSES_MOST,
                                         .numbers = numbers,
                                         .add = add,
                                         .value = value,
                                         .details = &details};
