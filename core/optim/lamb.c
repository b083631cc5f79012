/* Layer-wise adaptive moments for large batches (You et al. 2020, algorithm 2, with bias correction): Adam's
 * step of a layer's weights, scaled to their norm.
 *
 *     m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g * g
 *     r = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + decay * w
 *     w = w - lr * |w| / |r| * r
 *
 * |w| / |r| is 1 for what does not decay (biases, batch norm) and where a norm is 0. Its state is m and v. */
#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/optim/optim_impl.h"
#include "core/optim/optim.h"

#include <math.h>

/* Elements of r that are at hand at a time, and blocks whose sums are. */
enum { BLOCK = 1024, BLOCKS = 512 };

typedef struct lamb_factors {
    float beta1, rest1; /* beta and 1 - beta */
    float beta2, rest2;
    float scale1; /* 1 / (1 - beta1^t) */
    float root;   /* sqrt(1 - beta2^t) */
    float eps, decay;
} lamb_factors;

OCT_CLONES
static void update_moments(const oct_optim_block *b, const lamb_factors *factors)
{
    lamb_factors f = *factors;
    float *m = b->slot[0], *v = b->slot[1];
    for (int64_t i = 0; i < b->n; i++) {
        const float g = b->grad[i];
        m[i] = m[i] * f.beta1 + f.rest1 * g;
        v[i] = v[i] * f.beta2 + f.rest2 * g * g;
    }
}

OCT_CLONES
static void directions(const oct_optim_block *b, const lamb_factors *factors, float r[BLOCK])
{
    lamb_factors f = *factors;
    const float *m = b->slot[0], *v = b->slot[1];
    for (int64_t i = 0; i < b->n; i++)
        r[i] = m[i] * f.scale1 / (sqrtf(v[i]) / f.root + f.eps) + f.decay * b->p[i];
}

OCT_CLONES
static void move(const oct_optim_block *b, const float *r, float rate)
{
    for (int64_t i = 0; i < b->n; i++)
        b->p[i] -= rate * r[i];
}

/* Updates the moments and returns the sum of the squares of r, block by block in order. */
static double update_all_moments(const oct_optim *optim, const oct_param *param,
                                 const lamb_factors *factors)
{
    const int64_t n = oct_numel(&param->value), blocks = (n + BLOCK - 1) / BLOCK;
    double sum = 0, sums[BLOCKS];
    for (int64_t begin = 0; begin < blocks; begin += BLOCKS) {
        const int64_t some = oct_min_i64(BLOCKS, blocks - begin);
#pragma omp parallel for schedule(static) if (some > 1)
        for (int64_t i = 0; i < some; i++) {
            const oct_optim_block block =
                oct_optim_block_at(optim, param, (begin + i) * BLOCK, BLOCK);
            float r[BLOCK];
            update_moments(&block, factors);
            directions(&block, factors, r);
            sums[i] = oct_square_sum(r, block.n);
        }
        for (int64_t i = 0; i < some; i++)
            sum += sums[i];
    }
    return sum;
}

static void update(const oct_optim *optim, oct_param *param, float lr)
{
    const oct_optim_config *c = &optim->config;
    const double beta1 = (double)c->beta1, beta2 = (double)c->beta2, t = (double)optim->updates;
    const lamb_factors factors = {.beta1 = c->beta1,
                                  .rest1 = (float)(1 - beta1),
                                  .beta2 = c->beta2,
                                  .rest2 = (float)(1 - beta2),
                                  .scale1 = (float)(1 / (1 - pow(beta1, t))),
                                  .root = (float)sqrt(1 - pow(beta2, t)),
                                  .eps = c->eps,
                                  .decay = param->decay ? c->weight_decay : 0.0F};
    const int64_t n = oct_numel(&param->value);
    const double sum = update_all_moments(optim, param, &factors);
    const double w = sqrt(oct_square_sum(oct_f32(&param->value), n));
    const double ratio = param->decay && w > 0 && sum > 0 ? w / sqrt(sum) : 1;
#pragma omp parallel for schedule(static) if (n > BLOCK)
    for (int64_t first = 0; first < n; first += BLOCK) {
        const oct_optim_block block = oct_optim_block_at(optim, param, first, BLOCK);
        float r[BLOCK];
        directions(&block, &factors, r);
        move(&block, r, (float)((double)lr * ratio));
    }
}

const oct_optim_type oct_optim_lamb = {
    .name = "lamb", .uses = " beta1 beta2 eps ", .slot = {"slot0", "slot1"}, .update = update};
