/* Softmax cross-entropy with label smoothing, as torch.nn.functional.cross_entropy: what a row should be
 * is (1 - smoothing) times its probabilities, which are 1 for its label and 0 for the rest or are given
 * for each class, plus smoothing/K on every class. */
#include "core/op/loss.h"

#include <math.h>

static double log_sum_exp(const oct_output_row *row)
{
    const float *z = row->y;
    float top = z[0];
    for (int64_t k = 1; k < row->n; k++)
        top = z[k] <= top ? top : z[k];
    double sum = 0;
    for (int64_t k = 0; k < row->n; k++)
        sum += exp((double)z[k] - (double)top);
    return (double)top + log(sum);
}

/* The sum over classes of p * -log softmax. */
static double plain_value(const oct_output_row *row, double norm)
{
    if (!row->goal) return norm - (double)row->y[row->label];
    double sum = 0;
    for (int64_t k = 0; k < row->n; k++)
        sum += (double)row->goal[k] * (norm - (double)row->y[k]);
    return sum;
}

static double value(const oct_output_row *row, const oct_loss_options *o)
{
    double norm = log_sum_exp(row), mean = 0;
    for (int64_t k = 0; k < row->n; k++)
        mean += norm - (double)row->y[k];
    return (1 - o->smoothing) * plain_value(row, norm) + o->smoothing / (double)row->n * mean;
}

static double probability(const oct_output_row *row, int64_t k)
{
    if (!row->goal) return k == row->label ? 1.0 : 0.0;
    return (double)row->goal[k];
}

/* What a row's wanted values add up to: 1 where its probabilities do. */
static double goal_sum(const oct_output_row *row, double smoothing)
{
    if (!row->goal) return 1.0;
    double sum = 0;
    for (int64_t k = 0; k < row->n; k++)
        sum += probability(row, k);
    return (1 - smoothing) * sum + smoothing;
}

static void grad(const oct_output_row *row, const oct_loss_options *o, oct_loss_scale scale,
                 float *grad)
{
    const double s = o->smoothing, norm = log_sum_exp(row), sum = goal_sum(row, s);
    for (int64_t k = 0; k < row->n; k++) {
        const double wanted = s / (double)row->n + (1 - s) * probability(row, k);
        grad[k] = oct_loss_scaled(scale, exp((double)row->y[k] - norm) * sum - wanted);
    }
}

static void goal_grad(const oct_output_row *row, const oct_loss_options *o, oct_loss_scale scale,
                      float *grad)
{
    const double norm = log_sum_exp(row);
    for (int64_t k = 0; k < row->n; k++)
        grad[k] = oct_loss_scaled(scale, (1 - o->smoothing) * (norm - (double)row->y[k]));
}

const oct_loss_kind oct_loss_cross_entropy = {.name = "cross_entropy",
                                              .takes = OCT_LOSS_OF_LABELS | OCT_LOSS_OF_VALUES,
                                              .smooths = true,
                                              .value = value,
                                              .grad = grad,
                                              .goal_grad = goal_grad};
