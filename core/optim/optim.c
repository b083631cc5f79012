/* The table of optimizers, their state, their updates, and the norms that these need.
 *
 * An update goes over a parameter block by block; factors are computed in double and rounded once. Of a norm, squares
 * are summed in lanes, lanes and chunks along a balanced tree. */
#include "core/optim/optim.h"

#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/base/mem.h"

#include <math.h>

enum {
    BLOCK = 1 << 14,   /* elements: what a thread works on stays in its cache */
    LAMB_BLOCK = 1024, /* elements of a direction that are held at a time */
    LAMB_BLOCKS = 512, /* blocks whose sums are held at a time */
    LANES = 16,
    CHUNKS = 64,             /* of a norm */
    PARALLEL_FROM = 1 << 16, /* elements of a norm */
};

static const void *const listed[] = {
#define OCT_OPTIM(id, name) &oct_optim_##name,
#include "core/optim/optim_list.def"
};
const oct_registry oct_optim_kind_table = OCT_REGISTRY("an optimizer", listed);

int oct_optim_slots(oct_optim_kind kind)
{
    const oct_optim_type *type = oct_registry_at(&oct_optim_kind_table, kind);
    int count = 0;
    while (count < OCT_OPTIM_SLOTS_MAX && type->slot[count])
        count++;
    return count;
}

oct_status oct_optim_create(oct_optim *optim, const oct_optim_config *config,
                            const oct_params *params)
{
    *optim = (oct_optim){.config = *config,
                         .type = oct_registry_at(&oct_optim_kind_table, config->kind),
                         .num_slots = oct_optim_slots(config->kind),
                         .numel = params->numel};
    oct_status status = OCT_OK;
    for (int i = 0; i < optim->num_slots; i++)
        OCT_TRY_OUT(oct_alloc(&optim->slot[i], (size_t)params->numel, sizeof(float)));
out:
    if (status != OCT_OK) oct_optim_destroy(optim);
    return status;
}

void oct_optim_destroy(oct_optim *optim)
{
    for (size_t i = 0; i < OCT_COUNT(optim->slot); i++)
        oct_free(&optim->slot[i]);
    oct_average_destroy(&optim->average);
}

/* Leaves the sum of a power of two of numbers in the first. */
static void fold_sums(double *sums, int count)
{
    for (int step = 1; step < count; step *= 2)
        for (int i = 0; i < count; i += 2 * step)
            sums[i] += sums[i + step];
}

/* Each lane sums every LANES-th square, whatever the vectors of the machine are. */
OCT_CLONES
static double sum_chunk_squares(const float *x, int64_t n)
{
    double lane[LANES] = {0};
    const int64_t whole = n - n % LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] += (double)x[i + k] * (double)x[i + k];
    for (int64_t i = whole; i < n; i++)
        lane[i - whole] += (double)x[i] * (double)x[i];
    fold_sums(lane, LANES);
    return lane[0];
}

double oct_square_sum(const float *x, int64_t n)
{
    double sums[CHUNKS] = {0};
    const int64_t each = (n / CHUNKS / LANES + 1) * LANES;
#pragma omp parallel for schedule(static) if (n >= PARALLEL_FROM)
    for (int c = 0; c < CHUNKS; c++)
        if (c * each < n)
            sums[c] = sum_chunk_squares(x + c * each, oct_min_i64(each, n - c * each));
    fold_sums(sums, CHUNKS);
    return sums[0];
}

/* Multiplies the total gradients by most / (norm + 1e-6), their norm as one vector, where that is below 1, as
 * torch.nn.utils.clip_grad_norm_ does; what does not learn counts nothing. Returns the norm before. */
static double clip_grads(oct_params *params, double most)
{
    double sum = 0;
    for (size_t i = 0; i < params->count; i++) {
        const oct_param *param = params->items[i];
        if (oct_param_learns(param)) sum += oct_square_sum(param->grad, oct_numel(&param->value));
    }
    const double norm = sqrt(sum), factor = most / (norm + 1e-6);
    if (factor < 1) oct_params_scale_grads(params, (float)factor);
    return norm;
}

double oct_optim_step(oct_optim *optim, oct_params *params, float lr)
{
    const double most = (double)optim->config.clip_norm;
    OCT_ASSERT(optim->numel == params->numel);
    const double norm = most > 0 ? clip_grads(params, most) : (double)NAN;
    optim->updates++;
    for (size_t i = 0; i < params->count; i++)
        if (oct_param_learns(params->items[i])) optim->type->update(optim, params->items[i], lr);
    for (size_t i = 0; i < params->count; i++) {
        const oct_tie *tie = params->items[i]->tie;
        if (tie)
            oct_file_order_move(&tie->first_order, oct_f32(&tie->first->value), &tie->order,
                                oct_f32(&params->items[i]->value), false);
    }
    return norm;
}

/* Some elements of a parameter, of its gradient and of its state. */
typedef struct block {
    int64_t n;
    float *value;
    const float *grad;
    float *slot[OCT_OPTIM_SLOTS_MAX];
} block;

