/* How a prepared graph runs.
 *
 * A forward walks over the touched nodes in recorded order. Each tensor knows the value that it is
 * (oct_tensor.graph_value), so a call site is compared with its node by what is called and by what is
 * passed. `symbolic` calls the same call sites itself, in the place of the user's forward, so there is
 * one way to run a node.
 *
 * All state of a forward lies in the step's memory; a failed forward leaves nothing behind.
 */
#include "quant/pass/graph/graph_run.h"

#include <stdio.h>
#include <string.h>

enum { NO_BLOCK = -1, UNKNOWN_BLOCK = -2 };

/* A value in the other kind, codes or float, and the tensor that it was made from. */
typedef struct converted {
    const oct_tensor *from;
    oct_tensor *to;
} converted;

struct oct_graph_run {
    converted *converted; /* of each value */
    oct_tensor **made;    /* symbolic: of each value */
    bool *met;         /* of each node that is untouched or a hook's: was called, in a block in */
                       /* this run of it */
    size_t next;       /* touched nodes before it have been met; those of blocks do not count */
    int block;         /* that runs: its number, NO_BLOCK or UNKNOWN_BLOCK */
    size_t block_next; /* the same within its run */
};

/* A call, as it is made. */
typedef struct call_site {
    const oct_module *module, *caller; /* module NULL: a functional op */
    const oct_module *hook;
    const char *op;
    const oct_op_args *args;
    oct_tensor *const *x;
    int n;
} call_site;

enum { SITE_BYTES = 384 };
#define CHANGING                                                                                   \
    "; control flow that changes from step to step must be in a dynamic block "                    \
    "(oct_dynamic_block_begin)"

static const char *site_text(char text[SITE_BYTES], bool module, const char *op, const char *path)
{
    if (module)
        snprintf(text, SITE_BYTES, "%s \"%s\"", op, path);
    else if (*path)
        snprintf(text, SITE_BYTES, "op %s in \"%s\"", op, path);
    else
        snprintf(text, SITE_BYTES, "op %s in the model's own forward", op);
    return text;
}

static const char *node_text(char text[SITE_BYTES], const oct_graph_node *node)
{
    return site_text(text, node->called, node->op, node->path);
}

static const char *call_text(char text[SITE_BYTES], const call_site *site)
{
    char path[256] = "";
    const oct_module *place = site->module ? site->module : site->caller;
    if (place) oct_module_path(place, path);
    return site_text(text, site->module, site->op, path);
}

static const char *value_text(char text[SITE_BYTES], const oct_graph *graph, int64_t value)
{
    int64_t producer = graph->values[value].producer;
    if (producer >= 0) return node_text(text, &graph->nodes[producer]);
    int count = graph->num_inputs[OCT_MODE_TRAINING];
    snprintf(text, SITE_BYTES, "the model's input");
    for (int i = 0; i < count && count > 1; i++) {
        if (graph->inputs[i] == value) snprintf(text, SITE_BYTES, "the model's input %d", i);
    }
    return text;
}

/* The sentence names the place itself. */
static void *refuse(oct_context *cx, const char *sentence)
{
    oct_module *module = cx->module;
    cx->module = NULL;
    oct_context_fail(cx, OCT_PREPARE, "%s", sentence);
    cx->module = module;
    return NULL;
}

static oct_mode mode_of(const oct_module *module)
{
    return module->training ? OCT_MODE_TRAINING : OCT_MODE_EVALUATION;
}

/* The mode in which a node is called: parts of a model may be in another one than the whole, and their
 * own forwards go by that. */
static oct_mode mode_at(const oct_graph *graph, const oct_graph_node *node)
{
    bool own = node->caller && graph->method != OCT_METHOD_SYMBOLIC;
    return mode_of(own ? node->caller : graph->root);
}

static bool is_due(const oct_graph *graph, const oct_graph_node *node)
{
    return node->in[mode_at(graph, node)];
}

static bool is_planned_codes(const oct_graph *graph, const oct_tensor *x)
{
    return x->graph_value >= 0 && x->graph_value < (int64_t)graph->num_values &&
           graph->values[x->graph_value].codes;
}

static bool is_free(const oct_graph *graph, int64_t value)
{
    int64_t producer = graph->values[value].producer;
    return producer >= 0 && graph->nodes[producer].action == OCT_NODE_UNTOUCHED;
}

/* Whether a reader may meet any tensor in the place of this value: it comes into a block's run from
 * outside, or out of a block. `block` is the reader's. */
