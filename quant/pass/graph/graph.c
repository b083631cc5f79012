/* The prepared graph as a value: made from a trace, attached to a root, its generated modules and its
 * quantizers. How it runs is in graph_run.c. */
#include "quant/pass/graph/graph.h"

#include "core/base/mem.h"
#include "quant/pass/graph/graph_run.h"

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
        oct_free(&node->op);
        oct_free(&node->path);
        oct_free(&node->fusion);
        oct_free(&node->note);
        oct_free(&node->decider);
    }
    for (size_t i = 0; i < self->num_blocks; i++)
        oct_free(&self->blocks[i].name);
    for (size_t i = 0; i < self->num_slots; i++)
        oct_free(&self->slots[i]);
    oct_free(&self->nodes);
    oct_free(&self->values);
    oct_free(&self->blocks);
    oct_free(&self->reads);
    for (int mode = 0; mode < OCT_MODES; mode++)
        oct_free(&self->scopes[mode]);
    oct_free(&self->slots);
    oct_free(graph);
}

static void destroy_with_root(oct_interceptor *interceptor)
{
    oct_graph *self = (oct_graph *)interceptor;
    oct_graph_destroy(&self);
}

oct_graph *oct_graph_of(const oct_module *root)
{
    oct_interceptor *interceptor = root->interceptor;
    return interceptor && interceptor->destroy == destroy_with_root ? (oct_graph *)interceptor
                                                                    : NULL;
}

void oct_graph_attach(oct_graph *graph, oct_module *root)
{
    graph->root = root;
    graph->interceptor = graph->method == OCT_METHOD_EAGER
                             ? (oct_interceptor){0}
                             : (oct_interceptor){.run = oct_graph_forward,
                                                 .call = oct_graph_call,
                                                 .block = oct_graph_block_mark};
    graph->interceptor.destroy = destroy_with_root;
    root->interceptor = &graph->interceptor;
}

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

/* From the trace's numbers to the graph's. */
typedef struct builder {
    oct_graph *graph;
    const oct_trace *trace;
    int64_t *run_of;     /* scope -> the block's run that it is in or is, or -1 */
    int64_t *first_of;   /* scope that is a run -> the first run of its block; others: -1 */
    int *block_of;       /* scope that is a first run -> number of the block */
    int64_t *scope_of;   /* scope -> the graph's; blocks: that of their container */
    size_t *kept_before; /* node -> how many of the nodes before it are kept */
} builder;

static void free_builder(builder *b)
{
    oct_free(&b->run_of);
    oct_free(&b->first_of);
    oct_free(&b->block_of);
    oct_free(&b->scope_of);
    oct_free(&b->kept_before);
}

static int64_t first_run(const oct_trace *trace, size_t scope)
{
    const oct_trace_scope *run = &trace->scopes[scope];
    for (size_t i = 0; i < scope; i++) {
        const oct_trace_scope *other = &trace->scopes[i];
        if (other->name && other->module == run->module && strcmp(other->name, run->name) == 0)
            return (int64_t)i;
    }
    return (int64_t)scope;
}

/* A scope begins behind its parent, so one pass is enough. */
static void find_runs(builder *b)
{
    for (size_t i = 0; i < b->trace->num_scopes; i++) {
        const oct_trace_scope *scope = &b->trace->scopes[i];
        b->run_of[i] = scope->name          ? (int64_t)i
                       : scope->parent >= 0 ? b->run_of[scope->parent]
                                            : -1;
        b->first_of[i] = scope->name ? first_run(b->trace, i) : -1;
    }
}

/* The run of a block that the scope is in, when it is not the first one; or -1. */
static int64_t repeat_of(const builder *b, int64_t scope)
{
    int64_t run = scope >= 0 ? b->run_of[scope] : -1;
    return run >= 0 && b->first_of[run] != run ? run : -1;
}