/* Returns up to n values of a parameter from `first` on, with their gradients and optimizer state. */
static block block_at(const oct_optim *optim, const oct_param *param, int64_t first, int64_t n)
{
    block b = {.n = oct_min_i64(n, oct_numel(&param->value) - first),
               .value = oct_f32(&param->value) + first,
               .grad = param->grad + first};
    for (int i = 0; i < optim->num_slots; i++)
        b.slot[i] = optim->slot[i] + param->offset + first;
    return b;
}

/* Updates the elements of a block, each by itself. */
typedef void update_fn(const block *b, const void *factors);

/* Updates a parameter block by block; threads share the blocks. */
static void update_blocks(const oct_optim *optim, const oct_param *param, update_fn *update,
                          const void *factors)
{
    const int64_t n = oct_numel(&param->value);
#pragma omp parallel for schedule(static) if (n > BLOCK)
    for (int64_t first = 0; first < n; first += BLOCK) {
        const block b = block_at(optim, param, first, BLOCK);
        update(&b, factors);
    }
}

/* Stochastic gradient descent with momentum, in the order of torch.optim.SGD. The buffer starts at 0,
 * so its first value is the gradient itself, as there. Weight decay is added to the gradient. */
typedef struct sgd_factors {
    float lr, momentum, decay;
    bool nesterov;
} sgd_factors;

OCT_CLONES
static void update_sgd_block(const block *b, const void *factors)
{
    const sgd_factors f = *(const sgd_factors *)factors;
    float *restrict value = b->value, *restrict buffer = b->slot[0];
    for (int64_t i = 0; i < b->n; i++) {
        float d = b->grad[i] + f.decay * value[i];
        buffer[i] = f.momentum * buffer[i] + d;
        value[i] -= f.lr * (f.nesterov ? d + f.momentum * buffer[i] : buffer[i]);
    }
}

static void update_sgd(const oct_optim *optim, oct_param *param, float lr)
{
    const oct_optim_config *c = &optim->config;
    const sgd_factors factors = {.lr = lr,
                                 .momentum = c->momentum,
                                 .decay = param->decay ? c->weight_decay : 0.0F,
                                 .nesterov = c->nesterov};
    update_blocks(optim, param, update_sgd_block, &factors);
}

const oct_optim_type oct_optim_sgd = {
    .name = "sgd", .uses = " momentum nesterov ", .slot = {"slot0"}, .update = update_sgd};

/* What AdamW and LAMB compute with; of moments that begin at 0, t counts the updates. */
typedef struct moment_factors {
    float beta1, one_minus_beta1; /* beta and 1 - beta */
    float beta2, one_minus_beta2;
    float sqrt_correction2; /* sqrt(1 - beta2^t) */
    float eps;
    float decay_factor, step_size; /* AdamW: 1 - lr * weight_decay, lr / (1 - beta1^t) */
    float decay, inv_correction1;  /* LAMB: weight_decay, 1 / (1 - beta1^t) */
} moment_factors;

static moment_factors moment_factors_of(const oct_optim *optim, const oct_param *param, float lr)
{
    const oct_optim_config *c = &optim->config;
    const double beta1 = (double)c->beta1, beta2 = (double)c->beta2, t = (double)optim->updates;
    const float decay = param->decay ? c->weight_decay : 0.0F;
    return (moment_factors){.beta1 = c->beta1,
                            .one_minus_beta1 = (float)(1 - beta1),
                            .beta2 = c->beta2,
                            .one_minus_beta2 = (float)(1 - beta2),
                            .sqrt_correction2 = (float)sqrt(1 - pow(beta2, t)),
                            .eps = c->eps,
                            .decay_factor = (float)(1 - (double)lr * (double)decay),
                            .step_size = (float)((double)lr / (1 - pow(beta1, t))),
                            .decay = decay,
                            .inv_correction1 = (float)(1 / (1 - pow(beta1, t)))};
}

/* Adam with decoupled weight decay (Loshchilov and Hutter 2019), in the order of torch.optim.AdamW. Its state is the
 * first and the second moment. */
OCT_CLONES
static void update_adamw_block(const block *b, const void *factors)
{
    const moment_factors f = *(const moment_factors *)factors;
    float *restrict value = b->value, *restrict m = b->slot[0], *restrict v = b->slot[1];
    for (int64_t i = 0; i < b->n; i++) {
        float g = b->grad[i];
        m[i] = m[i] * f.beta1 + f.one_minus_beta1 * g;
        v[i] = v[i] * f.beta2 + f.one_minus_beta2 * g * g;
        float denominator = sqrtf(v[i]) / f.sqrt_correction2 + f.eps;
        value[i] = value[i] * f.decay_factor - f.step_size * m[i] / denominator;
    }
}

static void update_adamw(const oct_optim *optim, oct_param *param, float lr)
{
    const moment_factors factors = moment_factors_of(optim, param, lr);
    update_blocks(optim, param, update_adamw_block, &factors);
}

const oct_optim_type oct_optim_adamw = {.name = "adamw",
                                        .uses = " beta1 beta2 eps ",
                                        .slot = {"slot0", "slot1"},
                                        .update = update_adamw};