static bool is_open(const oct_graph *graph, int block, int64_t value)
{
    int64_t producer = graph->values[value].producer;
    int made_in = producer >= 0 ? graph->nodes[producer].block : NO_BLOCK;
    return made_in != block && (made_in != NO_BLOCK || block != NO_BLOCK);
}

/* Whether x may be `value`, as it was recorded. Untouched float values have no place of their own: what
 * is passed among them is what the forward computes. */
static bool fits(const oct_graph *graph, int block, int64_t value, const oct_tensor *x)
{
    if (x->graph_value == value || is_open(graph, block, value)) return true;
    return is_free(graph, value) && !is_planned_codes(graph, x);
}

static bool is_site(const oct_graph_node *node, const call_site *site)
{
    if (node->hook != site->hook) return false;
    if (node->called || site->module) return node->called == site->module;
    return node->caller == site->caller && strcmp(node->op, site->op) == 0;
}

static int64_t called_value(const oct_graph *graph, const oct_graph_node *node, int i)
{
    oct_mode mode = mode_at(graph, node);
    return oct_graph_resolve(graph, node->called_input[mode][i], mode);
}

/* The first input that is not the recorded one, or -1. */
static int odd_input(const oct_graph *graph, const oct_graph_node *node, const call_site *site)
{
    for (int i = 0; i < site->n; i++) {
        if (!fits(graph, node->block, called_value(graph, node, i), site->x[i])) return i;
    }
    return -1;
}

static bool fits_node(const oct_graph *graph, const oct_graph_node *node, const call_site *site)
{
    return is_site(node, site) && site->n == node->num_inputs &&
           (site->module || oct_op_args_equal(site->args, &node->args)) &&
           odd_input(graph, node, site) < 0;
}

/* The touched node that comes next: of the block that runs, or outside of all blocks. */
static const oct_graph_node *expected(const oct_graph *graph)
{
    const struct oct_graph_run *run = graph->run;
    if (run->block == UNKNOWN_BLOCK) return NULL;
    bool inside = run->block != NO_BLOCK;
    size_t end = inside ? graph->blocks[run->block].end : graph->num_nodes;
    for (size_t i = inside ? run->block_next : run->next; i < end; i++) {
        const oct_graph_node *node = &graph->nodes[i];
        if (node->action != OCT_NODE_UNTOUCHED && !node->hook && node->block == run->block &&
            is_due(graph, node))
            return node;
    }
    return NULL;
}

static void advance(oct_graph *graph, const oct_graph_node *node)
{
    size_t next = (size_t)(node - graph->nodes) + 1;
    if (graph->run->block != NO_BLOCK)
        graph->run->block_next = next;
    else
        graph->run->next = next;
}

/* Whether the forward may run this call by itself: no quantized value is in it, and either an
 * untouched node is such a call or no touched one is. */
static bool is_own_affair(const oct_graph *graph, const call_site *site)
{
    bool touched = false;
    for (int i = 0; i < site->n; i++) {
        if (is_planned_codes(graph, site->x[i])) return false;
    }
    for (size_t i = 0; i < graph->num_nodes; i++) {
        if (!is_site(&graph->nodes[i], site) || !is_due(graph, &graph->nodes[i])) continue;
        if (graph->nodes[i].action == OCT_NODE_UNTOUCHED) return true;
        touched = true;
    }
    return !touched;
}

/* The first node that such a call may be, among those in no order that have not been met; or NULL.
 * Calls of one module, or of one op in one forward, are told apart by their order where nothing else
 * does. */
static const oct_graph_node *unordered(const oct_graph *graph, const call_site *site)
{
    const struct oct_graph_run *run = graph->run;
    if (run->block == UNKNOWN_BLOCK) return NULL;
    bool inside = run->block != NO_BLOCK;
    size_t end = inside ? graph->blocks[run->block].end : graph->num_nodes;
    for (size_t i = inside ? graph->blocks[run->block].begin : 0; i < end; i++) {
        const oct_graph_node *node = &graph->nodes[i];
        if ((node->action == OCT_NODE_UNTOUCHED || node->hook) && node->block == run->block &&
            !run->met[i] && is_due(graph, node) && fits_node(graph, node, site))
            return node;
    }
    return NULL;
}

static void meet(const oct_graph *graph, const oct_graph_node *node)
{
    graph->run->met[node - graph->nodes] = true;
}

