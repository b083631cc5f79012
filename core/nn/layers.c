/* Modules with parameters: convolutions, linear layers, slopes, parameters that are values themselves, norms. */
#include "core/nn/modules.h"

#include <float.h>
#include <stdio.h>

/* Adds the weight, and where bias is given a bias for its dimension 0; fails when they are more than can be counted. */
static oct_status add_weight(oct_module *self, const oct_shape *shape, oct_param **weight,
                             oct_param **bias)
{
    OCT_CHECK(oct_shape_numel(shape) > 0, OCT_USAGE,
              "a %s cannot have weights of shape %s: they are more than can be counted",
              self->type->name, oct_text_shape(shape).text);
    OCT_TRY(oct_module_add_param(self, "weight", *shape, true, weight));
    return bias ? oct_module_add_param(self, "bias", OCT_SHAPE(shape->dim[0]), false, bias)
                : OCT_OK;
}

/* Adds a weight without decay, all of whose values begin as `value`. */
static oct_status add_filled(oct_module *self, oct_shape shape, float value, oct_param **param)
{
    OCT_TRY(oct_module_add_param(self, "weight", shape, false, param));
    for (int64_t i = 0; i < oct_numel(&(*param)->value); i++)
        oct_f32(&(*param)->value)[i] = value;
    return OCT_OK;
}

/* Says "16 -> 32, 3x3, stride 2, padding 1, groups 4, bias", without what is the default. */
static void describe_conv(const oct_module *self, char *text, size_t size)
{
    const oct_conv2d_args *a = &((const oct_conv2d_module *)self)->args;
    snprintf(text, size, "%lld -> %lld, %s%s", (long long)a->in_channels,
             (long long)a->out_channels, oct_text_conv_geometry(&a->geometry).text,
             a->bias ? ", bias" : "");
}

static oct_status init_conv(oct_module *self)
{
    oct_conv2d_module *m = (oct_conv2d_module *)self;
    const oct_conv_geometry *g = &m->args.geometry;
    const int64_t in = m->args.in_channels, out = m->args.out_channels;
    const bool transposed = self->type == &oct_conv_transpose2d_type;
    OCT_CHECK(transposed ? oct_conv_transpose_geometry_fits(g) : oct_conv_geometry_fits(g),
              OCT_USAGE, "a %s cannot have windows of %s; %s", self->type->name,
              oct_text_conv_geometry(g).text,
              transposed ? oct_conv_transpose_geometry_rule : oct_conv_geometry_rule);
    OCT_CHECK(in % g->groups == 0 && out % g->groups == 0, OCT_USAGE,
              "a %s with %lld -> %lld channels cannot have %d groups; groups must divide both",
              self->type->name, (long long)in, (long long)out, g->groups);
    const oct_shape weight = OCT_SHAPE(out, g->kernel_h, g->kernel_w, in / g->groups);
    return add_weight(self, &weight, &m->weight, m->args.bias ? &m->bias : NULL);
}

OCT_ARGS_TYPE(conv2d, oct_conv2d_module, oct_conv2d_arg_list,
              oct_conv2d(cx, x[0], m->weight, m->bias, m->args.geometry), .inputs = 1,
              .describe = describe_conv, .init = init_conv);
OCT_ARGS_TYPE(conv_transpose2d, oct_conv2d_module, oct_conv_transpose2d_arg_list,
              oct_conv_transpose2d(cx, x[0], m->weight, m->bias, m->args.geometry), .inputs = 1,
              .describe = describe_conv, .init = init_conv);

OCT_MODULE_CREATE(conv2d, (int64_t in, int64_t out, oct_conv_geometry g, bool bias), in, out, g,
                  bias)
OCT_MODULE_CREATE(conv_transpose2d, (int64_t in, int64_t out, oct_conv_geometry g, bool bias), in,
                  out, g, bias)

static oct_status init_linear(oct_module *self)
{
    oct_linear_module *m = (oct_linear_module *)self;
    const oct_shape weight = OCT_SHAPE(m->args.out_features, m->args.in_features);
    return add_weight(self, &weight, &m->weight, m->args.bias ? &m->bias : NULL);
}

OCT_ARGS_TYPE(linear, oct_linear_module, oct_linear_arg_list,
              oct_linear(cx, x[0], m->weight, m->bias), .inputs = 1, .init = init_linear);

OCT_MODULE_CREATE(linear, (int64_t in, int64_t out, bool bias), in, out, bias)

static void describe_prelu(const oct_module *self, char *text, size_t size)
{
    const int64_t slopes = ((const oct_prelu_module *)self)->args.channels;
    snprintf(text, size, "%lld slope%s", (long long)slopes, slopes == 1 ? "" : "s");
}

static oct_status init_prelu(oct_module *self)
{
    oct_prelu_module *m = (oct_prelu_module *)self;
    return add_filled(self, OCT_SHAPE(m->args.channels), 0.25F, &m->weight);
}

OCT_ARGS_TYPE(prelu, oct_prelu_module, oct_prelu_arg_list, oct_prelu(cx, x[0], m->weight),
              .inputs = 1, .describe = describe_prelu, .init = init_prelu);

OCT_MODULE_CREATE(prelu, (int64_t channels), channels)

/* Says "(16, 64)". */
static void describe_parameter(const oct_module *self, char *text, size_t size)
{
    snprintf(text, size, "%s", oct_text_shape(&((const oct_parameter_module *)self)->args).text);
}

