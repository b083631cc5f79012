/* Stochastic gradient descent with momentum, in the order of torch.optim.SGD. The buffer starts at 0,
 * so its first value is the gradient itself, as there. */
#include "core/base/cpu.h"
#include "core/optim/optim_impl.h"

OCT_CLONES
static void update_plain(int64_t n, float *restrict p, const float *grad, float *restrict buffer,
                         float lr, float momentum, float decay)
{
    for (int64_t i = 0; i < n; i++) {
        float d = grad[i] + decay * p[i];
        buffer[i] = momentum * buffer[i] + d;
        p[i] -= lr * buffer[i];
    }
}

OCT_CLONES
static void update_nesterov(int64_t n, float *restrict p, const float *grad, float *restrict buffer,
                            float lr, float momentum, float decay)
{
    for (int64_t i = 0; i < n; i++) {
        float d = grad[i] + decay * p[i];
        buffer[i] = momentum * buffer[i] + d;
        p[i] -= lr * (d + momentum * buffer[i]);
    }
}

void oct_sgd_update(const oct_optim *optim, oct_param *param, float lr)
{
    const oct_optim_config *c = &optim->config;
    float decay = param->decay ? c->weight_decay : 0.0F;
    int64_t n = oct_numel(&param->value);
    float *p = oct_f32(&param->value), *buffer = optim->slot[0] + param->offset;
    if (c->nesterov)
        update_nesterov(n, p, param->grad, buffer, lr, c->momentum, decay);
    else
        update_plain(n, p, param->grad, buffer, lr, c->momentum, decay);
}
