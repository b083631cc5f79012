/* The modules layer_norm and group_norm. */
#include "core/nn/modules.h"
#include "core/nn/modules_impl.h"

#include <math.h>
#include <stdio.h>

static oct_tensor *layer_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const oct_group_norm_module *m = (const oct_group_norm_module *)self;
    if (!oct_needs_inputs(cx, self, n, 1)) return NULL;
    return oct_layer_norm(cx, x[0], m->gamma, m->beta, m->eps);
}

static oct_tensor *group_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const oct_group_norm_module *m = (const oct_group_norm_module *)self;
    if (!oct_needs_inputs(cx, self, n, 1)) return NULL;
    const oct_group_norm_args args = {m->gamma, m->beta, m->groups, m->eps};
    return oct_group_norm(cx, x[0], &args);
}

static void layer_describe(const oct_module *self, char *text, size_t size)
{
    snprintf(text, size, "%lld channels",
             (long long)((const oct_group_norm_module *)self)->channels);
}

static void group_describe(const oct_module *self, char *text, size_t size)
{
    const oct_group_norm_module *m = (const oct_group_norm_module *)self;
    snprintf(text, size, "%lld channels, %lld groups", (long long)m->channels,
             (long long)m->groups);
}

static void layer_args(const oct_module *self, oct_op_args *args)
{
    const oct_group_norm_module *m = (const oct_group_norm_module *)self;
    *args = *OCT_OP_ARGS((double)m->channels, m->eps);
}

static void group_args(const oct_module *self, oct_op_args *args)
{
    const oct_group_norm_module *m = (const oct_group_norm_module *)self;
    *args = *OCT_OP_ARGS((double)m->groups, (double)m->channels, m->eps);
}

static oct_status layer_from(oct_module **m, const oct_op_args *args)
{
    *m = NULL;
    int64_t size;
    OCT_TRY(oct_args_count("layer_norm", args, 2));
    OCT_TRY(oct_args_integers("layer_norm", OCT_OP_ARGS(args->value[0]), 1, &size));
    return oct_layer_norm_create(m, size, args->value[1]);
}

static oct_status group_from(oct_module **m, const oct_op_args *args)
{
    *m = NULL;
    int64_t a[2];
    OCT_TRY(oct_args_count("group_norm", args, 3));
    OCT_TRY(oct_args_integers("group_norm", OCT_OP_ARGS(args->value[0], args->value[1]), 2, a));
    return oct_group_norm_create(m, a[0], a[1], args->value[2]);
}

const oct_module_type oct_layer_norm_type = {.name = "layer_norm",
                                             .forward = layer_forward,
                                             .describe = layer_describe,
                                             .atomic = true,
                                             .create = layer_from,
                                             .args = layer_args};
const oct_module_type oct_group_norm_type = {.name = "group_norm",
                                             .forward = group_forward,
                                             .describe = group_describe,
                                             .atomic = true,
                                             .create = group_from,
                                             .args = group_args};

static oct_status create(oct_module **m, const oct_module_type *type,
                         const oct_group_norm_module *like)
{
    *m = NULL;
    const oct_shape shape = OCT_SHAPE(like->channels);
    oct_status status;
    OCT_CHECK(like->groups >= 1 && like->channels >= 1 && like->channels % like->groups == 0,
              OCT_USAGE, "a %s cannot have %lld channels in %lld equal groups", type->name,
              (long long)like->channels, (long long)like->groups);
    OCT_CHECK(like->eps > 0 && isfinite(like->eps), OCT_USAGE,
              "a %s cannot have eps %g; it must be above 0", type->name, like->eps);
    OCT_TRY(oct_module_create(m, type, sizeof(oct_group_norm_module)));
    oct_group_norm_module *self = (oct_group_norm_module *)*m;
    self->groups = like->groups;
    self->channels = like->channels;
    self->eps = like->eps;
    OCT_TRY_OUT(oct_module_add_param(*m, "weight", shape, false, &self->gamma));
    OCT_TRY_OUT(oct_module_add_param(*m, "bias", shape, false, &self->beta));
    for (int64_t c = 0; c < like->channels; c++)
        oct_f32(&self->gamma->value)[c] = 1.0F;
out:
    return oct_module_made(m, status);
}

oct_status oct_layer_norm_create(oct_module **m, int64_t size, double eps)
{
    return create(m, &oct_layer_norm_type,
                  &(oct_group_norm_module){.groups = 1, .channels = size, .eps = eps});
}

oct_status oct_group_norm_create(oct_module **m, int64_t groups, int64_t channels, double eps)
{
    return create(m, &oct_group_norm_type,
                  &(oct_group_norm_module){.groups = groups, .channels = channels, .eps = eps});
}
