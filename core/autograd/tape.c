/* The tape records forwards and runs backwards.
 *
 * Nodes are linked from the last to the first, so backward is a walk along the list. Parameter gradients are summed
 * leaf by leaf into borrowed rows; the last use of a parameter in backward folds its rows along the fixed tree
 * (core/base/leaves.h). What a dead branch of the forward left unfolded is folded when the walk ends.
 */
#include "core/autograd/tape.h"

#include "core/autograd/context.h"
#include "core/base/cpu.h"
#include "core/base/mem.h"
#include "core/graph/trace.h"

#include <string.h>

bool oct_op_intercepted(oct_context *cx, const char *op, const oct_op_args *args,
                        oct_tensor *const *x, int n, oct_tensor **y)
{
    if (!oct_inputs_present(cx, x, n) || cx->atomic_depth > 0) return false;
    oct_interceptor *prepared = cx->interceptor;
    *y = NULL;
    if (prepared && prepared->call(prepared, cx, NULL, op, args, x, n, y)) return true;
    cx->args = *args;
    return false;
}

void oct_record_no_grad(oct_context *cx, const char *op, oct_tensor *const *inputs, int n,
                        oct_tensor *y)
{
    if (!y || cx->atomic_depth > 0) return;
    const oct_site executed = {.op = op, .input = inputs, .num_inputs = n, .output = y};
    if (cx->trace) oct_trace_add(cx, &executed);
    if (cx->status == OCT_OK && oct_context_frees(cx)) oct_lifetimes_done(cx->lifetimes, &executed);
}

oct_node *oct_record(oct_context *cx, const char *op, void (*backward)(oct_context *, oct_node *),
                     oct_tensor *const *inputs, int n, bool params, oct_tensor *y)
{
    if (!y || !oct_inputs_alive(cx, inputs, n)) return NULL;
    if (!op || n > OCT_MAX_INPUTS)
        return oct_context_fail(cx, OCT_USAGE,
                                "%s has %d inputs; an operation has a name and at most %d",
                                op ? op : "NULL", n, OCT_MAX_INPUTS);
    oct_record_no_grad(cx, op, inputs, n, y);
    bool needed = params;
    for (int i = 0; i < n; i++)
        needed |= inputs[i]->needs_grad;
    if (!cx->record || !needed) return NULL;
    if (!backward)
        return oct_context_fail(cx, OCT_USAGE, "%s has no backward, but its input needs a gradient",
                                op);
    size_t arena_mark = oct_arena_mark(cx->arena);
    oct_node *node = oct_save(cx, sizeof *node);
    if (!node) return NULL;
    *node = (oct_node){.op = op,
                       .backward = backward,
                       .num_inputs = n,
                       .output = y,
                       .module = cx->module,
                       .arena_mark = arena_mark,
                       .previous = cx->last};
    for (int i = 0; i < n; i++)
        node->input[i] = inputs[i];
    cx->last = node;
    y->needs_grad = true;
    y->node = node;
    return node;
}

bool oct_node_save(oct_context *cx, oct_node *node, const void *what, size_t bytes)
{
    if (!node) return cx && cx->status == OCT_OK;
    if (!what) return oct_context_fail(cx, OCT_USAGE, "%s saves NULL for its backward", node->op);
    node->saved = oct_save(cx, bytes);
    if (node->saved) memcpy(node->saved, what, bytes);
    return node->saved;
}

void *oct_node_saved(const oct_node *node)
{
    return node ? node->saved : NULL;
}

oct_tensor *oct_node_input(const oct_node *node, int i)
{
    return node && i >= 0 && i < node->num_inputs ? node->input[i] : NULL;
}

oct_tensor *oct_node_output(const oct_node *node)
{
    return node ? node->output : NULL;
}

float *oct_grad_new(oct_context *cx, const oct_tensor *t)
{
    if (!t) return oct_context_fail(cx, OCT_USAGE, "a gradient is asked for a tensor that is NULL");
    return oct_scratch(cx, (size_t)oct_numel(t) * sizeof(float));
}

OCT_CLONES void oct_accumulate(int64_t n, const float *x, float *restrict sum)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += x[i];
}

void oct_add_grad(oct_context *cx, oct_tensor *x, float *grad)
{
    if (!grad) return;
    if (x && x->needs_grad && !x->grad && cx->status == OCT_OK) {
        x->grad = grad;
        return;
    }
    if (x && x->needs_grad && x->grad) oct_accumulate(oct_numel(x), grad, x->grad);
    oct_arena_give(cx->arena, grad);
}

float *oct_grad_buffer(oct_context *cx, oct_tensor *x, bool *add)
{
    *add = x->grad != NULL;
    if (!x->needs_grad || cx->status != OCT_OK) return NULL;
    if (!x->grad) x->grad = oct_grad_new(cx, x);
    return x->grad;
}

float *oct_detach_grad(oct_tensor *y)
{
    float *grad = y ? y->grad : NULL;
    if (y) y->grad = NULL;
    return grad;
}

void oct_param_used(oct_context *cx, oct_param *param)
{
    if (!param)
        oct_context_fail(cx, OCT_USAGE, "a parameter that an operation uses is NULL");
    else if (cx->record && cx->status == OCT_OK)
        param->uses++;
}

static size_t row_bytes(const oct_context *cx, const oct_param *param)
{
    return (size_t)cx->leaves.local * (size_t)oct_numel(&param->value) * sizeof(float);
}

static void fail_too_many_grads(oct_context *cx, const oct_param *param)
{
    oct_context_fail(cx, OCT_USAGE, "parameter %s: more gradients than uses (oct_param_used)",
                     param->name);
}

