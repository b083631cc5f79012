/* Adam with decoupled weight decay (Loshchilov and Hutter 2019), in the order of torch.optim.AdamW:
 * factors are computed in double and rounded once. Its state is the first and the second moment. */
#include "core/base/cpu.h"
#include "core/optim/optim_impl.h"

#include <math.h>

typedef struct adamw_factors {
    float keep;         /* 1 - lr * weight_decay */
    float beta1, rest1; /* beta and 1 - beta */
    float beta2, rest2;
    float root;      /* sqrt(1 - beta2^t) */
    float eps, step; /* step: lr / (1 - beta1^t) */
} adamw_factors;

OCT_CLONES
static void update_all(int64_t n, float *restrict p, const float *grad, float *restrict m,
                       float *restrict v, const adamw_factors *factors)
{
    adamw_factors f = *factors;
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i];
        m[i] = m[i] * f.beta1 + f.rest1 * g;
        v[i] = v[i] * f.beta2 + f.rest2 * g * g;
        float denominator = sqrtf(v[i]) / f.root + f.eps;
        p[i] = p[i] * f.keep - f.step * m[i] / denominator;
    }
}

static void update_block(const oct_optim_block *b, const void *factors)
{
    update_all(b->n, b->p, b->grad, b->slot[0], b->slot[1], factors);
}

static void update(const oct_optim *optim, oct_param *param, float lr)
{
    const oct_optim_config *c = &optim->config;
    double beta1 = (double)c->beta1, beta2 = (double)c->beta2, t = (double)optim->updates;
    double decay = param->decay ? (double)c->weight_decay : 0.0;
    adamw_factors factors = {.keep = (float)(1 - (double)lr * decay),
                             .beta1 = c->beta1,
                             .rest1 = (float)(1 - beta1),
                             .beta2 = c->beta2,
                             .rest2 = (float)(1 - beta2),
                             .root = (float)sqrt(1 - pow(beta2, t)),
                             .eps = c->eps,
                             .step = (float)((double)lr / (1 - pow(beta1, t)))};
    oct_optim_update_blocks(optim, param, update_block, &factors);
}

const oct_optim_type oct_optim_adamw = {
    .name = "adamw", .uses = " beta1 beta2 eps ", .slot = {"slot0", "slot1"}, .update = update};
