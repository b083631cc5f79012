/* The batch norm module uses batch statistics while it trains and is not frozen, running ones
 * otherwise. */
#include "core/nn/modules.h"
#include "core/nn/modules_impl.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

oct_bn_args oct_batch_norm_args(const oct_batch_norm_module *m, bool training)
{
    return (oct_bn_args){.gamma = m->gamma,
                         .beta = m->beta,
                         .running_mean = m->running_mean,
                         .running_var = m->running_var,
                         .eps = m->eps,
                         .momentum = m->momentum,
                         .batch_stats = training && !m->frozen};
}

static oct_tensor *batch_norm_forward(oct_context *cx, oct_module *self, oct_tensor *const *x,
                                      int n)
{
    oct_batch_norm_module *m = (oct_batch_norm_module *)self;
    if (!oct_needs_inputs(cx, self, n, 1)) return NULL;
    const oct_bn_args args = oct_batch_norm_args(m, self->training);
    return oct_batch_norm(cx, x[0], &args);
}

static void describe(const oct_module *self, char *text, size_t size)
{
    const oct_batch_norm_module *m = (const oct_batch_norm_module *)self;
    snprintf(text, size, "%lld channels%s", (long long)m->channels, m->frozen ? ", frozen" : "");
}

static void get_args(const oct_module *self, oct_op_args *args)
{
    const oct_batch_norm_module *m = (const oct_batch_norm_module *)self;
    *args = *OCT_OP_ARGS((double)m->channels, (double)m->eps, (double)m->momentum);
}

/* The arguments are channels, eps and momentum. */
static oct_status create(oct_module **m, const oct_op_args *args)
{
    *m = NULL;
    OCT_TRY(oct_args_count("batch_norm", args, 3));
    float eps = (float)args->value[1], momentum = (float)args->value[2];
    OCT_CHECK(eps > 0 && isfinite(eps) && momentum >= 0 && momentum <= 1, OCT_USAGE,
              "a batch_norm cannot have eps %g and momentum %g; eps must be above 0 and the "
              "momentum 0 to 1",
              (double)eps, (double)momentum);
    int64_t channels;
    OCT_TRY(oct_args_integers("batch_norm", OCT_OP_ARGS(args->value[0]), 1, &channels));
    OCT_TRY(oct_batch_norm_create(m, channels));
    ((oct_batch_norm_module *)*m)->eps = eps;
    ((oct_batch_norm_module *)*m)->momentum = momentum;
    return OCT_OK;
}

const oct_module_type oct_batch_norm_type = {.name = "batch_norm",
                                             .forward = batch_norm_forward,
                                             .describe = describe,
                                             .atomic = true,
                                             .create = create,
                                             .args = get_args};

oct_status oct_batch_norm_create(oct_module **m, int64_t channels)
{
    *m = NULL;
    OCT_CHECK(channels >= 1, OCT_USAGE, "a batch_norm cannot have %lld channels",
              (long long)channels);
    OCT_TRY(oct_module_create(m, &oct_batch_norm_type, sizeof(oct_batch_norm_module)));
    oct_batch_norm_module *self = (oct_batch_norm_module *)*m;
    self->channels = channels;
    self->eps = 1e-5F;
    self->momentum = 0.1F;
    oct_shape shape = OCT_SHAPE(channels);
    oct_status status;
    OCT_TRY_OUT(oct_module_add_param(*m, "weight", shape, false, &self->gamma));
    OCT_TRY_OUT(oct_module_add_param(*m, "bias", shape, false, &self->beta));
    OCT_TRY_OUT(oct_module_add_buffer(*m, "running_mean", OCT_F32, shape, &self->running_mean));
    OCT_TRY_OUT(oct_module_add_buffer(*m, "running_var", OCT_F32, shape, &self->running_var));
    oct_module_limit_state(*m, "running_var", (oct_value_range){0, (double)FLT_MAX});
    for (int64_t c = 0; c < channels; c++)
        oct_f32(&self->gamma->value)[c] = self->running_var[c] = 1.0F;
out:
    return oct_module_made(m, status);
}

/* Batch norms of a tree. */
typedef struct norms {
    int64_t all, unseen;
} norms;

static oct_status count_norm(void *user, oct_module *module)
{
    norms *n = user;
    if (module->type != &oct_batch_norm_type) return OCT_OK;
    const oct_batch_norm_module *m = (const oct_batch_norm_module *)module;
    bool seen = false;
    for (int64_t c = 0; c < m->channels; c++)
        seen = seen || m->running_mean[c] != 0 || m->running_var[c] != 1;
    n->all++;
    n->unseen += !seen;
    return OCT_OK;
}

int64_t oct_batch_norms_unseen(oct_module *root)
{
    norms n = {0};
    const oct_status status = oct_module_walk(root, count_norm, &n);
    return status == OCT_OK && n.unseen == n.all ? n.all : 0;
}