static void count_kept(builder *b)
{
    size_t kept = 0;
    for (size_t i = 0; i < b->trace->num_nodes; i++) {
        b->kept_before[i] = kept;
        kept += repeat_of(b, b->trace->nodes[i].scope) < 0;
    }
    b->kept_before[b->trace->num_nodes] = kept;
}

static oct_status add_block(builder *b, size_t scope)
{
    const oct_trace_scope *run = &b->trace->scopes[scope];
    oct_graph *graph = b->graph;
    oct_graph_block *block = &graph->blocks[graph->num_blocks];
    *block = (oct_graph_block){.module = run->module,
                               .begin = b->kept_before[run->begin],
                               .end = b->kept_before[run->end]};
    OCT_TRY(oct_strdup(&block->name, run->name));
    b->block_of[scope] = (int)graph->num_blocks++;
    return OCT_OK;
}

static oct_status add_scopes(builder *b)
{
    for (size_t i = 0; i < b->trace->num_scopes; i++) {
        const oct_trace_scope *scope = &b->trace->scopes[i];
        int64_t parent = scope->parent >= 0 ? b->scope_of[scope->parent] : -1;
        b->scope_of[i] = parent;
        if (scope->name && b->first_of[i] == (int64_t)i) OCT_TRY(add_block(b, i));
        if (scope->name || repeat_of(b, (int64_t)i) >= 0) continue;
        b->scope_of[i] = (int64_t)b->graph->num_scopes[OCT_MODE_EVALUATION];
        oct_trace_scope *kept =
            &b->graph->scopes[OCT_MODE_EVALUATION][b->graph->num_scopes[OCT_MODE_EVALUATION]++];
        *kept = *scope;
        kept->parent = parent;
        kept->begin = b->kept_before[scope->begin];
        kept->end = b->kept_before[scope->end];
    }
    return OCT_OK;
}

static void add_values(builder *b)
{
    oct_graph *graph = b->graph;
    for (size_t i = 0; i < b->trace->num_values; i++) {
        const oct_trace_value *value = &b->trace->values[i];
        graph->values[i] = (oct_graph_value){
            .shape = value->shape, .dtype = value->dtype, .producer = -1, .alias = (int64_t)i};
    }
    graph->num_values = b->trace->num_values;
}

static int64_t alias_or_none(const oct_graph *graph, int64_t value)
{
    return value < 0 ? -1 : graph->values[value].alias;
}

static oct_status keep_node(builder *b, const oct_trace_node *traced)
{
    oct_graph *graph = b->graph;
    int64_t run = traced->scope >= 0 ? b->run_of[traced->scope] : -1;
    oct_graph_node *node = &graph->nodes[graph->num_nodes];
    *node = (oct_graph_node){.called = traced->module,
                             .module = traced->module,
                             .caller = traced->caller,
                             .hook = traced->hook,
                             .args = traced->args,
                             .in = {true, true},
                             .num_inputs = traced->num_inputs,
                             .output = traced->output,
                             .block = run >= 0 ? b->block_of[run] : -1};
    for (int i = 0; i < traced->num_inputs; i++) {
        node->called_input[OCT_MODE_EVALUATION][i] = graph->values[traced->input[i]].alias;
        node->operand[i] = i;
    }
    for (int mode = 0; mode < OCT_MODES; mode++)
        node->given[mode] = alias_or_none(graph, traced->given);
    memcpy(node->called_input[OCT_MODE_TRAINING], node->called_input[OCT_MODE_EVALUATION],
           sizeof node->called_input[0]);
    graph->values[traced->output].producer = (int64_t)graph->num_nodes++;
    OCT_TRY(oct_strdup(&node->op, traced->op));
    return oct_strdup(&node->path, traced->path);
}

/* "dynamic block "x" of layer1 does not do the same each time it runs: " and what is different. */
static oct_status differ(const oct_trace_scope *run, const char *what)
{
    char path[256];
    oct_module_path(run->module, path);
    return oct_fail(OCT_PREPARE,
                    "%s%sdynamic block \"%s\" does not do the same each time it runs: %s; make two "
                    "blocks of it",
                    path, *path ? ": " : "", run->name, what);
}