static void refuse_order(oct_context *cx, const oct_graph *graph, const oct_graph_node *node,
                         const call_site *site)
{
    char found[SITE_BYTES], wanted[SITE_BYTES], text[1024];
    call_text(found, site);
    int block = graph->run->block;
    if (block == UNKNOWN_BLOCK)
        snprintf(
            text, sizeof text,
            "%s is called in a dynamic block that did not run when the graph was recorded; let "
            "the example's forward run each block at least once",
            found);
    else if (node)
        snprintf(text, sizeof text, "%s is called where %s was recorded%s", found,
                 node_text(wanted, node), CHANGING);
    else if (block != NO_BLOCK)
        snprintf(
            text, sizeof text,
            "%s is called where dynamic block \"%s\" was recorded to end; a block must call the "
            "same operations each time it runs",
            found, graph->blocks[block].name);
    else
        snprintf(text, sizeof text, "%s is called where no further operation was recorded%s", found,
                 CHANGING);
    refuse(cx, text);
}

/* The right operation at the right time, but not as it was recorded. */
static void refuse_form(oct_context *cx, const oct_graph *graph, const oct_graph_node *node,
                        const call_site *site)
{
    char found[SITE_BYTES], wanted[SITE_BYTES], text[1024];
    call_text(found, site);
    int odd = site->n == node->num_inputs ? odd_input(graph, node, site) : -1;
    if (site->n != node->num_inputs)
        snprintf(text, sizeof text, "%s is called with %d inputs and was recorded with %d%s", found,
                 site->n, node->num_inputs, CHANGING);
    else if (odd >= 0)
        snprintf(text, sizeof text,
                 "input %d of %s is not the value that was recorded, which comes from %s%s", odd,
                 found, value_text(wanted, graph, called_value(graph, node, odd)), CHANGING);
    else
        snprintf(text, sizeof text,
                 "%s is called with other numbers (sizes, strides, ...) than were recorded; its "
                 "quantized form has those of the example",
                 found);
    refuse(cx, text);
}

/* A module that no call names: its hooks are run here. */
static oct_tensor *run_with_hooks(oct_context *cx, oct_module *module, oct_tensor **x, int n)
{
    if (n > 0) x[0] = oct_module_run_pre_hooks(cx, module, x[0]);
    return oct_module_run_hooks(cx, module, oct_module_execute(cx, module, x, n));
}

/* The tensor in the kind that the reader wants. */
static oct_tensor *adapt(oct_context *cx, const oct_graph *graph, oct_wants wants, int64_t recorded,
                         oct_tensor *x)
{
    bool placed = x->graph_value >= 0 && x->graph_value < (int64_t)graph->num_values;
    int64_t number = placed && (graph->values[x->graph_value].codes || !is_free(graph, recorded))
                         ? x->graph_value
                         : recorded;
    const oct_graph_value *value = &graph->values[number];
    if (wants == OCT_WANTS_ANY || (wants == OCT_WANTS_CODES) == value->codes) return x;
    oct_module *module = value->codes ? value->dequantize : value->quantize;
    if (!module)
        return oct_context_fail(cx, OCT_PREPARE,
                                "an input comes as %s and was recorded as %s; let the example's "
                                "forward run each dynamic block at least twice",
                                value->codes ? "codes" : "float", value->codes ? "float" : "codes");
    converted *kept = &graph->run->converted[number];
    if (kept->from != x)
        *kept = (converted){.from = x, .to = run_with_hooks(cx, module, (oct_tensor *[]){x}, 1)};
    return kept->to;
}

static void hand_on(oct_context *cx, oct_node *node)
{
    oct_give_grad(cx, node->input[0], oct_take_grad(node->output));
}

/* The same values as a tensor of its own, so that it can have a place of its own. */
static oct_tensor *view_of(oct_context *cx, oct_tensor *x)
{
    oct_tensor *view = oct_save(cx, sizeof *view);
    if (!view) return NULL;
    *view = *x;
    view->node = NULL;
    cx->atomic_depth++; /* no operation of the model */
    oct_record(cx, "view", hand_on, &x, 1, false, view);
    cx->atomic_depth--;
    return view;
}

