/* See the header. A type and an address together distinguish a module of the float model from those that prepare makes:
 * it makes none that has parameters and is of a float type. */
#include "io/export/float_network.h"

#include "core/base/mem.h"
#include "core/nn/modules.h"
#include "io/weights/layout.h"

#include <string.h>

const oct_layer_array *oct_layer_array_find(const oct_float_layer *layer, const char *name)
{
    for (int i = 0; i < layer->num_arrays; i++)
        if (strcmp(layer->array[i].name, name) == 0) return &layer->array[i];
    return NULL;
}

bool oct_layer_passes(const char *type)
{
    static const char *const types[] = {"identity", "dropout", "quant_stub", "dequant_stub", NULL};
    return oct_list_has(types, type);
}

/* Does such a layer compute each number from one number of its input alone, so that their order does not matter? */
static bool is_pointwise(const char *type)
{
    static const char *const types[] = {"relu", "relu6", "clip", "add_scalar", "mul_scalar",
#define OCT_ELEMENTWISE(name, args) #name,
#include "core/op/elementwise_list.def"
#undef OCT_ELEMENTWISE
                                        NULL};
    return oct_layer_passes(type) || oct_list_has(types, type);
}

oct_layer_tensor oct_layer_view(const oct_layer_tensor *x, oct_shape shape)
{
    oct_layer_tensor y = {.shape = shape, .plane = x->plane};
    const oct_shape *from = &x->shape;
    if (from->ndim == 4 && from->dim[1] * from->dim[2] > 1 && from->dim[3] > 1) y.plane = *from;
    /* Only a row of numbers is left in another order. */
    if (shape.ndim != 2) y.plane = (oct_shape){0};
    return y;
}

oct_status oct_torch_array_make(oct_torch_array *made, const oct_float_layer *layer,
                                const oct_layer_array *array, const oct_layer_tensor *input)
{
    const oct_module_type *type = oct_module_type_find(layer->type);
    const oct_shape *plane = &input->plane;
    const bool flattened = plane->ndim == 4;
    const oct_feature_order image = {plane->dim[1], plane->dim[2], plane->dim[3]};
    const int64_t numel = oct_shape_numel(&array->shape);
    oct_conv_transpose2d_args args = {.geometry.groups = 1};
    *made = (oct_torch_array){0};
    if (type == &oct_conv_transpose2d_type)
        OCT_TRY(oct_args_read(&oct_conv_transpose2d_arg_list, layer->type, &layer->args, &args));
    const oct_torch_layout layout = oct_torch_layout_of(type, &array->shape, args.geometry.groups,
                                                        flattened ? &image : NULL, NULL);
    OCT_TRY(oct_alloc(&made->data, (size_t)numel, sizeof *made->data));
    made->ndim = layout.ndim;
    memcpy(made->dim, layout.dim, (size_t)layout.ndim * sizeof *layout.dim);
    /* The map says where in the file the module's numbers are, in their order. */
    oct_file_order order = {.dims = layout.map.dims, .offset = layout.map.offset};
    memcpy(order.size, layout.map.size, sizeof order.size);
    memcpy(order.stride, layout.map.stride, sizeof order.stride);
    oct_file_order_in(&order, array->data, made->data);
    return OCT_OK;
}

/* Adds a module that has parameters or buffers to the network's owners. */
static oct_status add_owner(void *user, oct_module *module)
{
    oct_float_network *network = user;
    if (module->num_params + module->num_buffers == 0) return OCT_OK;
    OCT_TRY(oct_grow(&network->owners, &network->cap_owners, network->num_owners + 1,
                     sizeof *network->owners));
    oct_float_network_owner *owner = &network->owners[network->num_owners++];
    *owner = (oct_float_network_owner){.module = module, .type = module->type};
    return oct_strdup(&owner->path, oct_module_path(module).text);
}

static int64_t owner_of(const oct_float_network *network, const oct_module *module)
{
    for (size_t i = 0; module && i < network->num_owners; i++)
        if (network->owners[i].module == module) return (int64_t)i;
    return -1;
}