static oct_status node_differs(const oct_trace_scope *run, const oct_trace_node *traced,
                               const oct_graph_node *first, const char *what)
{
    char text[640];
    snprintf(text, sizeof text, "%s \"%s\" %s (%s \"%s\" in the first run)", traced->op,
             traced->path, what, first->op, first->path);
    return differ(run, text);
}

static bool is_within(const oct_trace_value *value, const oct_trace_scope *run)
{
    return value->producer >= (int64_t)run->begin && value->producer < (int64_t)run->end;
}

static oct_status add_read(oct_graph *graph, oct_graph_carried_use read)
{
    for (size_t i = 0; i < graph->num_reads; i++) {
        const oct_graph_carried_use *known = &graph->reads[i];
        if (known->node == read.node && known->input == read.input && known->value == read.value)
            return OCT_OK;
    }
    OCT_TRY(oct_grow(&graph->reads, &graph->cap_reads, graph->num_reads + 1, sizeof *graph->reads));
    graph->reads[graph->num_reads++] = read;
    return OCT_OK;
}

/* A node of a later run: checked against its counterpart in the first one, which stands for it. */
static oct_status merge_node(builder *b, size_t number, int64_t repeat)
{
    oct_graph *graph = b->graph;
    const oct_trace_value *values = b->trace->values;
    const oct_trace_node *traced = &b->trace->nodes[number];
    const oct_trace_scope *run = &b->trace->scopes[repeat];
    const oct_trace_scope *first_run = &b->trace->scopes[b->first_of[repeat]];
    size_t counterpart = b->kept_before[first_run->begin] + (number - run->begin);
    const oct_graph_node *first = &graph->nodes[counterpart];
    if (traced->module != first->called || traced->caller != first->caller ||
        strcmp(traced->op, first->op) != 0 || traced->num_inputs != first->num_inputs)
        return node_differs(run, traced, first, "is called");
    if (!oct_op_args_equal(&traced->args, &first->args))
        return node_differs(run, traced, first, "has other arguments");
    for (int i = 0; i < traced->num_inputs; i++) {
        int64_t value = graph->values[traced->input[i]].alias;
        int64_t expected = first->called_input[OCT_MODE_EVALUATION][i];
        bool inside = is_within(&values[traced->input[i]], run);
        if (inside != is_within(&values[expected], first_run) || (inside && value != expected))
            return node_differs(run, traced, first, "reads another value");
        if (value != expected)
            OCT_TRY(add_read(graph, (oct_graph_carried_use){
                                        .node = (int64_t)counterpart, .value = value, .input = i}));
    }
    graph->values[traced->output].alias = first->output;
    graph->values[traced->output].producer = (int64_t)counterpart;
    return OCT_OK;
}

static oct_status check_length(const builder *b, int64_t repeat)
{
    const oct_trace_scope *run = &b->trace->scopes[repeat];
    const oct_trace_scope *first = &b->trace->scopes[b->first_of[repeat]];
    size_t length = run->end - run->begin, first_length = first->end - first->begin;
    char text[96];
    if (length == first_length) return OCT_OK;
    snprintf(text, sizeof text, "%zu operations, and %zu in the first run", length, first_length);
    return differ(run, text);
}

static oct_status add_nodes(builder *b)
{
    for (size_t i = 0; i < b->trace->num_scopes; i++) {
        if (b->trace->scopes[i].name && b->first_of[i] != (int64_t)i)
            OCT_TRY(check_length(b, (int64_t)i));
    }
    for (size_t i = 0; i < b->trace->num_nodes; i++) {
        int64_t repeat = repeat_of(b, b->trace->nodes[i].scope);
        OCT_TRY(repeat < 0 ? keep_node(b, &b->trace->nodes[i]) : merge_node(b, i, repeat));
    }
    return OCT_OK;
}

