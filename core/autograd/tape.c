/* The tape records forwards and runs backwards.
 *
 * Nodes are linked from the last to the first, so backward is a walk along the list.
 */
#include "core/autograd/tape.h"

#include "core/autograd/leaf_grads.h"
#include "core/autograd/context.h"
#include "core/base/cpu.h"
#include "core/graph/trace.h"

#include <string.h>

bool oct_call_site(oct_context *cx, const char *op, const oct_op_args *args, oct_tensor *const *x,
                   int n, oct_tensor **y)
{
    if (cx->atomic_depth > 0 || !oct_inputs_present(cx, x, n)) return false;
    oct_interceptor *root = cx->interceptor;
    *y = NULL;
    if (root && root->call(root, cx, NULL, op, args, x, n, y)) return true;
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
    if (!y || !oct_inputs_ok(cx, inputs, n)) return NULL;
    if (n > OCT_MAX_INPUTS)
        return oct_context_fail(cx, OCT_DEFECT, "%s has %d inputs; an op takes at most %d", op, n,
                                OCT_MAX_INPUTS);
    oct_record_no_grad(cx, op, inputs, n, y);
    bool needed = params;
    for (int i = 0; i < n; i++)
        needed |= inputs[i]->needs_grad;
    if (!cx->record || !needed) return NULL;
    if (!backward)
        return oct_context_fail(cx, OCT_DEFECT,
                                "%s has no backward, but its input needs a gradient", op);
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

float *oct_grad_new(oct_context *cx, const oct_tensor *t)
{
    return oct_scratch(cx, (size_t)oct_numel(t) * sizeof(float));
}

OCT_CLONES static void add(float *restrict sum, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += x[i];
}

void oct_add_grad(oct_context *cx, oct_tensor *x, float *grad)
{
    if (!grad) return;
    if (x->needs_grad && !x->grad && cx->status == OCT_OK) {
        x->grad = grad;
        return;
    }
    if (x->needs_grad && x->grad) add(x->grad, grad, oct_numel(x));
    oct_arena_give(cx->arena, grad);
}

float *oct_grad_buffer(oct_context *cx, oct_tensor *x, bool *add)
{
    *add = x->grad != NULL;
    if (!x->needs_grad || cx->status != OCT_OK) return NULL;
    if (!x->grad) x->grad = oct_grad_new(cx, x);
    return x->grad;
}

/* Adds grad to x's too; grad stays as it is. */
static void share_grad(oct_context *cx, oct_tensor *x, const float *grad)
{
    bool sum;
    float *to = oct_grad_buffer(cx, x, &sum);
    if (!to) return;
    int64_t samples = oct_samples(x), n = samples ? oct_numel(x) / samples : 0;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples; i++) {
        if (sum)
            add(to + i * n, grad + i * n, n);
        else
            memcpy(to + i * n, grad + i * n, (size_t)n * sizeof(float));
    }
}

void oct_add_grad_to_both(oct_context *cx, oct_tensor *a, oct_tensor *b, float *grad)
{
    if (!grad) return;
    oct_tensor *heir = !b->needs_grad || (a->needs_grad && b->grad) ? a : b;
    share_grad(cx, heir == a ? b : a, grad);
    oct_add_grad(cx, heir, grad);
}

float *oct_detach_grad(oct_tensor *y)
{
    float *grad = y->grad;
    y->grad = NULL;
    return grad;
}

oct_status oct_backward(oct_context *cx, oct_tensor *loss)
{
    if (cx->status != OCT_OK) return cx->status;
    if (!loss || !cx->record) {
        oct_context_fail(cx, OCT_DEFECT, "backward was asked of a tensor that is not on the tape");
        return cx->status;
    }
    if (!loss->node) {
        oct_context_fail(cx, OCT_PREPARE,
                         "the loss depends on no parameter, so there is nothing to learn");
        return cx->status;
    }
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
    oct_leaf_grads_close(cx);
    return cx->status;
}
