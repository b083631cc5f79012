/* Softmax cross-entropy with label smoothing and weights of classes, as torch.nn.functional.cross_entropy:
 * what a row should be is (1 - smoothing) times its probabilities, which are 1 for its label and 0 for the rest
 * or are given for each class, plus smoothing/K on every class. A row of a label counts by the weight of
 * its class. */
#include "core/op/loss.h"
#include "core/op/loss/log_sum_exp.h"

static double norm_of(const oct_output_row *row)
{
    return oct_log_sum_exp(row->y, row->n, 1.0);
}

/* The probability that class k should have. */
static double smoothed(const oct_output_row *row, double smoothing, int64_t k)
{
    return smoothing / (double)row->n + (1 - smoothing) * oct_output_wanted(row, k);
}

/* What the row counts in the mean. A row of probabilities has no class of its own. */
static double weight(const oct_output_row *row, const oct_loss_options *o)
{
    return o->class_weights && !row->goal ? o->class_weights[row->label] : 1.0;
}

/* Class k of a row counts this much in the row's value, which is multiplied by the row's weight. */
static double share(const oct_output_row *row, const oct_loss_options *o, int64_t k)
{
    return o->class_weights[k] / weight(row, o);
}

static double weighted_value(const oct_output_row *row, const oct_loss_options *o)
{
    const double norm = norm_of(row);
    double sum = 0;
    for (int64_t k = 0; k < row->n; k++)
        sum += share(row, o, k) * smoothed(row, o->smoothing, k) * (norm - (double)row->y[k]);
    return sum;
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

static double cross_entropy_value(const oct_output_row *row, const oct_loss_options *o)
{
    if (o->class_weights) return weighted_value(row, o);
    double norm = norm_of(row), mean = 0;
    for (int64_t k = 0; k < row->n; k++)
        mean += norm - (double)row->y[k];
    return (1 - o->smoothing) * plain_value(row, norm) + o->smoothing / (double)row->n * mean;
}

/* What a row's wanted values add up to: 1 where its probabilities do. */
static double goal_sum(const oct_output_row *row, double smoothing)
{
    if (!row->goal) return 1.0;
    double sum = 0;
    for (int64_t k = 0; k < row->n; k++)
        sum += oct_output_wanted(row, k);
    return (1 - smoothing) * sum + smoothing;
}

static void weighted_grad(const oct_output_row *row, const oct_loss_options *o,
                          oct_loss_scale scale, float *grad)
{
    const double norm = norm_of(row);
    double sum = 0;
    for (int64_t k = 0; k < row->n; k++)
        sum += share(row, o, k) * smoothed(row, o->smoothing, k);
    for (int64_t k = 0; k < row->n; k++)
        grad[k] = oct_loss_scaled(scale, exp((double)row->y[k] - norm) * sum -
                                             share(row, o, k) * smoothed(row, o->smoothing, k));
}

static void cross_entropy_grad(const oct_output_row *row, const oct_loss_options *o,
                               oct_loss_scale scale, float *grad)
{
    if (o->class_weights) {
        weighted_grad(row, o, scale, grad);
        return;
    }
    const double s = o->smoothing, norm = norm_of(row), sum = goal_sum(row, s);
    for (int64_t k = 0; k < row->n; k++)
        grad[k] = oct_loss_scaled(scale, exp((double)row->y[k] - norm) * sum - smoothed(row, s, k));
}

static void goal_grad(const oct_output_row *row, const oct_loss_options *o, oct_loss_scale scale,
                      float *grad)
{
    const double norm = norm_of(row);
    for (int64_t k = 0; k < row->n; k++)
        grad[k] = oct_loss_scaled(scale, (o->class_weights ? share(row, o, k) : 1.0) *
                                             (1 - o->smoothing) * (norm - (double)row->y[k]));
}

const oct_loss_kind oct_loss_cross_entropy = {.name = "cross_entropy",
                                              .takes = OCT_LOSS_OF_LABELS | OCT_LOSS_OF_VALUES,
                                              .uses = OCT_LOSS_USES_SMOOTHING |
                                                      OCT_LOSS_USES_CLASS_WEIGHTS,
                                              .outputs = OCT_OUTPUTS_SOFTMAX,
                                              .value = cross_entropy_value,
                                              .grad = cross_entropy_grad,
                                              .goal_grad = goal_grad,
                                              .weight = weight};
