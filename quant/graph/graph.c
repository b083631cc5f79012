/* The prepared graph as a value: what is asked of it, its generated modules and its quantizers.
 * graph_build.c makes it from a trace, graph_run.c runs it. */
#include "quant/graph/graph.h"

#include "core/base/mem.h"

#include <stdio.h>
#include <string.h>

static const void *const methods[] = {OCT_METHOD_LIST(OCT_WORD_ITEM)};
const oct_registry oct_prepare_method_table = OCT_REGISTRY("a method", methods);

const char *oct_method_name(oct_prepare_method method)
{
    return oct_registry_name(&oct_prepare_method_table, method);
}

void oct_graph_destroy(oct_graph **graph)
{
    oct_graph *self = *graph;
    if (!self) return;
    for (size_t i = 0; i < self->num_nodes; i++) {
        oct_graph_node *node = &self->nodes[i];
        OCT_FREE_ALL(&node->op, &node->path, &node->fusion, &node->note, &node->decider);
    }
    for (size_t i = 0; i < self->num_blocks; i++)
        oct_free(&self->blocks[i].name);
    for (size_t i = 0; i < self->num_slots; i++)
        oct_free(&self->slots[i]);
    OCT_FREE_ALL(&self->nodes, &self->values, &self->blocks, &self->carried);
    for (int mode = 0; mode < OCT_MODES; mode++)
        oct_free(&self->scopes[mode]);
    oct_free(&self->slots);
    oct_free(graph);
}

/* The output of a node that was fused away is its first input in this mode; a value of a block's later run is that of the
 * first run. */
int64_t oct_graph_resolve(const oct_graph *graph, int64_t value, oct_mode mode)
{
    while (graph->values[value].alias != value) {
        const oct_graph_node *node = &graph->nodes[graph->values[value].producer];
        value = node->output == value ? node->called_input[mode][0] : graph->values[value].alias;
    }
    return value;
}

int64_t oct_graph_input(const oct_graph *graph, const oct_graph_node *node, int i, oct_mode mode)
{
    return oct_graph_resolve(graph, node->called_input[mode][node->operand[i]], mode);
}

oct_mode oct_graph_mode_of(const oct_graph_node *node)
{
    return node->in[OCT_MODE_EVALUATION] ? OCT_MODE_EVALUATION : OCT_MODE_TRAINING;
}

bool oct_graph_reads(const oct_graph_node *node, int64_t value, oct_mode mode)
{
    for (int k = 0; node->in[mode] && k < node->num_inputs; k++)
        if (node->called_input[mode][k] == value) return true;
    return false;
}

int oct_graph_find_block(const oct_graph *graph, const oct_module *module, const char *name)
{
    for (size_t i = 0; i < graph->num_blocks; i++)
        if (graph->blocks[i].module == module && strcmp(graph->blocks[i].name, name) == 0)
            return (int)i;
    return -1;
}

oct_status oct_graph_add_carried_use(oct_graph *graph, oct_graph_carried_use use)
{
    if (graph->nodes[use.node].called_input[OCT_MODE_EVALUATION][use.input] == use.value)
        return OCT_OK;
    for (size_t i = 0; i < graph->num_carried; i++) {
        const oct_graph_carried_use *known = &graph->carried[i];
        if (known->node == use.node && known->input == use.input && known->value == use.value)
            return OCT_OK;
    }
    OCT_TRY(oct_grow(&graph->carried, &graph->cap_carried, graph->num_carried + 1,
                     sizeof *graph->carried));
    graph->carried[graph->num_carried++] = use;
    return OCT_OK;
}

oct_call_name oct_call_text(const char *op, const char *path, bool hook)
{
    oct_call_name name;
    if (op)
        snprintf(name.text, sizeof name.text, "the op '%s'%s%s", op,
                 hook    ? " in a hook of "
                 : *path ? " in "
                         : "",
                 path);
    else
        snprintf(name.text, sizeof name.text, "%s", path);
    return name;
}

oct_call_name oct_graph_node_text(const oct_graph_node *node)
{
    return oct_call_text(node->called ? NULL : node->op, node->path, node->hook);
}

oct_call_name oct_graph_producer_text(const oct_graph *graph, int64_t value)
{
    int64_t producer = graph->values[value].producer;
    if (producer >= 0) return oct_graph_node_text(&graph->nodes[producer]);
    int count = graph->num_inputs[OCT_MODE_TRAINING];
    oct_call_name name = {"the model's input"};
    for (int i = 0; i < count && count > 1; i++)
        if (graph->inputs[i] == value)
            snprintf(name.text, sizeof name.text, "the model's input %d", i);
    return name;
}

bool oct_graph_branches(const oct_graph *graph)
{
    bool differs = graph->output[OCT_MODE_EVALUATION] != graph->output[OCT_MODE_TRAINING] ||
                   graph->num_inputs[OCT_MODE_EVALUATION] != graph->num_inputs[OCT_MODE_TRAINING];
    for (size_t i = 0; i < graph->num_nodes; i++) {
        const oct_graph_node *node = &graph->nodes[i];
        differs |= node->in[OCT_MODE_EVALUATION] != node->in[OCT_MODE_TRAINING];
        for (int k = 0; k < node->num_inputs; k++)
            differs |= node->called_input[OCT_MODE_EVALUATION][k] !=
                       node->called_input[OCT_MODE_TRAINING][k];
    }
    return differs;
}

