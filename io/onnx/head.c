/* A network for other classes keeps all of its layers but the last one with weights. */
#include "core/nn/modules.h"
#include "io/onnx/build.h"

#include <string.h>

/* What may stand between the last layer and the output. */
typedef enum follower {
    NOT_ONE,
    ANY_WIDTH,   /* does not know how many outputs there are */
    OF_WIDTH,    /* has their number as its last argument */
    OF_CHANNELS, /* as three of them */
} follower;

static const struct {
    const oct_module_type *type;
    follower kind;
} followers[] = {
    {&oct_relu_type, ANY_WIDTH},         {&oct_relu6_type, ANY_WIDTH},
    {&oct_clip_type, ANY_WIDTH},         {&oct_softmax_type, ANY_WIDTH},
    {&oct_logarithm_type, ANY_WIDTH},    {&oct_sigmoid_type, ANY_WIDTH},
    {&oct_tanh_type, ANY_WIDTH},         {&oct_add_scalar_type, ANY_WIDTH},
    {&oct_mul_scalar_type, ANY_WIDTH},   {&oct_dropout_type, ANY_WIDTH},
    {&oct_flatten_type, ANY_WIDTH},      {&oct_global_avg_pool_type, ANY_WIDTH},
    {&oct_avg_pool_type, ANY_WIDTH},     {&oct_max_pool_type, ANY_WIDTH},
    {&oct_interpolate_type, ANY_WIDTH},  {&oct_mean_type, ANY_WIDTH},
    {&oct_reshape_type, OF_WIDTH},       {&oct_add_parameter_type, OF_WIDTH},
    {&oct_mul_parameter_type, OF_WIDTH}, {&oct_conv2d_type, OF_CHANNELS},
};

enum { CONV_IN = 0, CONV_OUT = 1, CONV_HEIGHT = 2, CONV_WIDTH = 3, GROUPS_FROM_END = 2 };

static follower kind_of(const oct_module_type *type)
{
    for (size_t i = 0; i < OCT_COUNT(followers); i++)
        if (followers[i].type == type) return followers[i].kind;
    return NOT_ONE;
}

static void args_of(const oct_module *m, oct_op_args *args)
{
    *args = (oct_op_args){0};
    if (m->type->args) m->type->args(m, args);
}

/* The layer that has the outputs. The groups of a convolution would have to divide them. */
static bool is_head(const oct_module *m, const oct_op_args *args, double width)
{
    const bool conv = m->type == &oct_conv2d_type;
    if (!conv && m->type != &oct_linear_type) return false;
    return args->value[1] == width && (!conv || args->value[args->count - GROUPS_FROM_END] == 1);
}

/* Writes the other number of outputs into the arguments of what follows; false: it is nothing that may. */
static bool adapt(const oct_module *m, oct_op_args *args, double width, double outputs)
{
    double *last = args->count > 0 ? &args->value[args->count - 1] : NULL;
    switch (kind_of(m->type)) {
    case NOT_ONE:
        break;
    case ANY_WIDTH:
        return true;
    case OF_WIDTH:
        if (!last || (*last != width && (*last != 1 || m->num_params == 0))) return false;
        if (*last == width) *last = outputs;
        return true;
    case OF_CHANNELS: /* as the builder writes them: a convolution of one pixel and one channel */
        if (args->value[CONV_IN] != width || args->value[CONV_OUT] != width ||
            args->value[CONV_HEIGHT] != 1 || args->value[CONV_WIDTH] != 1 ||
            args->value[args->count - GROUPS_FROM_END] != width || !(width > 1))
            return false;
        args->value[CONV_IN] = args->value[CONV_OUT] = outputs;
        args->value[args->count - GROUPS_FROM_END] = outputs;
        return true;
    }
    return false;
}

/* Puts `made` where `old` stands. */
static oct_status replace_layer(oct_module *network, oct_module *old, oct_module *made)
{
    char path[256];
    oct_module_path(old, path);
    const oct_status status = oct_module_replace(&network, old, made);
    if (status != OCT_OK) {
        oct_module_destroy(&made);
        return status;
    }
    oct_network_forget_names(network, path);
    oct_module_destroy(&old);
    return OCT_OK;
}

/* Factors are 1, addends 0. */
static oct_status renew_follower(oct_module *network, oct_module *old, const oct_op_args *args)
{
    oct_module *made = NULL;
    if (old->num_params == 0 && kind_of(old->type) == ANY_WIDTH) return OCT_OK;
    OCT_TRY(old->type->create(&made, args));
    for (size_t i = 0; i < made->num_params; i++) {
        oct_tensor *value = &made->params[i]->value;
        const bool factor =
            old->type != &oct_add_parameter_type && strcmp(made->params[i]->name, "bias") != 0;
        for (int64_t k = 0; k < oct_numel(value); k++)
            oct_f32(value)[k] = factor ? 1.0F : 0.0F;
        made->params[i]->frozen = old->params[i]->frozen;
    }
    return replace_layer(network, old, made);
}

static oct_status refuse_layer(const oct_module *m, int64_t outputs)
{
    char path[256];
    return oct_fail(OCT_PREPARE,
                    "its outputs come from %s, a %s, by no way back to a linear layer or a "
                    "convolution of its own that could be made anew; export it with %lld outputs",
                    oct_module_path(m, path), m->type->name, (long long)outputs);
}

/* Goes back from the output to the layer that has them; *head: the value that it makes. */
static oct_status find_head(const oct_module *network, const oct_onnx_built *built, int64_t outputs,
                            int32_t *head)
{
    const double width = (double)built->output.dim[built->output.ndim - 1];
    for (*head = built->last;;) {
        oct_op_args args;
        const oct_module *m = oct_network_module(network, *head);
        args_of(m, &args);
        if (is_head(m, &args, width) && !oct_network_is_shared(network, *head)) return OCT_OK;
        if (!adapt(m, &args, width, (double)outputs)) return refuse_layer(m, outputs);
        *head = oct_network_before(network, *head);
        if (*head < 0 || !oct_network_module(network, *head)) return refuse_layer(m, outputs);
    }
}

oct_status oct_onnx_new_head(oct_module *network, oct_onnx_built *built, int64_t outputs,
                             uint64_t seed)
{
    int64_t *width = &built->output.dim[built->output.ndim - 1];
    oct_module *made = NULL;
    oct_op_args args;
    int32_t head;
    OCT_TRY(find_head(network, built, outputs, &head));
    for (int32_t value = built->last; value != head;) {
        const int32_t before = oct_network_before(network, value);
        oct_module *m = oct_network_module(network, value);
        args_of(m, &args);
        (void)adapt(m, &args, (double)*width, (double)outputs);
        OCT_TRY(renew_follower(network, m, &args));
        value = before;
    }
    oct_module *old = oct_network_module(network, head);
    args_of(old, &args);
    args.value[1] = (double)outputs;
    OCT_TRY(old->type->create(&made, &args));
    const oct_status status = oct_init_parameters(made, seed);
    if (status != OCT_OK) {
        oct_module_destroy(&made);
        return status;
    }
    OCT_TRY(replace_layer(network, old, made));
    *width = outputs;
    return OCT_OK;
}