static oct_tensor *run_node(oct_context *cx, const oct_graph *graph, const oct_graph_node *node,
                            oct_tensor *const *x)
{
    oct_tensor *input[OCT_MAX_INPUTS];
    for (int i = 0; i < node->num_inputs; i++) {
        int64_t recorded = oct_graph_input(graph, node, i, mode_at(graph, node));
        input[i] = adapt(cx, graph, node->wants, recorded, x[node->operand[i]]);
        if (!input[i]) return NULL;
    }
    oct_tensor *y = node->module == node->called
                        ? oct_module_execute(cx, node->module, input, node->num_inputs)
                        : run_with_hooks(cx, node->module, input, node->num_inputs);
    bool known = y && y->graph_value >= 0;
    for (int i = 0; i < node->num_inputs; i++)
        known |= y == input[i];
    if (y && known) y = view_of(cx, y);
    if (y) y->graph_value = node->output;
    return y;
}

static oct_tensor *answer(oct_context *cx, oct_graph *graph, const oct_graph_node *node,
                          oct_tensor *const *x)
{
    oct_tensor *y = node->action == OCT_NODE_ALIAS ? x[0] : run_node(cx, graph, node, x);
    graph->run->made[node->output] = y;
    return y;
}

/* A hook's call that was not recorded is made by the hook. */
static bool answer_hook(oct_context *cx, oct_graph *graph, const call_site *site, oct_tensor **y)
{
    const oct_graph_node *node = unordered(graph, site);
    if (!node) return false;
    meet(graph, node);
    if (node->action == OCT_NODE_UNTOUCHED) return false;
    *y = answer(cx, graph, node, site->x);
    return true;
}

/* The container that makes a call: a hook of a leaf calls for the one that holds it. */
static const oct_module *caller_of(const oct_context *cx, const oct_module *called)
{
    if (called) return NULL;
    return cx->module && cx->module->type->atomic ? cx->module->parent : cx->module;
}

bool oct_graph_call(oct_interceptor *self, oct_context *cx, oct_module *module, const char *op,
                    const oct_op_args *args, oct_tensor *const *x, int n, oct_tensor **y)
{
    oct_graph *graph = (oct_graph *)self;
    if (n > OCT_MAX_INPUTS) return false;
    call_site site = {module, caller_of(cx, module), cx->hook, op, args, x, n};
    if (site.hook) return answer_hook(cx, graph, &site, y);
    const oct_graph_node *node = expected(graph), *other = unordered(graph, &site);
    bool own = is_own_affair(graph, &site);
    if (node && fits_node(graph, node, &site) && !(own && other && other < node)) {
        advance(graph, node);
        *y = answer(cx, graph, node, x);
        return true;
    }
    if (own && other) meet(graph, other);
    if (own) return false;
    if (node && is_site(node, &site))
        refuse_form(cx, graph, node, &site);
    else
        refuse_order(cx, graph, node, &site);
    return true;
}

static int find_block(const oct_graph *graph, const oct_module *module, const char *name)
{
    for (size_t i = 0; i < graph->num_blocks; i++) {
        if (graph->blocks[i].module == module && strcmp(graph->blocks[i].name, name) == 0)
            return (int)i;
    }
    return UNKNOWN_BLOCK;
}

static void begin_block(oct_context *cx, oct_graph *graph, const oct_module *module,
                        const char *name)
{
    if (graph->run->block != NO_BLOCK) {
        oct_context_fail(cx, OCT_PREPARE,
                         "dynamic block \"%s\" begins before another one has ended; blocks do not "
                         "nest, and oct_dynamic_block_end belongs on every way out",
                         name);
        return;
    }
    graph->run->block = find_block(graph, module, name);
    if (graph->run->block < 0) return;
    const oct_graph_block *block = &graph->blocks[graph->run->block];
    graph->run->block_next = block->begin;
    memset(graph->run->met + block->begin, 0, block->end - block->begin);
}

static void end_block(oct_context *cx, oct_graph *graph)
{
    char wanted[SITE_BYTES], text[1024];
    const oct_graph_node *node = expected(graph);
    if (graph->run->block == NO_BLOCK) {
        oct_context_fail(cx, OCT_PREPARE, "oct_dynamic_block_end ends no block");
    } else if (node) {
        snprintf(text, sizeof text,
                 "dynamic block \"%s\" ends where %s was recorded; a block must call the same "
                 "operations each time it runs",
                 graph->blocks[graph->run->block].name, node_text(wanted, node));
        refuse(cx, text);
    }
    graph->run->block = NO_BLOCK;
}

