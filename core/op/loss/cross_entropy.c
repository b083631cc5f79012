/* Softmax cross-entropy with label smoothing and weights of classes, as torch.nn.functional.cross_entropy:
 * what a row should be is (1 - smoothing) times its probabilities, which are 1 for its label and 0 for the rest
 * or are given for each class, plus smoothing/K on every class. A row of a label counts by the weight of
 * its class. Distillation mixes that with a teacher's outputs. */
#include "core/op/loss.h"

#include <math.h>

/* The logarithm of the sum of exp(z[k] / temperature). */
static double log_sum_exp(const float *z, int64_t n, double temperature)
{
    float top = z[0];
    for (int64_t k = 1; k < n; k++)
        top = z[k] <= top ? top : z[k];
    double sum = 0;
    for (int64_t k = 0; k < n; k++)
        sum += exp(((double)z[k] - (double)top) / temperature);
    return (double)top / temperature + log(sum);
}

/* -log softmax of output k is this - y[k]. */
static double log_sum_exp_of(const oct_output_row *row)
{
    return log_sum_exp(row->y, row->n, 1.0);
}

/* The probability that class k should have. */
static double smoothed_target(const oct_output_row *row, double smoothing, int64_t k)
{
    return smoothing / (double)row->n + (1 - smoothing) * oct_output_wanted(row, k);
}

/* What the row counts in the mean. A row of probabilities has no class of its own. */
static double row_weight(const oct_output_row *row, const oct_loss_options *o)
{
    return o->class_weights && !row->goal ? o->class_weights[row->label] : 1.0;
}

/* The weight of class k in a row's loss, relative to the row's weight, which multiplies the loss later. */
static double relative_class_weight(const oct_output_row *row, const oct_loss_options *o, int64_t k)
{
    return o->class_weights[k] / row_weight(row, o);
}

/* The loss of one row with class weights: sum over classes of weight * target * -log softmax. */
static double weighted_value(const oct_output_row *row, const oct_loss_options *o)
{
    const double log_sum = log_sum_exp_of(row);
    double sum = 0;
    for (int64_t k = 0; k < row->n; k++)
        sum += relative_class_weight(row, o, k) * smoothed_target(row, o->smoothing, k) *
               (log_sum - (double)row->y[k]);
    return sum;
}

/* The sum over classes of p * -log softmax, where p is the wanted probability without smoothing. */
static double unsmoothed_value(const oct_output_row *row, double log_sum)
{
    if (!row->goal) return log_sum - (double)row->y[row->label];
    double sum = 0;
    for (int64_t k = 0; k < row->n; k++)
        sum += (double)row->goal[k] * (log_sum - (double)row->y[k]);
    return sum;
}

/* The loss of one row: (1 - smoothing) * that of its target + smoothing * the mean of -log softmax over classes. */
static double cross_entropy_value(const oct_output_row *row, const oct_loss_options *o)
{
    if (o->class_weights) return weighted_value(row, o);
    double log_sum = log_sum_exp_of(row), mean = 0;
    for (int64_t k = 0; k < row->n; k++)
        mean += log_sum - (double)row->y[k];
    return (1 - o->smoothing) * unsmoothed_value(row, log_sum) +
           o->smoothing / (double)row->n * mean;
}

/* What a row's wanted values add up to: 1 where its probabilities do. */
static double wanted_sum(const oct_output_row *row, double smoothing)
{
    if (!row->goal) return 1.0;
    double sum = 0;
    for (int64_t k = 0; k < row->n; k++)
        sum += oct_output_wanted(row, k);
    return (1 - smoothing) * sum + smoothing;
}

/* The derivative by each logit, scaled: softmax * (sum of weight * target) - weight * target. */
static void weighted_grad(const oct_output_row *row, const oct_loss_options *o,
                          oct_loss_scale scale, float *grad)
{
    const double log_sum = log_sum_exp_of(row);
    double sum = 0;
    for (int64_t k = 0; k < row->n; k++)
        sum += relative_class_weight(row, o, k) * smoothed_target(row, o->smoothing, k);
    for (int64_t k = 0; k < row->n; k++)
        grad[k] = oct_loss_scaled(scale, exp((double)row->y[k] - log_sum) * sum -
                                             relative_class_weight(row, o, k) *
                                                 smoothed_target(row, o->smoothing, k));
}

