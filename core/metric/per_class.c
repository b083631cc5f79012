/* Precision, recall, F1 and intersection over union follow from three counts of each class: rows of it that are
 * predicted correctly, rows that are predicted as it, and rows of it. Of several labels at once, each output
 * that is above 0 is predicted, which bce learns as more likely than not.
 *
 * A class that no row has and that is predicted for none counts in no mean; otherwise a share of nothing
 * is 0, as scikit-learn has it.
 */
#include "core/metric/metric.h"
#include "core/tensor/tensor.h"

#include <math.h>

enum { HITS, PREDICTED, ROWS, COUNTS };

static int64_t numbers(int64_t n)
{
    return n * COUNTS;
}

static void count_row(const oct_output_row *row, double *counts)
{
    const int32_t class = oct_output_class(row);
    int32_t predicted;
    if (class < 0 || class >= row->n) return;
    oct_argmax_rows(OCT_F32, 1, row->n, row->y, &predicted);
    counts[(int64_t)predicted * COUNTS + PREDICTED]++;
    counts[(int64_t) class * COUNTS + ROWS]++;
    if (predicted == class) counts[(int64_t) class * COUNTS + HITS]++;
}

static void add_labels(const oct_output_row *row, double *counts)
{
    for (int64_t k = 0; row->goal && k < row->n; k++) {
        const bool predicted = !(row->y[k] <= 0), is = row->goal[k] > 0.5F;
        counts[k * COUNTS + HITS] += predicted && is;
        counts[k * COUNTS + PREDICTED] += predicted;
        counts[k * COUNTS + ROWS] += is;
    }
}

static double share(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static double precision(const double *c)
{
    return share(c[HITS], c[PREDICTED]);
}

static double recall(const double *c)
{
    return share(c[HITS], c[ROWS]);
}

static double f1(const double *c)
{
    return share(2 * c[HITS], c[PREDICTED] + c[ROWS]);
}

static double iou(const double *c)
{
    return share(c[HITS], c[PREDICTED] + c[ROWS] - c[HITS]);
}

static bool is_there(const double *c)
{
    return c[PREDICTED] + c[ROWS] > 0;
}

static double mean(const double *counts, int64_t n, double (*of)(const double *))
{
    double sum = 0, classes = 0;
    for (int64_t k = 0; k < n; k++) {
        if (!is_there(counts + k * COUNTS)) continue;
        sum += of(counts + k * COUNTS);
        classes++;
    }
    return classes > 0 ? sum / classes : (double)NAN;
}

static double mean_precision(const double *counts, int64_t n)
{
    return mean(counts, n, precision);
}

static double mean_recall(const double *counts, int64_t n)
{
    return mean(counts, n, recall);
}

static double mean_f1(const double *counts, int64_t n)
{
    return mean(counts, n, f1);
}

static double mean_iou(const double *counts, int64_t n)
{
    return mean(counts, n, iou);
}

static void fill_scores(const double *counts, int64_t n, double *cells)
{
    for (int64_t k = 0; k < n; k++, counts += COUNTS) {
        *cells++ = precision(counts);
        *cells++ = recall(counts);
        *cells++ = is_there(counts) ? f1(counts) : (double)NAN;
        *cells++ = counts[ROWS];
    }
}

static void fill_iou(const double *counts, int64_t n, double *cells)
{
    for (int64_t k = 0; k < n; k++, counts += COUNTS) {
        *cells++ = is_there(counts) ? iou(counts) : (double)NAN;
        *cells++ = counts[ROWS];
    }
}

static const oct_metric_column columns[] = {
    {"precision", 2}, {"recall", 2}, {"F1", 2}, {"rows", 0}};
static const oct_metric_column iou_columns[] = {{"IoU", 2}, {"rows", 0}};
static const oct_metric_details details = {columns, OCT_COUNT(columns), fill_scores};
static const oct_metric_details iou_details = {iou_columns, OCT_COUNT(iou_columns), fill_iou};

#define PER_CLASS(word, heading, short, mean_of)                                                   \
    const oct_metric oct_metric_##word = {.name = #word,                                           \
                                          .title = heading,                                        \
                                          .brief = short,                                          \
                                          .unit = "%",                                             \
                                          .counts = true,                                          \
                                          .of = OCT_METRIC_OF_CLASSES,                             \
                                          .numbers = numbers,                                      \
                                          .add = count_row,                                        \
                                          .value = mean_of,                                        \
                                          .details = &details}
PER_CLASS(precision, "mean precision", "prec", mean_precision);
PER_CLASS(recall, "mean recall", "recall", mean_recall);
PER_CLASS(f1, "mean F1", "F1", mean_f1);

const oct_metric oct_metric_miou = {.name = "miou",
                                    .title = "mean IoU",
                                    .brief = "mIoU",
                                    .unit = "%",
                                    .counts = true,
                                    .of = OCT_METRIC_OF_CLASSES,
                                    .numbers = numbers,
                                    .add = count_row,
                                    .value = mean_iou,
                                    .details = &iou_details};

const oct_metric oct_metric_multilabel_f1 = {.name = "multilabel_f1",
                                             .title = "mean F1 of labels",
                                             .brief = "F1",
                                             .unit = "%",
                                             .counts = true,
                                             .of = OCT_METRIC_OF_VALUES,
                                             .numbers = numbers,
                                             .add = add_labels,
                                             .value = mean_f1,
                                             .details = &details};