/* Layer-wise adaptive rate scaling for large batches (You, Gitman and Ginsburg 2017, algorithm 1): the step of a
 * layer's weights is a share of their norm.
 *
 *     ratio = trust * |w| / (|g| + decay * |w|)
 *     v = momentum * v + lr * ratio * (g + decay * w)
 *     w = w - v
 *
 * The ratio is 1 for what does not decay (biases, batch norm) and where a norm is 0. Its state is v. */
typedef struct lars_factors {
    float rate, momentum, decay;
} lars_factors;

OCT_CLONES
static void update_lars_block(const block *b, const void *factors)
{
    const lars_factors f = *(const lars_factors *)factors;
    float *restrict value = b->value, *restrict v = b->slot[0];
    for (int64_t i = 0; i < b->n; i++) {
        v[i] = f.momentum * v[i] + f.rate * (b->grad[i] + f.decay * value[i]);
        value[i] -= v[i];
    }
}

/* Updates a parameter by LARS: lr is scaled by the trust ratio trust * |value| / (|grad| + weight_decay * |value|). */
static void update_lars(const oct_optim *optim, oct_param *param, float lr)
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
    update_blocks(optim, param, update_lars_block, &factors);
}

const oct_optim_type oct_optim_lars = {
    .name = "lars", .uses = " momentum trust ", .slot = {"slot0"}, .update = update_lars};

/* Layer-wise adaptive moments for large batches (You et al. 2020, algorithm 2, with bias correction): Adam's
 * step of a layer's weights, scaled to their norm.
 *
 *     m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g * g
 *     r = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + decay * w
 *     w = w - lr * |w| / |r| * r
 *
 * |w| / |r| is 1 for what does not decay (biases, batch norm) and where a norm is 0. Its state is m and v. */
OCT_CLONES
static void update_lamb_moments(const block *b, const moment_factors *factors)
{
    moment_factors f = *factors;
    float *m = b->slot[0], *v = b->slot[1];
    for (int64_t i = 0; i < b->n; i++) {
        const float g = b->grad[i];
        m[i] = m[i] * f.beta1 + f.one_minus_beta1 * g;
        v[i] = v[i] * f.beta2 + f.one_minus_beta2 * g * g;
    }
}

/* Computes r. */
OCT_CLONES
static void lamb_directions(const block *b, const moment_factors *factors, float r[LAMB_BLOCK])
{
    moment_factors f = *factors;
    const float *m = b->slot[0], *v = b->slot[1];
    for (int64_t i = 0; i < b->n; i++)
        r[i] = m[i] * f.inv_correction1 / (sqrtf(v[i]) / f.sqrt_correction2 + f.eps) +
               f.decay * b->value[i];
}

OCT_CLONES
static void subtract_scaled(const block *b, const float *r, float rate)
{
    for (int64_t i = 0; i < b->n; i++)
        b->value[i] -= rate * r[i];
}

/* Updates LAMB's moments, and returns the sum of the squares of its update direction r, block by block in order. */
static double update_all_moments(const oct_optim *optim, const oct_param *param,
                                 const moment_factors *factors)
{
    const int64_t n = oct_numel(&param->value), blocks = (n + LAMB_BLOCK - 1) / LAMB_BLOCK;
    double sum = 0, sums[LAMB_BLOCKS];
    for (int64_t begin = 0; begin < blocks; begin += LAMB_BLOCKS) {
        const int64_t some = oct_min_i64(LAMB_BLOCKS, blocks - begin);
#pragma omp parallel for schedule(static) if (some > 1)
        for (int64_t i = 0; i < some; i++) {
            const block b = block_at(optim, param, (begin + i) * LAMB_BLOCK, LAMB_BLOCK);
            float r[LAMB_BLOCK];
            OCT_ASSERT(b.slot[0] && b.slot[1]);
            update_lamb_moments(&b, factors);
            lamb_directions(&b, factors, r);
            sums[i] = oct_square_sum(r, b.n);
        }
        for (int64_t i = 0; i < some; i++)
            sum += sums[i];
    }
    return sum;
}

/* Updates a parameter by LAMB: lr is scaled by the trust ratio |value| / |r|, where r is the direction of AdamW. */
static void update_lamb(const oct_optim *optim, oct_param *param, float lr)
{
    const moment_factors factors = moment_factors_of(optim, param, lr);
    const int64_t n = oct_numel(&param->value);
    const double sum = update_all_moments(optim, param, &factors);
    const double w = sqrt(oct_square_sum(oct_f32(&param->value), n));
    const double ratio = param->decay && w > 0 && sum > 0 ? w / sqrt(sum) : 1;
#pragma omp parallel for schedule(static) if (n > LAMB_BLOCK)
    for (int64_t first = 0; first < n; first += LAMB_BLOCK) {
        const block b = block_at(optim, param, first, LAMB_BLOCK);
        float r[LAMB_BLOCK];
        lamb_directions(&b, &factors, r);
        subtract_scaled(&b, r, (float)((double)lr * ratio));
    }
}

const oct_optim_type oct_optim_lamb = {
    .name = "lamb", .uses = " beta1 beta2 eps ", .slot = {"slot0", "slot1"}, .update = update_lamb};