static void cross_entropy_grad(const oct_output_row *row, const oct_loss_options *o,
                               oct_loss_scale scale, float *grad)
{
    if (o->class_weights) {
        weighted_grad(row, o, scale, grad);
        return;
    }
    const double s = o->smoothing, log_sum = log_sum_exp_of(row), sum = wanted_sum(row, s);
    for (int64_t k = 0; k < row->n; k++)
        grad[k] = oct_loss_scaled(scale, exp((double)row->y[k] - log_sum) * sum -
                                             smoothed_target(row, s, k));
}

static void cross_entropy_goal_grad(const oct_output_row *row, const oct_loss_options *o,
                                    oct_loss_scale scale, float *grad)
{
    const double log_sum = log_sum_exp_of(row);
    for (int64_t k = 0; k < row->n; k++)
        grad[k] =
            oct_loss_scaled(scale, (o->class_weights ? relative_class_weight(row, o, k) : 1.0) *
                                       (1 - o->smoothing) * (log_sum - (double)row->y[k]));
}

const oct_loss_kind oct_loss_cross_entropy = {.name = "cross_entropy",
                                              .takes = OCT_LOSS_OF_LABELS | OCT_LOSS_OF_VALUES,
                                              .uses = OCT_LOSS_USES_SMOOTHING |
                                                      OCT_LOSS_USES_CLASS_WEIGHTS,
                                              .outputs = OCT_OUTPUTS_SOFTMAX,
                                              .value = cross_entropy_value,
                                              .grad = cross_entropy_grad,
                                              .goal_grad = cross_entropy_goal_grad,
                                              .weight = row_weight};

/* Distillation: the cross-entropy mixed with how far the model's probabilities are from a teacher's, both
 * softened by a temperature T. The distance is the Kullback-Leibler divergence times T squared, which keeps
 * its gradients as large as those of the labels whatever T is (Hinton, Vinyals, Dean 2015). Where rows have no
 * teacher, it is the cross-entropy alone. */
static double temperature_of(const oct_loss_options *o)
{
    return o->temperature > 0 ? o->temperature : 1.0;
}

/* The Kullback-Leibler divergence of the model from the teacher, at temperature t. */
static double teacher_divergence(const oct_output_row *row, double t)
{
    const double log_sum = log_sum_exp(row->y, row->n, t);
    const double teacher_log_sum = log_sum_exp(row->teacher, row->n, t);
    double sum = 0;
    for (int64_t k = 0; k < row->n; k++) {
        const double log_wanted = (double)row->teacher[k] / t - teacher_log_sum;
        sum += exp(log_wanted) * (log_wanted - ((double)row->y[k] / t - log_sum));
    }
    return sum;
}

/* A student's row (Hinton et al. 2015): cross-entropy mixed with t^2 times the divergence from its teacher. */
static double distillation_value(const oct_output_row *row, const oct_loss_options *o)
{
    const double of_labels = cross_entropy_value(row, o), share = o->teacher_share;
    const double t = temperature_of(o);
    if (!row->teacher) return of_labels;
    return (1 - share) * of_labels + share * t * t * teacher_divergence(row, t);
}

static void distillation_grad(const oct_output_row *row, const oct_loss_options *o,
                              oct_loss_scale scale, float *grad)
{
    const double share = row->teacher ? o->teacher_share : 0, t = temperature_of(o);
    const oct_loss_scale of_labels = {scale.factor * (1 - share), scale.divisor};
    const oct_loss_scale of_teacher = {scale.factor * share, scale.divisor};
    cross_entropy_grad(row, o, of_labels, grad);
    if (!row->teacher) return;
    const double log_sum = log_sum_exp(row->y, row->n, t);
    const double teacher_log_sum = log_sum_exp(row->teacher, row->n, t);
    for (int64_t k = 0; k < row->n; k++) {
        const double predicted = exp((double)row->y[k] / t - log_sum);
        const double wanted = exp((double)row->teacher[k] / t - teacher_log_sum);
        grad[k] += oct_loss_scaled(of_teacher, t * (predicted - wanted));
    }
}

const oct_loss_kind oct_loss_distillation = {
    .name = "distillation",
    .takes = OCT_LOSS_OF_LABELS | OCT_LOSS_OF_VALUES,
    .uses = OCT_LOSS_USES_SMOOTHING | OCT_LOSS_USES_CLASS_WEIGHTS | OCT_LOSS_USES_TEACHER,
    .outputs = OCT_OUTPUTS_SOFTMAX,
    .value = distillation_value,
    .grad = distillation_grad,
    .weight = row_weight};