bool oct_param_needs_grads(oct_context *cx, const oct_param *param)
{
    if (cx->status != OCT_OK) return false;
    if (!param)
        oct_context_fail(cx, OCT_USAGE, "a parameter whose gradient is asked for is NULL");
    else if (!param->parts)
        oct_context_fail(cx, OCT_DEFECT, "parameter %s is not bound (oct_params_bind)",
                         param->name);
    else if (param->folded)
        oct_context_fail(cx, OCT_DEFECT, "parameter %s has its gradient already (oct_params_zero)",
                         param->name);
    else if (param->uses == 0)
        fail_too_many_grads(cx, param);
    return cx->status == OCT_OK;
}

float *oct_leaf_grads_begin(oct_context *cx, oct_param *param)
{
    if (!cx || !oct_param_needs_grads(cx, param)) return NULL;
    if (param->rows) return param->rows;
    float *rows = oct_scratch(cx, row_bytes(cx, param));
    if (!rows) return NULL;
    memset(rows, 0, row_bytes(cx, param));
    param->next_open = cx->open_params; /* for close_leaf_grads */
    cx->open_params = param;
    param->rows = rows;
    return rows;
}

bool oct_leaf_range(const oct_context *cx, int64_t i, int64_t *first, int64_t *end)
{
    if (!cx || !first || !end || i < 0 || i >= cx->leaves.local) return false;
    *first = oct_leaf_begin(&cx->leaves, i);
    *end = *first + oct_leaf_size(&cx->leaves, i);
    return true;
}

void oct_leaf_watch_add(oct_context *cx, const void *vector, size_t bytes)
{
    const uint64_t both[2] = {cx->watch.digest, oct_digest(vector, bytes)};
    cx->watch.digest = oct_digest(both, sizeof both);
}

/* Adds the watched leaf's own row, if a leaf is watched, to the digest. */
static void watch_row(oct_context *cx, const void *rows, size_t bytes)
{
    if (cx->watch.active)
        oct_leaf_watch_add(cx, (const char *)rows + (size_t)cx->watch.leaf * bytes, bytes);
}

/* Sums gradient rows, one a leaf, along the tree into the parts (maximal subtrees of this rank's leaves). */
static void fold_rows(oct_context *cx, oct_param *param)
{
    int64_t numel = oct_numel(&param->value);
    watch_row(cx, param->rows, (size_t)numel * sizeof(float));
    int parts = oct_tree_fold_f32(&cx->leaves, param->rows, numel);
    OCT_ASSERT(parts <= param->max_parts);
    for (int p = 0; p < parts; p++) {
        const float *row = param->rows + p * numel;
        float *part = param->parts + p * param->stride;
        if (param->row_layout.transpose)
            param->row_layout.transpose(&param->row_layout, row, part);
        else
            memcpy(part, row, (size_t)numel * sizeof(float));
    }
    oct_arena_give(cx->arena, param->rows);
    param->rows = NULL;
    param->folded = true;
}

void oct_leaf_grads_end(oct_context *cx, oct_param *param)
{
    if (!cx || cx->status != OCT_OK || !param) return;
    if (!param->rows || param->uses == 0)
        fail_too_many_grads(cx, param);
    else if (--param->uses == 0)
        fold_rows(cx, param);
}

bool oct_batch_is_whole(oct_context *cx)
{
    if (cx->part == OCT_BATCH_WHOLE) return true;
    cx->part = OCT_BATCH_PART_REFUSED;
    return oct_context_fail(cx, OCT_DEFECT, "a sum over the batch was asked of a part of it");
}

bool oct_sum_over_ranks(oct_context *cx, double *rows, int64_t n, double *total)
{
    if (!oct_batch_is_whole(cx)) return false;
    watch_row(cx, rows, (size_t)n * sizeof *rows);
    oct_tree_fold_f64(&cx->leaves, rows, n);
    oct_context_adopt(cx,
                      cx->group->tree_sum(cx->group, &cx->leaves, rows, n, sizeof(double), total));
    cx->met = true; /* all ranks have synchronized in this step */
    return cx->status == OCT_OK;
}

/* Ends a backward: sums the rows of parameters that still wait for a use that no gradient reached, and drops all rows
 * of a backward that failed. */
static void close_leaf_grads(oct_context *cx)
{
    for (oct_param *param = cx->open_params; param; param = param->next_open) {
        if (param->rows && cx->status == OCT_OK) fold_rows(cx, param);
        oct_arena_give(cx->arena, param->rows);
        param->rows = NULL;
        param->uses = 0;
    }
    cx->open_params = NULL;
}

oct_status oct_backward(oct_context *cx, oct_tensor *loss)
{
    if (!loss || !cx->record)
        oct_context_fail(cx, OCT_DEFECT, "backward was asked of a tensor that is not on the tape");
    else if (!loss->node)
        oct_context_fail(cx, OCT_PREPARE,
                         "the loss depends on no parameter, so there is nothing to learn");
    if (cx->status != OCT_OK) return cx->status;
    for (oct_node *node = cx->last, *previous; node; node = previous) {
        oct_tensor *y = node->output;
        previous = node->previous;
        cx->module = node->module;
        if (cx->status == OCT_OK && (y->grad || y == loss)) node->backward(cx, node);
        oct_meanwhile(cx);
        oct_arena_give(cx->arena, oct_detach_grad(y));
        /* Nodes before this one know nothing that was made after it. */
        if (cx->release_on_backward) oct_arena_rewind(cx->arena, node->arena_mark);
    }
    cx->module = NULL;
    cx->last = NULL;
    close_leaf_grads(cx);
    return cx->status;
}