/* Traces the model, and notes the owner of each call and where each tensor was an image before it was flattened. */
static oct_status find_layers(oct_float_network *network, oct_module *root,
                              const oct_example *example)
{
    static const char *const views[] = {"flatten", "reshape", "squeeze", NULL};
    oct_trace *trace = &network->trace;
    OCT_TRY(oct_trace_run(trace, root, example));
    OCT_TRY(oct_module_walk(root, add_owner, network));
    OCT_TRY(oct_alloc(&network->owner_of, trace->num_nodes, sizeof *network->owner_of));
    OCT_TRY(oct_alloc(&network->tensors, trace->num_values, sizeof *network->tensors));
    for (size_t i = 0; i < trace->num_values; i++)
        network->tensors[i].shape = trace->values[i].shape;
    for (size_t i = 0; i < trace->num_nodes; i++) {
        network->owner_of[i] = owner_of(network, trace->nodes[i].module);
        const oct_trace_node *node = &trace->nodes[i];
        if (node->num_inputs == 0) continue;
        /* What becomes of the order of numbers at this call. */
        const oct_layer_tensor *in = &network->tensors[node->input[0]];
        oct_layer_tensor *out = &network->tensors[node->output];
        if (node->num_inputs == 1 && is_pointwise(node->op)) *out = *in;
        if (oct_list_has(views, node->op)) *out = oct_layer_view(in, out->shape);
    }
    return OCT_OK;
}

oct_status oct_float_network_open(oct_float_network *network, oct_module *root,
                                  const oct_example *example)
{
    *network = (oct_float_network){.folded = 0};
    oct_status status = find_layers(network, root, example);
    if (status != OCT_OK) oct_float_network_close(network);
    return status;
}

void oct_float_network_close(oct_float_network *network)
{
    oct_trace_free(&network->trace);
    for (size_t i = 0; i < network->num_owners; i++)
        oct_free(&network->owners[i].path);
    OCT_FREE_ALL(&network->owners, &network->owner_of, &network->tensors);
    *network = (oct_float_network){.folded = 0};
}

/* Marks a module of the prepared model that was an owner before. */
static oct_status mark_owner(void *user, oct_module *module)
{
    oct_float_network *network = user;
    const int64_t i = owner_of(network, module);
    if (i >= 0) network->owners[i].found |= network->owners[i].type == module->type;
    return OCT_OK;
}

oct_status oct_float_network_find(oct_float_network *network, oct_module *root)
{
    OCT_TRY(oct_module_walk(root, mark_owner, network));
    for (size_t i = 0; i < network->num_owners; i++) {
        oct_float_network_owner *owner = &network->owners[i];
        if (owner->found) continue;
        if (strcmp(owner->type->name, "batch_norm") != 0)
            return oct_fail_add(OCT_PREPARE,
                                "%s: prepare has replaced this %s, so its parameters have no float "
                                "form; export a checkpoint of the float phase",
                                owner->path, owner->type->name);
        owner->module = NULL;
        network->folded++;
    }
    return OCT_OK;
}

static void add_array(oct_float_layer *layer, const char *name, const oct_tensor *tensor)
{
    if (tensor->dtype != OCT_F32 || layer->num_arrays == OCT_LAYER_ARRAYS) return;
    layer->array[layer->num_arrays++] =
        (oct_layer_array){.name = name, .shape = tensor->shape, .data = oct_f32(tensor)};
}

void oct_float_network_owner_layer(const oct_float_network *network, int64_t i,
                                   oct_float_layer *layer)
{
    const oct_float_network_owner *owner = &network->owners[i];
    const oct_module *module = owner->module;
    *layer =
        (oct_float_layer){.type = module ? owner->type->name : "identity", .name = owner->path};
    if (module) oct_module_args(module, &layer->args);
    for (size_t p = 0; module && p < module->num_params; p++)
        add_array(layer, module->params[p]->name, &module->params[p]->value);
    for (size_t b = 0; module && b < module->num_buffers; b++)
        add_array(layer, module->buffers[b].name, &module->buffers[b].tensor);
}
