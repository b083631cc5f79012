/* A network for other classes keeps all of its layers but the last one with weights. */
#include "core/base/int_math.h"
#include "core/nn/modules.h"
#include "io/onnx/build.h"

#include <string.h>

/* What may stand between the last layer and the output. */
typedef enum follower {
    NO_FOLLOWER,
    ANY_WIDTH,   /* does not know how many outputs there are */
    IN_SHAPE,    /* has their number as the last dimension of its shape */
    IN_CHANNELS, /* has a channel for each */
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
    {&oct_reshape_type, IN_SHAPE},       {&oct_add_parameter_type, IN_SHAPE},
    {&oct_mul_parameter_type, IN_SHAPE}, {&oct_conv2d_type, IN_CHANNELS},
};

static follower follower_kind(const oct_module_type *type)
{
    for (size_t i = 0; i < OCT_COUNT(followers); i++)
        if (followers[i].type == type) return followers[i].kind;
    return NO_FOLLOWER;
}

/* Reads the arguments of a module, oct_<type>_args. */
static void read_args(const oct_module *m, oct_args_buffer *args)
{
    oct_op_args row;
    oct_module_args(m, &row);
    oct_args_get(m->type->args, &row, args);
}

/* Where the arguments of a linear layer or a convolution without groups have the number of outputs; NULL: another
 * module. Groups would have to divide the new number. */
static int64_t *find_outputs(const oct_module *m, oct_args_buffer *args)
{
    oct_conv2d_args *conv = (oct_conv2d_args *)args;
    oct_linear_args *linear = (oct_linear_args *)args;
    if (m->type == &oct_linear_type) return &linear->out_features;
    return m->type == &oct_conv2d_type && conv->geometry.groups == 1 ? &conv->out_channels : NULL;
}

/* Changes `width` to the new number of outputs in the arguments of a module after the head; false: it cannot. */
static bool adapt_width(const oct_module *m, oct_args_buffer *args, int64_t width, int64_t outputs)
{
    oct_shape *shape = (oct_shape *)args; /* of a reshape or a parameter */
    oct_conv2d_args *conv = (oct_conv2d_args *)args;
    switch (follower_kind(m->type)) {
    case NO_FOLLOWER:
        break;
    case ANY_WIDTH:
        return true;
    case IN_SHAPE: {
        if (shape->ndim < (m->num_params > 0 ? 1 : 2))
            return false; /* a reshape has the batch in front */
        int64_t *last = &shape->dim[shape->ndim - 1];
        if (*last != width && (*last != 1 || m->num_params == 0)) return false;
        if (*last == width) *last = outputs;
        return true;
    }
    case IN_CHANNELS: { /* as the builder writes them: a convolution of one pixel and one channel */
        oct_conv_geometry *g = &conv->geometry;
        if (conv->in_channels != width || conv->out_channels != width || g->kernel_h != 1 ||
            g->kernel_w != 1 || g->groups != width || width <= 1)
            return false;
        conv->in_channels = conv->out_channels = outputs;
        g->groups = (int)oct_min_i64(outputs, INT32_MAX);
        return true;
    }
    }
    return false;
}

/* Replaces the module `old` of the network, and forgets the file's names of its parameters. */
static oct_status replace_layer(oct_module *network, oct_module *old, oct_module *new_layer)
{
    const oct_path_text path = oct_module_path(old);
    const oct_status status = oct_module_replace(&network, old, new_layer);
    if (status != OCT_OK) {
        oct_module_destroy(&new_layer);
        return status;
    }
    oct_network_forget_names(network, path.text);
    oct_module_destroy(&old);
    return OCT_OK;
}

/* Replaces a module after the head by one of the new width, with factors of 1 and addends of 0. */
static oct_status renew_follower(oct_module *network, oct_module *old, const oct_args_buffer *args)
{
    oct_module *new_layer = NULL;
    if (old->num_params == 0 && follower_kind(old->type) == ANY_WIDTH) return OCT_OK;
    OCT_TRY(oct_module_make(&new_layer, old->type, args));
    for (size_t i = 0; i < new_layer->num_params; i++) {
        oct_tensor *value = &new_layer->params[i]->value;
        const bool factor =
            old->type != &oct_add_parameter_type && strcmp(new_layer->params[i]->name, "bias") != 0;
        for (int64_t k = 0; k < oct_numel(value); k++)
            oct_f32(value)[k] = factor ? 1.0F : 0.0F;
        new_layer->params[i]->frozen = old->params[i]->frozen;
    }
    return replace_layer(network, old, new_layer);
}

static oct_status refuse_layer(const oct_module *m, int64_t outputs)
{
    return oct_fail(OCT_PREPARE,
                    "its outputs come from %s, a %s, by no way back to a linear layer or a "
                    "convolution of its own that could be made anew; export it with %lld outputs",
                    oct_module_path(m).text, m->type->name, (long long)outputs);
}

/* Goes from the output back to the layer that sets its width, over modules that can be adapted; *head: its result. */
static oct_status find_head(const oct_module *network, const oct_onnx_built *built, int64_t outputs,
                            int32_t *head)
{
    const int64_t width = built->output.dim[built->output.ndim - 1];
    for (*head = built->last;;) {
        oct_args_buffer args;
        const oct_module *m = oct_network_module(network, *head);
        read_args(m, &args);
        const int64_t *count = find_outputs(m, &args);
        if (count && *count == width && !oct_network_is_shared(network, *head)) return OCT_OK;
        if (!adapt_width(m, &args, width, outputs)) return refuse_layer(m, outputs);
        *head = oct_network_sole_input(network, *head);
        if (*head < 0 || !oct_network_module(network, *head)) return refuse_layer(m, outputs);
    }
}

oct_status oct_onnx_new_head(oct_module *network, oct_onnx_built *built, int64_t outputs,
                             uint64_t seed)
{
    int64_t *width = &built->output.dim[built->output.ndim - 1];
    oct_module *new_layer = NULL;
    oct_args_buffer args;
    int32_t head;
    OCT_TRY(find_head(network, built, outputs, &head));
    for (int32_t value = built->last; value != head;) {
        const int32_t before = oct_network_sole_input(network, value);
        oct_module *m = oct_network_module(network, value);
        read_args(m, &args);
        (void)adapt_width(m, &args, *width, outputs);
        OCT_TRY(renew_follower(network, m, &args));
        value = before;
    }
    oct_module *old = oct_network_module(network, head);
    read_args(old, &args);
    *find_outputs(old, &args) = outputs;
    OCT_TRY(oct_module_make(&new_layer, old->type, &args));
    const oct_status status = oct_init_parameters(new_layer, seed);
    if (status != OCT_OK) {
        oct_module_destroy(&new_layer);
        return status;
    }
    OCT_TRY(replace_layer(network, old, new_layer));
    *width = outputs;
    return OCT_OK;
}
