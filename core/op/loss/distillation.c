/* Distillation: the cross-entropy mixed with how far the model's probabilities are from a teacher's, both
 * softened by a temperature T. The distance is the Kullback-Leibler divergence times T squared, which keeps
 * its gradients as large as those of the labels whatever T is (Hinton, Vinyals, Dean 2015). Where rows have no
 * teacher, it is the cross-entropy alone. */
#include "core/op/loss.h"
#include "core/op/loss/log_sum_exp.h"

static double temperature_of(const oct_loss_options *o)
{
    return o->temperature > 0 ? o->temperature : 1.0;
}

static double divergence(const oct_output_row *row, double t)
{
    const double norm = oct_log_sum_exp(row->y, row->n, t);
    const double teacher_norm = oct_log_sum_exp(row->teacher, row->n, t);
    double sum = 0;
    for (int64_t k = 0; k < row->n; k++) {
        const double log_wanted = (double)row->teacher[k] / t - teacher_norm;
        sum += exp(log_wanted) * (log_wanted - ((double)row->y[k] / t - norm));
    }
    return sum;
}

static double distillation_value(const oct_output_row *row, const oct_loss_options *o)
{
    const double of_labels = oct_loss_cross_entropy.value(row, o), share = o->teacher_share;
    const double t = temperature_of(o);
    if (!row->teacher) return of_labels;
    return (1 - share) * of_labels + share * t * t * divergence(row, t);
}

static void distillation_grad(const oct_output_row *row, const oct_loss_options *o,
                              oct_loss_scale scale, float *grad)
{
    const double share = row->teacher ? o->teacher_share : 0, t = temperature_of(o);
    const oct_loss_scale of_labels = {scale.factor * (1 - share), scale.divisor};
    const oct_loss_scale of_teacher = {scale.factor * share, scale.divisor};
    oct_loss_cross_entropy.grad(row, o, of_labels, grad);
    if (!row->teacher) return;
    const double norm = oct_log_sum_exp(row->y, row->n, t);
    const double teacher_norm = oct_log_sum_exp(row->teacher, row->n, t);
    for (int64_t k = 0; k < row->n; k++) {
        const double predicted = exp((double)row->y[k] / t - norm);
        const double wanted = exp((double)row->teacher[k] / t - teacher_norm);
        grad[k] += oct_loss_scaled(of_teacher, t * (predicted - wanted));
    }
}

static double weight(const oct_output_row *row, const oct_loss_options *o)
{
    return oct_loss_cross_entropy.weight(row, o);
}

const oct_loss_kind oct_loss_distillation = {
    .name = "distillation",
    .takes = OCT_LOSS_OF_LABELS | OCT_LOSS_OF_VALUES,
    .uses = OCT_LOSS_USES_SMOOTHING | OCT_LOSS_USES_CLASS_WEIGHTS | OCT_LOSS_USES_TEACHER,
    .outputs = OCT_OUTPUTS_SOFTMAX,
    .value = distillation_value,
    .grad = distillation_grad,
    .weight = weight};
