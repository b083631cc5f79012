/* Layer-wise adaptive rate scaling for large batches (You, Gitman and Ginsburg 2017, algorithm 1): the step of a
 * layer's weights is a share of their norm.
 *
 *     ratio = trust * |w| / (|g| + decay * |w|)
 *     v = momentum * v + lr * ratio * (g + decay * w)
 *     w = w - v
 *
 * The ratio is 1 for what does not decay (biases, batch norm) and where a norm is 0. Its state is v. */
#include "core/base/cpu.h"
#include "core/optim/optim_impl.h"
#include "core/optim/optim.h"

#include <math.h>

typedef struct lars_factors {
    float rate, momentum, decay;
} lars_factors;

OCT_CLONES
static void update_all(int64_t n, float *restrict p, const float *grad, float *restrict v,
                       const lars_factors *factors)
{
    lars_factors f = *factors;
    for (int64_t i = 0; i < n; i++) {
        v[i] = f.momentum * v[i] + f.rate * (grad[i] + f.decay * p[i]);
        p[i] -= v[i];
    }
}

static void update_block(const oct_optim_block *b, const void *factors)
{
    update_all(b->n, b->p, b->grad, b->slot[0], factors);
}

static void update(const oct_optim *optim, oct_param *param, float lr)
{
    const oct_optim_config *c = &optim->config;
    double ratio = 1;
    if (param->decay) {
        const int64_t n = oct_numel(&param->value);
        const double w = sqrt(oct_square_sum(oct_f32(&param->value), n));
        const double g = sqrt(oct_square_sum(param->grad, n));
        if (w > 0 && g > 0) ratio = (double)c->trust * w / (g + (double)c->weight_decay * w);
    }
    const lars_factors factors = {.rate = (float)((double)lr * ratio),
                                  .momentum = c->momentum,
                                  .decay = param->decay ? c->weight_decay : 0.0F};
    oct_optim_update_blocks(optim, param, update_block, &factors);
}

const oct_optim_type oct_optim_lars = {
    .name = "lars", .uses = " momentum trust ", .slot = {"slot0"}, .update = update};
