/* See the header. A type and an address together distinguish a module of the float model from those that prepare makes:
 * it makes none that has parameters and is of a float type. */
#include "io/export/float_network.h"

#include "core/base/mem.h"

#include <string.h>

static oct_status add_owner(void *user, oct_module *module)
{
    oct_float_network *network = user;
    char path[256];
    if (module->num_params + module->num_buffers == 0) return OCT_OK;
    OCT_TRY(oct_grow(&network->owners, &network->cap_owners, network->num_owners + 1,
                     sizeof *network->owners));
    oct_float_network_owner *owner = &network->owners[network->num_owners++];
    *owner = (oct_float_network_owner){.module = module, .type = module->type};
    return oct_strdup(&owner->path, oct_module_path(module, path));
}

static int64_t owner_of(const oct_float_network *network, const oct_module *module)
{
    for (size_t i = 0; module && i < network->num_owners; i++)
        if (network->owners[i].module == module) return (int64_t)i;
    return -1;
}

/* What becomes of the order of numbers at one call. */
static void follow(oct_float_network *network, const oct_trace_node *node)
{
    static const char *const views[] = {"flatten", "reshape", "squeeze"};
    const oct_layer_tensor *in = &network->tensors[node->input[0]];
    oct_layer_tensor *out = &network->tensors[node->output];
    if (node->num_inputs == 1 && oct_layer_is_pointwise(node->op)) *out = *in;
    for (size_t i = 0; i < OCT_COUNT(views); i++)
        if (strcmp(node->op, views[i]) == 0) *out = oct_layer_view(in, out->shape);
}

static oct_status find_layers(oct_float_network *network, oct_module *root,
                              const oct_example *example)
{
    oct_trace *trace = &network->trace;
    OCT_TRY(oct_trace_run(trace, root, example));
    OCT_TRY(oct_module_walk(root, add_owner, network));
    OCT_TRY(oct_alloc(&network->owner_of, trace->num_nodes, sizeof *network->owner_of));
    OCT_TRY(oct_alloc(&network->tensors, trace->num_values, sizeof *network->tensors));
    for (size_t i = 0; i < trace->num_values; i++)
        network->tensors[i].shape = trace->values[i].shape;
    for (size_t i = 0; i < trace->num_nodes; i++) {
        network->owner_of[i] = owner_of(network, trace->nodes[i].module);
        if (trace->nodes[i].num_inputs > 0) follow(network, &trace->nodes[i]);
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
    oct_free(&network->owners);
    oct_free(&network->owner_of);
    oct_free(&network->tensors);
    *network = (oct_float_network){.folded = 0};
}

/* Walks over what the model has become and marks the owners that are there. */
typedef struct search {
    oct_float_network *network;
    bool *there;
} search;

static oct_status mark(void *user, oct_module *module)
{
    const search *s = user;
    const int64_t i = owner_of(s->network, module);
    if (i >= 0 && s->network->owners[i].type == module->type) s->there[i] = true;
    return OCT_OK;
}

oct_status oct_float_network_find(oct_float_network *network, oct_module *root)
{
    search s = {.network = network};
    OCT_TRY(oct_alloc(&s.there, network->num_owners, sizeof *s.there));
    oct_status status = oct_module_walk(root, mark, &s);
    for (size_t i = 0; status == OCT_OK && i < network->num_owners; i++) {
        oct_float_network_owner *owner = &network->owners[i];
        if (s.there[i]) continue;
        if (strcmp(owner->type->name, "batch_norm") == 0) {
            owner->module = NULL;
            network->folded++;
        } else {
            status = oct_fail_add(OCT_PREPARE,
                                  "%s: prepare has replaced this %s, so its parameters have no "
                                  "float form; export a checkpoint of the float phase",
                                  owner->path, owner->type->name);
        }
    }
    oct_free(&s.there);
    return status;
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
    if (module && module->type->args) module->type->args(module, &layer->args);
    for (size_t p = 0; module && p < module->num_params; p++)
        add_array(layer, module->params[p]->name, &module->params[p]->value);
    for (size_t b = 0; module && b < module->num_buffers; b++)
        add_array(layer, module->buffers[b].name, &module->buffers[b].tensor);
}

void oct_float_network_layer(const oct_float_network *network, int64_t i, oct_float_layer *layer)
{
    const oct_trace_node *node = &network->trace.nodes[i];
    if (network->owner_of[i] >= 0)
        oct_float_network_owner_layer(network, network->owner_of[i], layer);
    else
        *layer = (oct_float_layer){.type = node->op, .name = node->path, .args = node->args};
}

bool oct_float_network_is_first_call(const oct_float_network *network, int64_t i)
{
    for (int64_t k = 0; k < i; k++)
        if (network->owner_of[k] == network->owner_of[i]) return false;
    return true;
}
