/* The area under the ROC curve and the average precision: how well a score separates positive rows from
 * negative ones, for each output on its own and as the mean over those that have rows of both kinds.
 *
 * Of labels, output k is to separate class k from the others; its score is the logarithm of the odds that the
 * softmax gives it, which orders rows as its probability does and rounds less. Of values, output k itself is
 * the score and a value above one half is positive. Where rows have both, as those of an autoencoder that is
 * to find what is unlike its training data, the score is the mean squared error of the row, and a label
 * above 0 is positive.
 */
#include "core/metric/metric.h"

#include <math.h>

static int64_t count_columns(const oct_output_rows *rows)
{
    if (!rows->goals.labels && !rows->goals.values) return 0;
    return rows->goals.labels && rows->goals.values ? 1 : rows->n;
}

static double mean_squared_error(const oct_output_row *row)
{
    double sum = 0;
    for (int64_t k = 0; k < row->n; k++) {
        const double error = (double)row->y[k] - (double)row->goal[k];
        sum += error * error;
    }
    return sum / (double)row->n;
}

/* y[class] - log(sum of exp(y) over all others) */
static double log_odds(const oct_output_row *row, int64_t class)
{
    double top = -INFINITY, sum = 0;
    for (int64_t k = 0; k < row->n; k++)
        if (k != class && !((double)row->y[k] <= top)) top = (double)row->y[k];
    for (int64_t k = 0; k < row->n; k++)
        if (k != class) sum += exp((double)row->y[k] - top);
    return (double)row->y[class] - top - log(sum);
}

/* A row's score and whether it is positive: reconstruction error and label, a label's value, or log odds of a class. */
static oct_ranked score_row(const oct_output_row *row, int64_t column)
{
    if (row->label >= 0 && row->goal) return (oct_ranked){mean_squared_error(row), row->label > 0};
    if (row->goal) return (oct_ranked){(double)row->y[column], row->goal[column] > 0.5F};
    if (row->label >= 0) return (oct_ranked){log_odds(row, column), row->label == column};
    return (oct_ranked){.is_positive = -1};
}

/* Returns how many of the rows with the score of row *i, from that row on, are positive; moves *i after them. */
static double count_equal(const oct_ranked *sorted, int64_t count, int64_t *i)
{
    const double score = sorted[*i].score;
    double positive = 0;
    do
        positive += sorted[(*i)++].is_positive;
    while (*i < count && (sorted[*i].score == score || (isnan(score) && isnan(sorted[*i].score))));
    return positive;
}

static double count_positive(const oct_ranked *sorted, int64_t count)
{
    double positive = 0;
    for (int64_t i = 0; i < count; i++)
        positive += sorted[i].is_positive;
    return positive;
}

/* Of all pairs of a positive and a negative row, twice those in the right order, plus those of
 * equal score: an integer, whatever order equal ones have. */
enum { PAIRS, POSITIVE, NEGATIVE, AUC_NUMBERS };

static int64_t auc_numbers(int64_t n)
{
    return n * AUC_NUMBERS;
}

/* Area under the ROC curve: a pair of a positive row and a negative one below it counts 2, of equal scores 1. */
static void sum_pairs(const oct_ranked *sorted, int64_t count, int64_t column, double *numbers)
{
    double *sums = numbers + column * AUC_NUMBERS;
    sums[POSITIVE] = count_positive(sorted, count);
    sums[NEGATIVE] = (double)count - sums[POSITIVE];
    double below = sums[NEGATIVE]; /* negative rows not passed yet */
    for (int64_t i = 0; i < count;) {
        const int64_t first = i;
        const double positive = count_equal(sorted, count, &i);
        const double negative = (double)(i - first) - positive;
        below -= negative;
        sums[PAIRS] += positive * (2 * below + negative);
    }
}

static double auc_of(const double *sums)
{
    const double pairs = sums[POSITIVE] * sums[NEGATIVE];
    return pairs > 0 ? sums[PAIRS] / (2 * pairs) : (double)NAN;
}

/* Numbers of a column: the average precision and how many rows are positive. */
enum { AP, AP_POSITIVE, AP_NUMBERS };

static int64_t ap_numbers(int64_t n)
{
    return n * AP_NUMBERS;
}

/* Sums the precision at each positive row: the share of positive rows among those up to it. */
static void sum_precision(const oct_ranked *sorted, int64_t count, int64_t column, double *numbers)
{
    double *sums = numbers + column * AP_NUMBERS, hits = 0;
    sums[AP_POSITIVE] = count_positive(sorted, count);
    for (int64_t i = 0; sums[AP_POSITIVE] > 0 && i < count;) {
        const double positive = count_equal(sorted, count, &i);
        hits += positive;
        sums[AP] += 100 * positive / sums[AP_POSITIVE] * (hits / (double)i);
    }
}

static double ap_of(const double *sums)
{
    return sums[AP_POSITIVE] > 0 ? sums[AP] : (double)NAN;
}

/* The mean over the columns whose value is known; each: numbers of a column. */
static double mean_of_columns(const double *numbers, int64_t n, int64_t each,
                              double (*value_of)(const double *))
{
    double sum = 0, known = 0;
    for (int64_t k = 0; k < n; k++) {
        const double value = value_of(numbers + k * each);
        if (isnan(value)) continue;
        sum += value;
        known++;
    }
    return known > 0 ? sum / known : (double)NAN;
}

static double auc(const double *numbers, int64_t n)
{
    return mean_of_columns(numbers, n, AUC_NUMBERS, auc_of);
}

static double mean_ap(const double *numbers, int64_t n)
{
    return mean_of_columns(numbers, n, AP_NUMBERS, ap_of);
}

/* Fills a table with a row for each output: area under the curve, number of positive rows. */
static void fill_auc(const double *numbers, int64_t n, double *cells)
{
    for (int64_t k = 0; k < n; k++, numbers += AUC_NUMBERS) {
        *cells++ = auc_of(numbers);
        *cells++ = numbers[POSITIVE];
    }
}

static void fill_ap(const double *numbers, int64_t n, double *cells)
{
    for (int64_t k = 0; k < n; k++, numbers += AP_NUMBERS) {
        *cells++ = ap_of(numbers);
        *cells++ = numbers[AP_POSITIVE];
    }
}

static const oct_metric_column auc_columns[] = {{"AUC", 4}, {"positive", 0}};
static const oct_metric_column ap_columns[] = {{"AP", 2}, {"positive", 0}};
static const oct_metric_details auc_details = {auc_columns, OCT_COUNT(auc_columns), fill_auc};
static const oct_metric_details ap_details = {ap_columns, OCT_COUNT(ap_columns), fill_ap};
static const oct_metric_order auc_order = {count_columns, score_row, sum_pairs};
static const oct_metric_order ap_order = {count_columns, score_row, sum_precision};

const oct_metric oct_metric_auc = {.name = "auc",
                                   .title = "ROC AUC",
                                   .brief = "AUC",
                                   .unit = "",
                                   .numbers = auc_numbers,
                                   .value = auc,
                                   .order = &auc_order,
                                   .details = &auc_details};
const oct_metric oct_metric_mean_ap = {.name = "mean_ap",
                                       .title = "mean AP",
                                       .brief = "mAP",
                                       .unit = "%",
                                       .numbers = ap_numbers,
                                       .value = mean_ap,
                                       .order = &ap_order,
                                       .details = &ap_details};
