/* The batch norm module: batch statistics while it trains and is not frozen, running ones otherwise. */
#include "core/nn/modules.h"
#include "core/nn/modules_impl.h"

#include <stdio.h>

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    oct_batch_norm_module *m = (oct_batch_norm_module *)self;
    if (!oct_needs_inputs(cx, self, n, 1)) return NULL;
    return oct_batch_norm(cx, x[0],
                          &(oct_bn_args){.gamma = m->gamma,
                                         .beta = m->beta,
                                         .running_mean = m->running_mean,
                                         .running_var = m->running_var,
                                         .eps = m->eps,
                                         .momentum = m->momentum,
                                         .batch_stats = self->training && !m->frozen});
}

static void describe(const oct_module *self, char *text, size_t size)
{
    const oct_batch_norm_module *m = (const oct_batch_norm_module *)self;
    snprintf(text, size, "%lld channels%s", (long long)m->channels, m->frozen ? ", frozen" : "");
}

const oct_module_type oct_batch_norm_type = {
    .name = "batch_norm", .forward = forward, .describe = describe, .leaf = true};

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
    for (int64_t c = 0; c < channels; c++)
        oct_f32(&self->gamma->value)[c] = self->running_var[c] = 1.0F;
out:
    if (status != OCT_OK) oct_module_destroy(m);
    return status;
}
