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
#include <string.h>

enum { HITS, PREDICTED, ROWS, COUNTS };

static int64_t numbers(int64_t n)
{
    return n * COUNTS;
}

/* Gives a row's true and predicted class; false: the true one is not known. */
static bool find_classes(const oct_output_row *row, int32_t *class, int32_t *predicted)
{
    *class = oct_output_class(row);
    if (*class < 0 || *class >= row->n) return false;
    oct_argmax_rows(OCT_F32, 1, row->n, row->y, predicted);
    return true;
}

/* Counts a row for its class (ROWS), for the predicted class (PREDICTED), and where both are the same (HITS). */
static void count_row(const oct_output_row *row, double *counts)
{
    int32_t class, predicted;
    if (!find_classes(row, &class, &predicted)) return;
    counts[(int64_t)predicted * COUNTS + PREDICTED]++;
    counts[(int64_t) class * COUNTS + ROWS]++;
    if (predicted == class) counts[(int64_t) class * COUNTS + HITS]++;
}

/* Adds a row of several labels: label k is predicted where output k, a logit, is above 0 or NaN. */
static void count_labels(const oct_output_row *row, double *counts)
{
    for (int64_t k = 0; row->goal && k < row->n; k++) {
        const bool predicted = !(row->y[k] <= 0), is = row->goal[k] > 0.5F;
        counts[k * COUNTS + HITS] += predicted && is;
        counts[k * COUNTS + PREDICTED] += predicted;
        counts[k * COUNTS + ROWS] += is;
    }
}

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static double precision(const double *c)
{
    return percent(c[HITS], c[PREDICTED]);
}

static double recall(const double *c)
{
    return percent(c[HITS], c[ROWS]);
}

static double f1(const double *c)
{
    return percent(2 * c[HITS], c[PREDICTED] + c[ROWS]);
}

static double iou(const double *c)
{
    return percent(c[HITS], c[PREDICTED] + c[ROWS] - c[HITS]);
}

static bool has_rows(const double *c)
{
    return c[PREDICTED] + c[ROWS] > 0;
}

static double mean_over_classes(const double *counts, int64_t n, double (*score_of)(const double *))
{
    double sum = 0, classes = 0;
    for (int64_t k = 0; k < n; k++) {
        if (!has_rows(counts + k * COUNTS)) continue;
        sum += score_of(counts + k * COUNTS);
        classes++;
    }
    return classes > 0 ? sum / classes : (double)NAN;
}

/* Fills the cells of a table with a row for each class: precision, recall, F1, number of rows. */
static void fill_scores(const double *counts, int64_t n, double *cells)
{
    for (int64_t k = 0; k < n; k++, counts += COUNTS) {
        *cells++ = precision(counts);
        *cells++ = recall(counts);
        *cells++ = has_rows(counts) ? f1(counts) : (double)NAN;
        *cells++ = counts[ROWS];
    }
}

static void fill_iou(const double *counts, int64_t n, double *cells)
{
    for (int64_t k = 0; k < n; k++, counts += COUNTS) {
        *cells++ = has_rows(counts) ? iou(counts) : (double)NAN;
        *cells++ = counts[ROWS];
    }
}

static const oct_metric_column columns[] = {
    {"precision", 2}, {"recall", 2}, {"F1", 2}, {"rows", 0}};
static const oct_metric_column iou_columns[] = {{"IoU", 2}, {"rows", 0}};
static const oct_metric_details details = {columns, OCT_COUNT(columns), fill_scores};
static const oct_metric_details iou_details = {iou_columns, OCT_COUNT(iou_columns), fill_iou};

/* Defines a metric that is the mean of a share over classes, or over labels. */
#define PER_CLASS(id, heading, short, share, of_what, add_row, table)                              \
    static double mean_##id(const double *counts, int64_t n)                                       \
    {                                                                                              \
        return mean_over_classes(counts, n, share);                                                \
    }                                                                                              \
    const oct_metric oct_metric_##id = {.name = #id,                                               \
                                        .title = heading,                                          \
                                        .brief = short,                                            \
                                        .unit = "%",                                               \
                                        .counts = true,                                            \
                                        .of = of_what,                                             \
                                        .numbers = numbers,                                        \
                                        .add = add_row,                                            \
                                        .value = mean_##id,                                        \
                                        .details = &table}
PER_CLASS(precision, "mean precision", "prec", precision, OCT_METRIC_OF_CLASSES, count_row,
          details);
PER_CLASS(recall, "mean recall", "recall", recall, OCT_METRIC_OF_CLASSES, count_row, details);
PER_CLASS(f1, "mean F1", "F1", f1, OCT_METRIC_OF_CLASSES, count_row, details);
PER_CLASS(miou, "mean IoU", "mIoU", iou, OCT_METRIC_OF_CLASSES, count_row, iou_details);
PER_CLASS(multilabel_f1, "mean F1 of labels", "F1", f1, OCT_METRIC_OF_VALUES, count_labels,
          details);

/* The confusion matrix counts rows by their true class and by their predicted class. Its figure is the balanced
 * accuracy: the share of a class's rows that is predicted correctly, averaged over the classes that have rows. */
enum { CLASSES_MOST = 2048 };

static int64_t matrix_numbers(int64_t n)
{
    return n * n;
}

static void count_pair(const oct_output_row *row, double *counts)
{
    int32_t class, predicted;
    if (find_classes(row, &class, &predicted)) counts[class * row->n + predicted]++;
}

/* The mean over classes of their recall in percent; counts (true class, predicted class): the confusion matrix. */
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

static const oct_metric_details matrix_details = {.fill = fill_matrix};

const oct_metric oct_metric_confusion = {.name = "confusion",
                                         .title = "balanced accuracy",
                                         .brief = "bal. acc",
                                         .unit = "%",
                                         .counts = true,
                                         .of = OCT_METRIC_OF_CLASSES,
                                         .most = CLASSES_MOST,
                                         .numbers = matrix_numbers,
                                         .add = count_pair,
                                         .value = balanced_accuracy,
                                         .details = &matrix_details};