static oct_status init_parameter(oct_module *self)
{
    oct_parameter_module *m = (oct_parameter_module *)self;
    OCT_CHECK(m->args.ndim >= 1 && m->args.ndim < OCT_MAX_DIMS && oct_shape_numel(&m->args) >= 1,
              OCT_USAGE, "a %s cannot have the shape %s; it has 1 to %d dimensions of at least 1",
              self->type->name, oct_text_shape(&m->args).text, OCT_MAX_DIMS - 1);
    return add_filled(self, m->args, self->type == &oct_mul_parameter_type ? 1 : 0, &m->weight);
}

#define PARAMETER_MODULE(id)                                                                       \
    OCT_ARGS_TYPE(id, oct_parameter_module, oct_parameter_arg_list, oct_##id(cx, x[0], m->weight), \
                  .inputs = 1, .describe = describe_parameter, .init = init_parameter);            \
    oct_status oct_##id##_create(oct_module **m, oct_shape shape)                                  \
    {                                                                                              \
        return oct_module_make(m, &oct_##id##_type, &shape);                                       \
    }
PARAMETER_MODULE(parameter)
PARAMETER_MODULE(add_parameter)
PARAMETER_MODULE(mul_parameter)

oct_bn_args oct_batch_norm_call(const oct_batch_norm_module *m, bool training)
{
    return (oct_bn_args){.gamma = m->gamma,
                         .beta = m->beta,
                         .running_mean = m->running_mean,
                         .running_var = m->running_var,
                         .eps = m->args.eps,
                         .momentum = m->args.momentum,
                         .batch_stats = training && !m->frozen};
}

static void describe_batch_norm(const oct_module *self, char *text, size_t size)
{
    const oct_batch_norm_module *m = (const oct_batch_norm_module *)self;
    snprintf(text, size, "%lld channels%s", (long long)m->args.channels,
             m->frozen ? ", frozen" : "");
}

static oct_status init_batch_norm(oct_module *self)
{
    oct_batch_norm_module *m = (oct_batch_norm_module *)self;
    const oct_shape shape = OCT_SHAPE(m->args.channels);
    OCT_TRY(add_filled(self, shape, 1, &m->gamma));
    OCT_TRY(oct_module_add_param(self, "bias", shape, false, &m->beta));
    OCT_TRY(oct_module_add_buffer(self, "running_mean", OCT_F32, shape, &m->running_mean));
    OCT_TRY(oct_module_add_buffer(self, "running_var", OCT_F32, shape, &m->running_var));
    oct_module_limit_state(self, "running_var", (oct_value_range){0, (double)FLT_MAX});
    for (int64_t c = 0; c < m->args.channels; c++)
        m->running_var[c] = 1;
    return OCT_OK;
}

OCT_ARGS_TYPE(batch_norm, oct_batch_norm_module, oct_batch_norm_arg_list,
              oct_batch_norm(cx, x[0], (oct_bn_args[]){oct_batch_norm_call(m, self->training)}),
              .inputs = 1, .describe = describe_batch_norm, .init = init_batch_norm);

OCT_MODULE_CREATE(batch_norm, (int64_t channels), channels, 1e-5F, 0.1F)

/* Batch norms of a tree. */
typedef struct norm_counts {
    int64_t all, unseen;
} norm_counts;

/* Counts batch norms, and those whose running mean and variance are still the initial 0 and 1 (unseen). */
static oct_status count_norm(void *user, oct_module *module)
{
    norm_counts *n = user;
    if (module->type != &oct_batch_norm_type) return OCT_OK;
    const oct_batch_norm_module *m = (const oct_batch_norm_module *)module;
    bool seen = false;
    for (int64_t c = 0; c < m->args.channels; c++)
        seen = seen || m->running_mean[c] != 0 || m->running_var[c] != 1;
    n->all++;
    n->unseen += !seen;
    return OCT_OK;
}

int64_t oct_batch_norms_unseen(oct_module *root)
{
    norm_counts n = {0};
    const oct_status status = oct_module_walk(root, count_norm, &n);
    return status == OCT_OK && n.unseen == n.all ? n.all : 0;
}

static void describe_group_norm(const oct_module *self, char *text, size_t size)
{
    const oct_group_norm_args *a = &((const oct_group_norm_module *)self)->args;
    snprintf(text, size, "%lld channels, %lld groups", (long long)a->channels,
             (long long)a->groups);
}

static oct_status init_group_norm(oct_module *self)
{
    oct_group_norm_module *m = (oct_group_norm_module *)self;
    if (self->type == &oct_layer_norm_type) m->args.groups = 1;
    const oct_shape shape = OCT_SHAPE(m->args.channels);
    OCT_CHECK(m->args.channels % m->args.groups == 0, OCT_USAGE,
              "a %s cannot have %lld channels in %lld equal groups", self->type->name,
              (long long)m->args.channels, (long long)m->args.groups);
    OCT_TRY(add_filled(self, shape, 1, &m->gamma));
    return oct_module_add_param(self, "bias", shape, false, &m->beta);
}

OCT_ARGS_TYPE(layer_norm, oct_group_norm_module, oct_layer_norm_arg_list,
              oct_layer_norm(cx, x[0], m->gamma, m->beta, m->args.eps), .inputs = 1,
              .init = init_group_norm);
OCT_ARGS_TYPE(group_norm, oct_group_norm_module, oct_group_norm_arg_list,
              oct_group_norm(cx, x[0], m->gamma, m->beta, m->args.groups, m->args.eps), .inputs = 1,
              .describe = describe_group_norm, .init = init_group_norm);

OCT_MODULE_CREATE(layer_norm, (int64_t size, double eps), .channels = size, .eps = eps)
OCT_MODULE_CREATE(group_norm, (int64_t groups, int64_t channels, double eps), groups, channels, eps)
