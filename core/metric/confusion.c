/* The confusion matrix counts rows by their true class and by their predicted class. Its figure is the balanced
 * accuracy: the share of a class's rows that is predicted correctly, averaged over the classes that have rows. */
#include "core/metric/metric.h"
#include "core/tensor/tensor.h"

#include <math.h>
#include <string.h>

enum { CLASSES_MOST = 2048 };

static int64_t numbers(int64_t n)
{
    return n * n;
}

static void count_row(const oct_output_row *row, double *counts)
{
    const int32_t class = oct_output_class(row);
    int32_t predicted;
    if (class < 0 || class >= row->n) return;
    oct_argmax_rows(OCT_F32, 1, row->n, row->y, &predicted);
    counts[class * row->n + predicted]++;
}

static double balanced_accuracy(const double *counts, int64_t n)
{
    double sum = 0, classes = 0;
    for (int64_t k = 0; k < n; k++) {
        double rows = 0;
        for (int64_t predicted = 0; predicted < n; predicted++)
            rows += counts[k * n + predicted];
        if (rows == 0) continue;
        sum += 100 * counts[k * n + k] / rows;
        classes++;
    }
    return classes > 0 ? sum / classes : (double)NAN;
}

static void fill_matrix(const double *counts, int64_t n, double *cells)
{
    memcpy(cells, counts, (size_t)(n * n) * sizeof *cells);
}

static const oct_metric_details details = {.fill = fill_matrix};

const oct_metric oct_metric_confusion = {.name = "confusion",
                                         .title = "balanced accuracy",
                                         .brief = "bal. acc",
                                         .unit = "%",
                                         .counts = true,
                                         .of = OCT_METRIC_OF_CLASSES,
                                         .most = CLASSES_MOST,
                                         .numbers = numbers,
                                         .add = count_row,
                                         .value = balanced_accuracy,
                                         .details = &details};
