/* The linear module multiplies by a weight and adds a bias. */
#include "core/nn/modules.h"
#include "core/nn/modules_impl.h"

#include <stdio.h>

static oct_tensor *linear_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    oct_linear_module *m = (oct_linear_module *)self;
    if (!oct_needs_inputs(cx, self, n, 1)) return NULL;
    return oct_linear(cx, x[0], m->weight, m->bias);
}

static void describe(const oct_module *self, char *text, size_t size)
{
    const oct_linear_module *m = (const oct_linear_module *)self;
    snprintf(text, size, "%lld -> %lld%s", (long long)m->in_features, (long long)m->out_features,
             m->bias ? ", bias" : "");
}

static void get_args(const oct_module *self, oct_op_args *args)
{
    const oct_linear_module *m = (const oct_linear_module *)self;
    *args = *OCT_OP_ARGS((double)m->in_features, (double)m->out_features, m->bias != NULL);
}

static oct_status create(oct_module **m, const oct_op_args *args)
{
    *m = NULL;
    int64_t a[3];
    OCT_TRY(oct_args_integers("linear", args, 3, a));
    return oct_linear_create(m, a[0], a[1], a[2] != 0);
}

const oct_module_type oct_linear_type = {.name = "linear",
                                         .forward = linear_forward,
                                         .describe = describe,
                                         .atomic = true,
                                         .create = create,
                                         .args = get_args};

oct_status oct_linear_create(oct_module **m, int64_t in, int64_t out, bool bias)
{
    *m = NULL;
    OCT_CHECK(in >= 1 && out >= 1, OCT_USAGE, "a linear layer cannot have %lld -> %lld features",
              (long long)in, (long long)out);
    const oct_shape weight = OCT_SHAPE(out, in);
    OCT_TRY(oct_module_create(m, &oct_linear_type, sizeof(oct_linear_module)));
    oct_linear_module *self = (oct_linear_module *)*m;
    self->in_features = in;
    self->out_features = out;
    return oct_add_weight(m, &weight, &self->weight, bias ? &self->bias : NULL);
}
