/* The module prelu learns the slope below 0. */
#include "core/nn/modules.h"
#include "core/nn/modules_impl.h"

#include <stdio.h>

static oct_tensor *prelu_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const oct_prelu_module *m = (const oct_prelu_module *)self;
    return oct_needs_inputs(cx, self, n, 1) ? oct_prelu(cx, x[0], m->weight) : NULL;
}

static void describe(const oct_module *self, char *text, size_t size)
{
    const oct_prelu_module *m = (const oct_prelu_module *)self;
    snprintf(text, size, "%lld slope%s", (long long)m->channels, m->channels == 1 ? "" : "s");
}

static void get_args(const oct_module *self, oct_op_args *args)
{
    *args = *OCT_OP_ARGS((double)((const oct_prelu_module *)self)->channels);
}

static oct_status create(oct_module **m, const oct_op_args *args)
{
    *m = NULL;
    int64_t a[1];
    OCT_TRY(oct_args_integers("prelu", args, 1, a));
    return oct_prelu_create(m, a[0]);
}

const oct_module_type oct_prelu_type = {.name = "prelu",
                                        .forward = prelu_forward,
                                        .describe = describe,
                                        .atomic = true,
                                        .create = create,
                                        .args = get_args};

oct_status oct_prelu_create(oct_module **m, int64_t channels)
{
    *m = NULL;
    OCT_CHECK(channels >= 1, OCT_USAGE, "a prelu cannot have %lld channels", (long long)channels);
    const oct_shape shape = OCT_SHAPE(channels);
    OCT_TRY(oct_module_create(m, &oct_prelu_type, sizeof(oct_prelu_module)));
    oct_prelu_module *self = (oct_prelu_module *)*m;
    self->channels = channels;
    OCT_TRY(oct_module_made(m, oct_module_add_param(*m, "weight", shape, false, &self->weight)));
    for (int64_t c = 0; c < channels; c++)
        oct_f32(&self->weight->value)[c] = 0.25F;
    return OCT_OK;
}