/* A parent knows its child by the address of a pointer to it, the slot; each is allocated alone, so it never moves. */
oct_status oct_graph_add_module(oct_graph *graph, oct_module *parent, const char *name,
                                oct_module **module)
{
    oct_module **slot = NULL;
    oct_status status =
        oct_grow(&graph->slots, &graph->cap_slots, graph->num_slots + 1, sizeof *graph->slots);
    if (status == OCT_OK) status = oct_alloc(&slot, 1, sizeof *slot);
    if (status != OCT_OK) {
        oct_module_destroy(module);
        return status;
    }
    graph->slots[graph->num_slots++] = slot;
    *slot = *module;
    *module = NULL;
    oct_module_train(*slot, parent->training);
    return oct_module_add_child(parent, name, slot);
}

/* What quantizes the output of a module: its own fake-quant or a borrowed one. */
static oct_fake_quant *quantizer_of(const oct_module *module)
{
    return module && oct_is_quantized(module)
               ? (oct_fake_quant *)((const oct_quantized *)module)->fake_quant
               : NULL;
}

/* The path of the node that makes a value, or the name of an input. */
static const char *path_of_value(const oct_graph *graph, int64_t value)
{
    static const char *const inputs[OCT_MODEL_INPUTS] = {
        "input_0", "input_1", "input_2", "input_3", "input_4", "input_5", "input_6", "input_7"};
    int64_t producer = graph->values[value].producer;
    OCT_ASSERT(graph->nodes || producer < 0);
    if (producer >= 0) return graph->nodes[producer].path;
    for (int i = 0; i < graph->num_inputs[OCT_MODE_TRAINING]; i++)
        if (graph->inputs[i] == value) return inputs[i];
    return "";
}

/* Checks that a value's codes are made by one quantizer, its producer's or that of the QuantStub after it, and that the
 * value names this one (value->fq). */
static oct_status check_value(const oct_graph *graph, int64_t number)
{
    const oct_graph_value *value = &graph->values[number];
    const oct_graph_node *node = value->producer < 0 ? NULL : &graph->nodes[value->producer];
    const oct_fake_quant *of_producer = quantizer_of(node ? node->module : NULL);
    const oct_fake_quant *of_stub = quantizer_of(value->quantize);
    const char *path = path_of_value(graph, number);
    OCT_CHECK(!of_producer || !of_stub, OCT_DEFECT, "the output of \"%s\" is quantized twice",
              path);
    if (value->codes && node && !of_producer) /* codes that keep their input's scale */
        of_producer = graph->values[oct_graph_input(graph, node, 0, oct_graph_mode_of(node))].fq;
    OCT_CHECK(value->fq == (of_stub ? of_stub : of_producer) && (value->fq || !value->codes),
              OCT_DEFECT,
              "the output of \"%s\" has another quantizer than the one that makes its codes", path);
    return OCT_OK;
}

/* Fails for a quantizer of the model that no item of the list has. */
static oct_status check_all_listed(const oct_graph *graph, const oct_tensor_quantizer *list,
                                   size_t count)
{
    oct_quantizers all;
    oct_status status = OCT_OK;
    OCT_TRY(oct_quantizers_collect(&all, graph->root));
    for (size_t i = 0; i < all.count && status == OCT_OK; i++) {
        bool listed = false;
        for (size_t k = 0; k < count; k++)
            listed |= list[k].fq == all.items[i];
        if (!listed)
            status = oct_fail(OCT_DEFECT, "the quantizer \"%s\" belongs to no tensor",
                              oct_module_path(&all.items[i]->base).text);
    }
    oct_quantizers_free(&all);
    return status;
}

oct_status oct_graph_quantizers(const oct_graph *graph, oct_tensor_quantizer **list, size_t *count)
{
    oct_status status = OCT_OK;
    *count = 0;
    OCT_TRY(oct_alloc(list, graph->num_values, sizeof **list));
    for (size_t i = 0; i < graph->num_values; i++) {
        oct_fake_quant *fq = graph->values[i].fq;
        if (graph->values[i].alias != (int64_t)i) continue;
        OCT_TRY_OUT(check_value(graph, (int64_t)i));
        if (!fq) continue;
        (*list)[(*count)++] = (oct_tensor_quantizer){
            .value = (int64_t)i, .path = path_of_value(graph, (int64_t)i), .fq = fq};
    }
    for (size_t i = 0; i < *count; i++)
        for (size_t j = 0; j < *count; j++)
            (*list)[i].shared |= i != j && (*list)[i].fq == (*list)[j].fq;
    status = check_all_listed(graph, *list, *count);
out:
    if (status != OCT_OK) oct_free(list);
    return status;
}
