/* The graph of one forward.
 *
 * A tensor's number is its value's, given when it first appears; a tensor without a number was made
 * behind the trace's back, which is an error that names the reader.
 */
#include "core/graph/trace.h"

#include "core/base/mem.h"

#include <string.h>

static oct_status add_value(oct_trace *trace, oct_tensor *tensor, int64_t producer)
{
    OCT_TRY(
        oct_grow(&trace->values, &trace->cap_values, trace->num_values + 1, sizeof *trace->values));
    tensor->id = (int64_t)trace->num_values;
    trace->values[trace->num_values++] =
        (oct_trace_value){.dtype = tensor->dtype, .shape = tensor->shape, .producer = producer};
    return OCT_OK;
}

static bool reads(const oct_trace_node *node, int64_t value)
{
    for (int i = 0; i < node->num_inputs; i++) {
        if (node->input[i] == value) return true;
    }
    return false;
}

/* Fills in the inputs of a node; a node that reads a value twice is one user of it. */
static oct_status connect(oct_trace *trace, oct_trace_node *node, oct_tensor *const *inputs, int n)
{
    for (int i = 0; i < n; i++) {
        int64_t value = inputs[i]->id;
        OCT_CHECK(value >= 0, OCT_PREPARE,
                  "input %d of %s is not computed from the model's input by modules and ops, so it "
                  "has no place in the graph; compute it by an op or keep it inside of a module",
                  i, node->op);
        if (!reads(node, value)) trace->values[value].users++;
        node->input[node->num_inputs++] = value;
    }
    return OCT_OK;
}

static oct_status add_node(oct_trace *trace, const oct_module *place, oct_module *module,
                           const char *op, oct_tensor *const *inputs, int n, oct_tensor *output)
{
    char path[256] = "";
    OCT_TRY(oct_grow(&trace->nodes, &trace->cap_nodes, trace->num_nodes + 1, sizeof *trace->nodes));
    oct_trace_node *node = &trace->nodes[trace->num_nodes];
    *node = (oct_trace_node){.module = module, .op = op};
    OCT_TRY(connect(trace, node, inputs, n));
    OCT_TRY(oct_strdup(&node->path, place ? oct_module_path(place, path) : ""));
    int64_t number = (int64_t)trace->num_nodes++;
    OCT_TRY(add_value(trace, output, number));
    node->output = output->id;
    return OCT_OK;
}

void oct_trace_add(oct_context *cx, oct_module *module, const char *op, oct_tensor *const *inputs,
                   int n, oct_tensor *output)
{
    if (!output || !oct_ready(cx, inputs, n)) return;
    const oct_module *place = module ? module : cx->module;
    oct_context_adopt(cx, add_node(cx->trace, place, module, op, inputs, n, output));
}

static oct_status run(oct_context *cx, oct_trace *trace, oct_module *root, oct_shape shape)
{
    oct_context_begin(cx, oct_leaves_split(1, 1, 0, 1), false);
    oct_tensor *x = oct_tensor_new(cx, OCT_F32, shape);
    if (!x) return oct_context_status(cx);
    memset(x->data, 0, (size_t)oct_numel(x) * sizeof(float));
    OCT_TRY(add_value(trace, x, -1));
    trace->input = x->id;
    cx->trace = trace;
    const oct_tensor *y = oct_call(cx, root, x);
    if (!y) return oct_context_status(cx);
    OCT_CHECK(y->id >= 0, OCT_PREPARE,
              "the model's output is not computed from its input by modules and ops");
    trace->output = y->id;
    trace->values[y->id].users++;
    return OCT_OK;
}

/* Modes of all modules in pre-order, to restore. */
typedef struct modes {
    bool *training;
    size_t count, capacity;
} modes;

static oct_status keep_mode(void *user, oct_module *module)
{
    modes *kept = user;
    OCT_TRY(oct_grow(&kept->training, &kept->capacity, kept->count + 1, sizeof *kept->training));
    kept->training[kept->count++] = module->training;
    return OCT_OK;
}

static void restore_mode(oct_module *module, const bool **next)
{
    module->training = *(*next)++;
    for (size_t i = 0; i < module->num_children; i++)
        restore_mode(*module->children[i].slot, next);
}

oct_status oct_trace_run(oct_trace *trace, oct_module *root, oct_shape input)
{
    *trace = (oct_trace){0};
    modes kept = {0};
    oct_context *cx = NULL;
    oct_status status;
    char text[96];
    OCT_CHECK(input.ndim > 0 && oct_shape_numel(&input) >= 0, OCT_PREPARE,
              "a model cannot be traced on an input of shape %s", oct_shape_text(&input, text));
    input.dim[0] = 1;
    OCT_TRY_OUT(oct_module_walk(root, keep_mode, &kept));
    OCT_TRY_OUT(oct_context_create(&cx, &oct_collective_one));
    oct_module_train(root, false);
    status = run(cx, trace, root, input);
    restore_mode(root, &(const bool *){kept.training});
out:
    oct_free(&kept.training);
    oct_context_destroy(&cx);
    if (status != OCT_OK) oct_trace_free(trace);
    return status;
}

void oct_trace_free(oct_trace *trace)
{
    for (size_t i = 0; i < trace->num_nodes; i++)
        oct_free(&trace->nodes[i].path);
    oct_free(&trace->nodes);
    oct_free(&trace->values);
    *trace = (oct_trace){0};
}

oct_trace_node *oct_trace_only_user(const oct_trace *trace, int64_t value)
{
    if (trace->values[value].users != 1 || value == trace->output) return NULL;
    for (size_t i = 0; i < trace->num_nodes; i++) {
        if (reads(&trace->nodes[i], value)) return &trace->nodes[i];
    }
    return NULL;
}