/* What reads a block's result outside of it reads the first run's. Both modes do the same so far. */
static void finish(builder *b)
{
    oct_graph *graph = b->graph;
    size_t num_scopes = graph->num_scopes[OCT_MODE_EVALUATION];
    memcpy(graph->inputs, b->trace->inputs, sizeof graph->inputs);
    for (size_t i = 0; i < num_scopes; i++) {
        oct_trace_scope *scope = &graph->scopes[OCT_MODE_EVALUATION][i];
        scope->input = alias_or_none(graph, scope->input);
        scope->given = alias_or_none(graph, scope->given);
        scope->output = alias_or_none(graph, scope->output);
    }
    for (int mode = 0; mode < OCT_MODES; mode++) {
        graph->num_inputs[mode] = b->trace->num_inputs;
        graph->output[mode] = graph->values[b->trace->output].alias;
        graph->num_scopes[mode] = num_scopes;
    }
    memcpy(graph->scopes[OCT_MODE_TRAINING], graph->scopes[OCT_MODE_EVALUATION],
           num_scopes * sizeof(oct_trace_scope));
}

static oct_status allocate(builder *b)
{
    size_t scopes = b->trace->num_scopes;
    OCT_TRY(oct_alloc(&b->run_of, scopes, sizeof *b->run_of));
    OCT_TRY(oct_alloc(&b->first_of, scopes, sizeof *b->first_of));
    OCT_TRY(oct_alloc(&b->block_of, scopes, sizeof *b->block_of));
    OCT_TRY(oct_alloc(&b->scope_of, scopes, sizeof *b->scope_of));
    OCT_TRY(oct_alloc(&b->kept_before, b->trace->num_nodes + 1, sizeof *b->kept_before));
    oct_graph *graph = b->graph;
    for (int mode = 0; mode < OCT_MODES; mode++)
        OCT_TRY(oct_alloc(&graph->scopes[mode], scopes, sizeof(oct_trace_scope)));
    OCT_TRY(oct_alloc(&graph->blocks, scopes, sizeof *graph->blocks));
    OCT_TRY(oct_alloc(&graph->nodes, b->trace->num_nodes, sizeof *graph->nodes));
    return oct_alloc(&graph->values, b->trace->num_values, sizeof *graph->values);
}

static oct_status build(builder *b)
{
    OCT_TRY(allocate(b));
    find_runs(b);
    count_kept(b);
    OCT_TRY(add_scopes(b));
    add_values(b);
    OCT_TRY(add_nodes(b));
    finish(b);
    return OCT_OK;
}

oct_status oct_graph_create(oct_graph **graph, const oct_trace *trace, oct_module *root)
{
    *graph = NULL;
    OCT_CHECK(
        !root->type->atomic, OCT_PREPARE,
        "the model is a single %s, and what prepare generates needs a container around it; put "
        "it into one (oct_sequential_create)",
        root->type->name);
    OCT_TRY(oct_alloc(graph, 1, sizeof **graph));
    (*graph)->root = root;
    builder b = {.graph = *graph, .trace = trace};
    oct_status status = build(&b);
    free_builder(&b);
    if (status != OCT_OK) oct_graph_destroy(graph);
    return status;
}

static bool has_child(const oct_module *parent, const char *name)
{
    for (size_t i = 0; i < parent->num_children; i++) {
        if (strcmp(parent->children[i].name, name) == 0) return true;
    }
    return false;
}

static oct_status new_slot(oct_graph *graph, oct_module ***slot)
{
    OCT_TRY(oct_grow(&graph->slots, &graph->cap_slots, graph->num_slots + 1, sizeof *graph->slots));
    OCT_TRY(oct_alloc(slot, 1, sizeof **slot));
    graph->slots[graph->num_slots++] = *slot;
    return OCT_OK;
}

oct_status oct_graph_add_module(oct_graph *graph, oct_module *parent, const char *op,
                                oct_module **module)
{
    char name[64];
    int number = 0;
    do {
        snprintf(name, sizeof name, "_generated_%s_%d", op, number++);
    } while (has_child(parent, name));
    return oct_graph_add_named(graph, parent, name, module);
}

