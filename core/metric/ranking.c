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

static int64_t columns(const oct_output_rows *rows)
{
    if (!rows->goals.labels && !rows->goals.values) return 0;
    return rows->goals.labels && rows->goals.values ? 1 : rows->n;
}

static double squared_error(const oct_output_row *row)
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

/* The score by which a row is ordered, and whether it is positive. */
static oct_ranked score_row(const oct_output_row *row, int64_t column)
{
    if (row->label >= 0 && row->goal) return (oct_ranked){squared_error(row), row->label > 0};
    if (row->goal) return (oct_ranked){(double)row->y[column], row->goal[column] > 0.5F};
    if (row->label >= 0) return (oct_ranked){log_odds(row, column), row->label == column};
    return (oct_ranked){.is_positive = -1};
}

/* Rows of equal score from `i` on: how many are positive. Moves i after them. */
static double take_equal(const oct_ranked *sorted, int64_t count, int64_t *i)
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

static void sum_pairs(const oct_ranked *sorted, int64_t count, int64_t column, double *numbers)
{
    double *own = numbers + column * AUC_NUMBERS;
    own[POSITIVE] = count_positive(sorted, count);
    own[NEGATIVE] = (double)count - own[POSITIVE];
    double below = own[NEGATIVE];
    for (int64_t i = 0; i < count;) {
        const int64_t first = i;
        const double positive = take_equal(sorted, count, &i);
        const double negative = (double)(i - first) - positive;
        below -= negative;
        own[PAIRS] += positive * (2 * below + negative);
    }
}

static double auc_of(const double *own)
{
    const double pairs = own[POSITIVE] * own[NEGATIVE];
    return pairs > 0 ? own[PAIRS] / (2 * pairs) : (double)NAN;
}

/* Numbers of a column: the average precision and how many rows are positive. */
enum { AP, AP_POSITIVE, AP_NUMBERS };

static int64_t ap_numbers(int64_t n)
{
    return n * AP_NUMBERS;
}

static void sum_precision(const oct_ranked *sorted, int64_t count, int64_t column, double *numbers)
{
    double *own = numbers + column * AP_NUMBERS, hits = 0;
    own[AP_POSITIVE] = count_positive(sorted, count);
    for (int64_t i = 0; own[AP_POSITIVE] > 0 && i < count;) {
        const double positive = take_equal(sorted, count, &i);
        hits += positive;
        own[AP] += 100 * positive / own[AP_POSITIVE] * (hits / (double)i);
    }
}

static double ap_of(const double *own)
{
    return own[AP_POSITIVE] > 0 ? own[AP] : (double)NAN;
}

static double mean(const double *numbers, int64_t n, int64_t each, double (*of)(const double *))
{
    double sum = 0, known = 0;
    for (int64_t k = 0; k < n; k++) {
        const double value = of(numbers + k * each);
        if (isnan(value)) continue;
        sum += value;
        known++;
    }
    return known > 0 ? sum / known : (double)NAN;
}

static double auc(const double *numbers, int64_t n)
{
    return mean(numbers, n, AUC_NUMBERS, auc_of);
}

static double mean_ap(const double *numbers, int64_t n)
{
    return mean(numbers, n, AP_NUMBERS, ap_of);
}

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
static const oct_metric_order auc_order = {columns, score_row, sum_pairs};
static const oct_metric_order ap_order = {columns, score_row, sum_precision};

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
