/* A network for other classes keeps all of its layers but the last. */
#include "core/nn/modules.h"
#include "io/onnx/build.h"

/* Which argument of a layer says how many outputs it has; -1: it is no such layer. */
static int outputs_at(const oct_module_type *type)
{
    return type == &oct_linear_type || type == &oct_conv2d_type ? 1 : -1;
}

/* The groups of a convolution would have to divide its outputs. */
static bool has_groups(const oct_module_type *type, const oct_op_args *args)
{
    return type == &oct_conv2d_type && args->value[args->count - 2] > 1;
}

oct_status oct_onnx_new_head(oct_module *network, oct_onnx_built *built, int64_t outputs,
                             uint64_t seed)
{
    oct_module *last = oct_network_module(network, built->last), *made = NULL;
    int64_t *width = &built->output.dim[built->output.ndim - 1];
    char path[256];
    const int at = outputs_at(last->type);
    oct_op_args args = {0};
    if (last->type->args) last->type->args(last, &args);
    oct_module_path(last, path);
    OCT_CHECK(at >= 0 && (int64_t)args.value[at] == *width && !has_groups(last->type, &args),
              OCT_PREPARE,
              "its outputs come from %s, a %s, and only a linear layer or a convolution can be "
              "made anew; export it with %lld outputs",
              path, last->type->name, (long long)outputs);
    args.value[at] = (double)outputs;
    OCT_TRY(last->type->create(&made, &args));
    oct_status status = oct_init_parameters(made, seed);
    if (status == OCT_OK) status = oct_module_replace(&network, last, made);
    if (status != OCT_OK) {
        oct_module_destroy(&made);
        return status;
    }
    oct_module_destroy(&last);
    *width = outputs;
    oct_network_forget_names(network, path);
    return OCT_OK;
}