void oct_graph_block_mark(oct_interceptor *self, oct_context *cx, oct_module *module,
                          const char *name)
{
    if (name)
        begin_block(cx, (oct_graph *)self, module, name);
    else
        end_block(cx, (oct_graph *)self);
}

/* Runs a container's hooks at its scope's begin or end. What they compute is in the graph when it was
 * recorded; another tensor would reach those too that the hook does not stand before. */
static void run_scope_hooks(oct_context *cx, oct_graph *graph, const oct_trace_scope *scope,
                            bool begin)
{
    int64_t number = begin ? scope->given : scope->output;
    oct_tensor *value = number < 0 ? NULL : graph->run->made[number];
    if (scope->parent < 0 || !value) return; /* the root's run where it is called */
    cx->module = scope->module;
    const oct_tensor *changed = begin ? oct_module_run_pre_hooks(cx, scope->module, value)
                                      : oct_module_run_hooks(cx, scope->module, value);
    if (changed && changed != value && changed->graph_value == value->graph_value)
        oct_context_fail(
            cx, OCT_PREPARE,
            "a hook returns another tensor than it was given; in method symbolic what a "
            "container's hook computes belongs to the graph already: let it return "
            "NULL, or prepare with method jit");
}

/* Closes the scopes that end before this node, and those inside of `parent` (-1: none) before its
 * next child opens. */
static int64_t close_scopes(oct_context *cx, oct_graph *graph, int64_t open, size_t node,
                            int64_t keep)
{
    const oct_trace_scope *scopes = graph->scopes[mode_of(graph->root)];
    while (open >= 0 && open != keep && scopes[open].end <= node) {
        run_scope_hooks(cx, graph, &scopes[open], false);
        open = scopes[open].parent;
    }
    return open;
}

/* What the node reads, of a called module before its pre hooks. */
static bool find_inputs(oct_context *cx, const oct_graph *graph, const oct_graph_node *node,
                        oct_tensor **x)
{
    const oct_mode mode = mode_at(graph, node);
    char text[SITE_BYTES];
    for (int i = 0; i < node->num_inputs; i++) {
        const bool given = i == 0 && node->called && node->given[mode] >= 0;
        x[i] = graph->run->made[given ? node->given[mode] : node->called_input[mode][i]];
        if (x[i]) continue;
        oct_context_fail(cx, OCT_PREPARE,
                         "%s reads a value that is not made now; a hook computed it when the "
                         "model was recorded, and must do so in each forward",
                         node_text(text, node));
        return false;
    }
    return true;
}

static oct_tensor *execute_node(oct_context *cx, oct_graph *graph, const oct_graph_node *node)
{
    oct_tensor *x[OCT_MAX_INPUTS], *y = NULL;
    if (!find_inputs(cx, graph, node, x)) return NULL;
    cx->module = node->caller;
    if (node->called) return oct_module_call(cx, node->called, x, node->num_inputs);
    if (node->action == OCT_NODE_UNTOUCHED) {
        meet(graph, node);
        return run_with_hooks(cx, node->module, x, node->num_inputs);
    }
    oct_graph_call(&graph->interceptor, cx, NULL, node->op, &node->args, x, node->num_inputs, &y);
    return y;
}

/* What a module makes is kept where its call is answered; what recorded hooks made of it is another
 * value, and has its place. */
static void keep_made(const oct_graph *graph, const oct_graph_node *node, oct_tensor *y)
{
    oct_tensor **made = &graph->run->made[node->output];
    if (node->action == OCT_NODE_UNTOUCHED || !*made || !y ||
        y->graph_value == (*made)->graph_value)
        *made = y;
}

/* The recorded forward, in the place of the user's. */
static oct_tensor *execute(oct_context *cx, oct_graph *graph, oct_tensor *const *x)
{
    const oct_mode mode = mode_of(graph->root);
    const oct_trace_scope *scopes = graph->scopes[mode];
    size_t next = 0;
    int64_t open = -1;
    for (int i = 0; i < graph->num_inputs[mode]; i++)
        graph->run->made[graph->inputs[i]] = x[i];
    for (size_t i = 0; i <= graph->num_nodes && cx->status == OCT_OK; i++) {
        for (; next < graph->num_scopes[mode] && scopes[next].begin == i; next++) {
            if (scopes[next].hook) continue; /* called where the hook runs */
            close_scopes(cx, graph, open, i, scopes[next].parent);
            open = (int64_t)next;
            run_scope_hooks(cx, graph, &scopes[next], true);
        }
        open = close_scopes(cx, graph, open, i, -1);
        if (i == graph->num_nodes || cx->status != OCT_OK) break;
        const oct_graph_node *node = &graph->nodes[i];
        if (!node->hook && is_due(graph, node))
            keep_made(graph, node, execute_node(cx, graph, node));
    }
    return cx->status == OCT_OK ? graph->run->made[graph->output[mode]] : NULL;
}

