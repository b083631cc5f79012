/* The binary cross-entropy of logits, as torch.nn.functional.binary_cross_entropy_with_logits: each output
 * says on its own whether a sample has its label, so a sample may have several, or none. Positives of an
 * output may count more or less than its negatives. */
#include "core/op/loss.h"

#include <math.h>

/* What -log sigmoid(x) counts; -log sigmoid(-x) counts 1 - wanted. */
static double positive_share(double wanted, const oct_loss_options *o, int64_t k)
{
    return o->positive_weights ? o->positive_weights[k] * wanted : wanted;
}

/* The mean of -w log sigmoid(x) - (1 - wanted) log sigmoid(-x); -log sigmoid(x) = max(-x, 0) + log1p(exp(-|x|)). */
static double bce_value(const oct_output_row *row, const oct_loss_options *o)
{
    double sum = 0;
    for (int64_t k = 0; k < row->n; k++) {
        const double x = (double)row->y[k], wanted = oct_output_wanted(row, k);
        const double both = log1p(exp(-fabs(x)));
        sum += positive_share(wanted, o, k) * (fmax(-x, 0) + both) +
               (1 - wanted) * (fmax(x, 0) + both);
    }
    return sum / (double)row->n;
}

static void bce_grad(const oct_output_row *row, const oct_loss_options *o, oct_loss_scale scale,
                     float *grad)
{
    for (int64_t k = 0; k < row->n; k++) {
        const double wanted = oct_output_wanted(row, k);
        const double probability = 1 / (1 + exp(-(double)row->y[k]));
        const double slope =
            (1 - wanted) * probability - positive_share(wanted, o, k) * (1 - probability);
        grad[k] = oct_loss_scaled(scale, slope / (double)row->n);
    }
}

const oct_loss_kind oct_loss_bce = {.name = "bce",
                                    .takes = OCT_LOSS_OF_LABELS | OCT_LOSS_OF_VALUES,
                                    .uses = OCT_LOSS_USES_POSITIVE_WEIGHTS,
                                    .outputs = OCT_OUTPUTS_SIGMOID,
                                    .value = bce_value,
                                    .grad = bce_grad};
