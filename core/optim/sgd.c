/* Stochastic gradient descent with momentum, in the order of torch.optim.SGD. The buffer starts at 0,
 * so its first value is the gradient itself, as there. Weight decay is added to the gradient. */
#include "core/base/cpu.h"
#include "core/optim/optim_impl.h"

typedef struct sgd_factors {
    float lr, momentum, decay;
    bool nesterov;
} sgd_factors;

OCT_CLONES
static void update_all(int64_t n, float *restrict p, const float *grad, float *restrict buffer,
                       const sgd_factors *factors)
{
    sgd_factors f = *factors;
    for (int64_t i = 0; i < n; i++) {
        float d = grad[i] + f.decay * p[i];
        buffer[i] = f.momentum * buffer[i] + d;
        p[i] -= f.lr * (f.nesterov ? d + f.momentum * buffer[i] : buffer[i]);
    }
}

static void update_block(const oct_optim_block *b, const void *factors)
{
    update_all(b->n, b->p, b->grad, b->slot[0], factors);
}

static void update(const oct_optim *optim, oct_param *param, float lr)
{
    const oct_optim_config *c = &optim->config;
    sgd_factors factors = {.lr = lr,
                           .momentum = c->momentum,
                           .decay = param->decay ? c->weight_decay : 0.0F,
                           .nesterov = c->nesterov};
    oct_optim_update_blocks(optim, param, update_block, &factors);
}

const oct_optim_type oct_optim_sgd = {
    .name = "sgd", .uses = " momentum nesterov ", .slot = {"slot0"}, .update = update};