/* Everything that was recorded has run, and y is what was recorded as the output. */
static oct_tensor *finish(oct_context *cx, oct_graph *graph, oct_tensor *y)
{
    char wanted[SITE_BYTES], text[1024];
    if (graph->run->block != NO_BLOCK)
        return oct_context_fail(
            cx, OCT_PREPARE,
            "a dynamic block was not ended; call oct_dynamic_block_end on every "
            "way out of it");
    const oct_graph_node *node = expected(graph);
    if (node) {
        snprintf(text, sizeof text, "the forward ended before %s, which was recorded%s",
                 node_text(wanted, node), CHANGING);
        return refuse(cx, text);
    }
    const oct_mode mode = mode_of(graph->root);
    int64_t output = oct_graph_resolve(graph, graph->output[mode], mode);
    if (is_planned_codes(graph, y) && !fits(graph, NO_BLOCK, output, y)) {
        snprintf(text, sizeof text,
                 "the forward returns another value than was recorded, which comes from %s%s",
                 value_text(wanted, graph, output), CHANGING);
        return refuse(cx, text);
    }
    if (is_planned_codes(graph, y) && graph->values[y->graph_value].dequantize)
        y = adapt(cx, graph, OCT_WANTS_FLOAT, y->graph_value, y);
    if (y) y->graph_value = -1;
    return y;
}

static struct oct_graph_run *new_run(oct_context *cx, const oct_graph *graph)
{
    struct oct_graph_run *run = oct_save(cx, sizeof *run);
    converted *kept = oct_save(cx, graph->num_values * sizeof *kept);
    oct_tensor **made = oct_save(cx, graph->num_values * sizeof *made);
    bool *met = oct_save(cx, graph->num_nodes);
    if (!run || !kept || !made || !met) return NULL;
    memset(kept, 0, graph->num_values * sizeof *kept);
    memset(made, 0, graph->num_values * sizeof(oct_tensor *));
    memset(met, 0, graph->num_nodes);
    *run = (struct oct_graph_run){.converted = kept, .made = made, .met = met, .block = NO_BLOCK};
    return run;
}

/* Gives the inputs their places; a tensor that is passed twice is two values. */
static bool bind(oct_context *cx, const oct_graph *graph, oct_tensor *const *x, int n,
                 oct_tensor **input)
{
    for (int i = 0; i < n; i++) {
        input[i] = x[i];
        for (int j = 0; j < i; j++) {
            if (x[j] == x[i]) input[i] = view_of(cx, x[i]);
        }
        if (!input[i]) return false;
        input[i]->graph_value = graph->inputs[i];
    }
    return true;
}

oct_tensor *oct_graph_forward(oct_interceptor *self, oct_context *cx, oct_module *root,
                              oct_tensor *const *x, int n)
{
    oct_graph *graph = (oct_graph *)self;
    struct oct_graph_run *outer = graph->run;
    oct_tensor *input[OCT_MAX_INPUTS], *y = NULL;
    int64_t places[OCT_MAX_INPUTS];
    int wanted = graph->num_inputs[mode_of(root)];
    if (n != wanted)
        return oct_context_fail(
            cx, OCT_USAGE, "the model was prepared with %d inputs%s, but called with %d", wanted,
            wanted == graph->num_inputs[!root->training] ? ""
            : root->training                             ? " in training mode"
                                                         : " in evaluation mode",
            n);
    graph->run = new_run(cx, graph);
    for (int i = 0; i < n; i++)
        places[i] = x[i]->graph_value;
    if (graph->run && bind(cx, graph, x, n, input)) {
        cx->interceptor = self;
        y = graph->method == OCT_METHOD_SYMBOLIC ? execute(cx, graph, input)
                                                 : root->type->forward(cx, root, input, n);
        cx->module = root;
        if (y && cx->status == OCT_OK) y = finish(cx, graph, y);
        cx->interceptor = NULL;
    }
    for (int i = 0; i < n; i++)
        x[i]->graph_value = places[i];
    graph->run = outer;
    return y;
}