oct_status oct_graph_add_named(oct_graph *graph, oct_module *parent, const char *name,
                               oct_module **module)
{
    oct_module **slot;
    oct_status status = new_slot(graph, &slot);
    if (status != OCT_OK) {
        oct_module_destroy(module);
        return status;
    }
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

static const char *path_of_value(const oct_graph *graph, int64_t value)
{
    static const char *const inputs[OCT_MAX_INPUTS] = {"input_0", "input_1", "input_2", "input_3",
                                                       "input_4", "input_5", "input_6", "input_7"};
    int64_t producer = graph->values[value].producer;
    if (producer >= 0) return graph->nodes[producer].path;
    for (int i = 0; i < graph->num_inputs[OCT_MODE_TRAINING]; i++) {
        if (graph->inputs[i] == value) return inputs[i];
    }
    return "";
}

/* The quantizer that makes the value's codes is the one that the value names, and there is no other
 * one on the way. */
static oct_status check_value(const oct_graph *graph, int64_t number)
{
    const oct_graph_value *value = &graph->values[number];
    const oct_graph_node *node = value->producer < 0 ? NULL : &graph->nodes[value->producer];
    const oct_fake_quant *made = quantizer_of(node ? node->module : NULL);
    const oct_fake_quant *later = quantizer_of(value->quantize);
    const char *path = path_of_value(graph, number);
    OCT_CHECK(!made || !later, OCT_DEFECT, "the output of \"%s\" is quantized twice", path);
    if (value->codes && node && !made) /* codes that keep their input's scale */
        made = graph->values[oct_graph_input(graph, node, 0, oct_graph_mode_of(node))].fq;
    OCT_CHECK(value->fq == (later ? later : made) && (value->fq || !value->codes), OCT_DEFECT,
              "the output of \"%s\" has another quantizer than the one that makes its codes", path);
    return OCT_OK;
}

static bool is_listed(const oct_tensor_quantizer *list, size_t count, const oct_fake_quant *fq)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i].fq == fq) return true;
    }
    return false;
}

static oct_status list_values(const oct_graph *graph, oct_tensor_quantizer *list, size_t *count)
{
    for (size_t i = 0; i < graph->num_values; i++) {
        oct_fake_quant *fq = graph->values[i].fq;
        if (graph->values[i].alias != (int64_t)i) continue;
        OCT_TRY(check_value(graph, (int64_t)i));
        if (!fq) continue;
        list[(*count)++] = (oct_tensor_quantizer){
            .value = (int64_t)i, .path = path_of_value(graph, (int64_t)i), .fq = fq};
    }
    for (size_t i = 0; i < *count; i++) {
        for (size_t j = 0; j < *count; j++)
            list[i].shared |= i != j && list[i].fq == list[j].fq;
    }
    return OCT_OK;
}

static oct_status check_all_listed(const oct_graph *graph, const oct_tensor_quantizer *list,
                                   size_t count)
{
    oct_quantizers all;
    oct_status status = OCT_OK;
    char path[256];
    OCT_TRY(oct_quantizers_collect(&all, graph->root));
    for (size_t i = 0; i < all.count && status == OCT_OK; i++) {
        if (!is_listed(list, count, all.items[i]))
            status = oct_fail(OCT_DEFECT, "the quantizer \"%s\" belongs to no tensor",
                              oct_module_path(&all.items[i]->base, path));
    }
    oct_quantizers_free(&all);
    return status;
}

oct_status oct_graph_quantizers(const oct_graph *graph, oct_tensor_quantizer **list, size_t *count)
{
    *count = 0;
    OCT_TRY(oct_alloc(list, graph->num_values, sizeof **list));
    oct_status status = list_values(graph, *list, count);
    if (status == OCT_OK) status = check_all_listed(graph, *list, *count);
    if (status != OCT_OK) oct_free(list);
    return status;
}
