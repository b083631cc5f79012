/* The tape and its context.
 *
 * Nodes are linked from the last to the first, so backward is a walk along the list. Parameter
 * gradients are summed leaf by leaf into borrowed rows; the last use of a parameter in
 * backward folds its rows along the fixed tree (core/base/leaves.h). What a dead branch of the
 * forward left unfolded is folded when the walk ends. Large parameters are in leaf_stream.c.
 */
#include "core/autograd/tape.h"

#include "core/autograd/lifetimes.h"
#include "core/autograd/tape_impl.h"
#include "core/base/cpu.h"
#include "core/base/mem.h"
#include "core/graph/trace.h"
#include "core/nn/module.h"
#include "core/nn/param.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

oct_status oct_context_create(oct_context **cx, const oct_collective *group)
{
    oct_status status = oct_alloc(cx, 1, sizeof **cx);
    if (status != OCT_OK) return status;
    (*cx)->group = group;
    (*cx)->numerics = OCT_NUMERICS_BF16;
    OCT_TRY_OUT(oct_arena_create(&(*cx)->arena));
out:
    if (status != OCT_OK) oct_context_destroy(cx);
    return status;
}

void oct_context_destroy(oct_context **cx)
{
    if (!*cx) return;
    oct_arena_destroy(&(*cx)->arena);
    oct_free(cx);
}

void oct_context_begin(oct_context *cx, oct_leaves leaves, bool record)
{
    oct_arena_reset(cx->arena);
    cx->status = OCT_OK;
    cx->leaves = leaves;
    cx->record = record;
    cx->last = NULL;
    cx->atomic_depth = 0;
    cx->hook = NULL;
    cx->interceptor = NULL;
    cx->args = (oct_op_args){0};
    cx->module = NULL;
    cx->open = NULL;
    if (cx->lifetimes) oct_lifetimes_begin(cx->lifetimes);
}

oct_status oct_context_status(const oct_context *cx)
{
    return cx->status;
}

void *oct_context_adopt(oct_context *cx, oct_status status)
{
    if (status == OCT_OK || cx->status != OCT_OK) return NULL;
    cx->status = status;
    char path[256];
    if (cx->module && *oct_module_path(cx->module, path)) oct_fail_prefix("%s", path);
    return NULL;
}

void *oct_context_fail(oct_context *cx, oct_status code, const char *format, ...)
{
    if (cx->status != OCT_OK) return NULL;
    char text[4096];
    va_list args;
    va_start(args, format);
    int written = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return oct_context_adopt(cx, oct_fail(code, "%s", written < 0 ? format : text));
}

bool oct_inputs_present(const oct_context *cx, oct_tensor *const *inputs, int n)
{
    if (cx->status != OCT_OK) return false;
    for (int i = 0; i < n; i++) {
        if (!inputs[i]) return false;
    }
    return true;
}

bool oct_inputs_ok(oct_context *cx, oct_tensor *const *inputs, int n)
{
    bool ready = oct_inputs_present(cx, inputs, n);
    for (int i = 0; ready && i < n && oct_lifetimes_apply(cx); i++)
        ready = oct_lifetimes_readable(cx, inputs[i]);
    return ready;
}

void *oct_save(oct_context *cx, size_t bytes)
{
    if (cx->status != OCT_OK) return NULL;
    void *memory = oct_arena_take(cx->arena, bytes);
    return memory ? memory : oct_context_adopt(cx, oct_fail_code());
}

static oct_tensor *tensor_over(oct_context *cx, oct_dtype dtype, oct_shape shape, void *data,
                               int64_t id)
{
    oct_tensor *tensor = oct_save(cx, sizeof *tensor);
    if (tensor)
        *tensor = (oct_tensor){.dtype = dtype, .shape = shape, .data = data, .id = id, .place = -1};
    return tensor;
}

oct_tensor *oct_tensor_view(oct_context *cx, oct_dtype dtype, oct_shape shape, void *data)
{
    int64_t id = oct_lifetimes_apply(cx) ? oct_lifetimes_number(cx->lifetimes, data) : -1;
    return tensor_over(cx, dtype, shape, data, id);
}

oct_tensor *oct_tensor_new(oct_context *cx, oct_dtype dtype, oct_shape shape)
{
    int64_t numel = oct_shape_numel(&shape);
    size_t bytes;
    if (numel < 0 || __builtin_mul_overflow((size_t)numel, oct_dtype_bytes(dtype), &bytes)) {
        char text[96];
        return oct_context_fail(cx, OCT_RESOURCE, "a tensor of shape %s does not fit into memory",
                                oct_shape_text(&shape, text));
    }
    if (cx->max_numel > 0 && numel > cx->max_numel) {
        char text[96];
        return oct_context_fail(cx, OCT_DATA,
                                "it makes a tensor of shape %s, more than %lld numbers",
                                oct_shape_text(&shape, text), (long long)cx->max_numel);
    }
    int64_t id = -1;
    void *data = oct_lifetimes_apply(cx) ? oct_lifetimes_take(cx, bytes, &id) : oct_save(cx, bytes);
    return data ? tensor_over(cx, dtype, shape, data, id) : NULL;
}

bool oct_op_args_equal(const oct_op_args *a, const oct_op_args *b)
{
    return a->count == b->count &&
           memcmp(a->value, b->value, (size_t)a->count * sizeof a->value[0]) == 0;
}

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
    if (cx->trace) oct_trace_add(cx, NULL, op, inputs, n, y, NULL);
    if (oct_lifetimes_apply(cx)) oct_lifetimes_done(cx, NULL, op, inputs, n, y);
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
    size_t mark = oct_arena_mark(cx->arena);
    oct_node *node = oct_save(cx, sizeof *node);
    if (!node) return NULL;
    *node = (oct_node){.op = op,
                       .backward = backward,
                       .num_inputs = n,
                       .output = y,
                       .module = cx->module,
                       .mark = mark,
                       .previous = cx->last};
    for (int i = 0; i < n; i++)
        node->input[i] = inputs[i];
    cx->last = node;
    y->needs_grad = true;
    y->node = node;
    return node;
}

void *oct_scratch(oct_context *cx, size_t bytes)
{
    if (cx->status != OCT_OK) return NULL;
    void *block = oct_arena_borrow(cx->arena, bytes);
    return block ? block : oct_context_adopt(cx, oct_fail_code());
}

void oct_scratch_end(oct_context *cx, void *block)
{
    oct_arena_give(cx->arena, block);
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

void oct_give_grad(oct_context *cx, oct_tensor *x, float *grad)
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

/* x gets grad too, which stays as it is. */
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

void oct_give_grad_to_both(oct_context *cx, oct_tensor *a, oct_tensor *b, float *grad)
{
    if (!grad) return;
    oct_tensor *heir = !b->needs_grad || (a->needs_grad && b->grad) ? a : b;
    share_grad(cx, heir == a ? b : a, grad);
    oct_give_grad(cx, heir, grad);
}

float *oct_take_grad(oct_tensor *y)
{
    float *grad = y->grad;
    y->grad = NULL;
    return grad;
}

void oct_param_used(oct_context *cx, oct_param *param)
{
    if (cx->record && cx->status == OCT_OK) param->uses++;
}

static size_t row_bytes(const oct_context *cx, const oct_param *param)
{
    return (size_t)cx->leaves.local * (size_t)oct_numel(&param->value) * sizeof(float);
}

static void too_many_gradients(oct_context *cx, const oct_param *param)
{
    oct_context_fail(cx, OCT_DEFECT, "parameter %s: more gradients than uses (oct_param_used)",
                     param->name);
}

bool oct_param_takes_grads(oct_context *cx, const oct_param *param)
{
    if (cx->status != OCT_OK) return false;
    if (!param->parts)
        oct_context_fail(cx, OCT_DEFECT, "parameter %s is not bound (oct_params_bind)",
                         param->name);
    else if (param->folded)
        oct_context_fail(cx, OCT_DEFECT, "parameter %s has its gradient already (oct_params_zero)",
                         param->name);
    else if (param->uses == 0)
        too_many_gradients(cx, param);
    return cx->status == OCT_OK;
}

float *oct_leaf_grads_begin(oct_context *cx, oct_param *param)
{
    if (!oct_param_takes_grads(cx, param)) return NULL;
    if (param->rows) return param->rows;
    float *rows = oct_scratch(cx, row_bytes(cx, param));
    if (!rows) return NULL;
    memset(rows, 0, row_bytes(cx, param));
    param->next_open = cx->open;
    cx->open = param;
    param->rows = rows;
    return rows;
}

static void fold(oct_context *cx, oct_param *param)
{
    int64_t numel = oct_numel(&param->value);
    int parts = oct_tree_fold_f32(&cx->leaves, param->rows, numel);
    OCT_ASSERT(parts <= param->max_parts);
    for (int p = 0; p < parts; p++) {
        const float *row = param->rows + p * numel;
        float *part = param->parts + p * param->stride;
        if (param->turn.turn)
            param->turn.turn(&param->turn, row, part);
        else
            memcpy(part, row, (size_t)numel * sizeof(float));
    }
    oct_arena_give(cx->arena, param->rows);
    param->rows = NULL;
    param->folded = true;
}

void oct_leaf_grads_end(oct_context *cx, oct_param *param)
{
    if (cx->status != OCT_OK) return;
    if (!param->rows || param->uses == 0)
        too_many_gradients(cx, param);
    else if (--param->uses == 0)
        fold(cx, param);
}

/* Parameters that a branch without a gradient used too, and all of a backward that failed. */
static void close_open_rows(oct_context *cx)
{
    for (oct_param *param = cx->open; param; param = param->next_open) {
        if (param->rows && cx->status == OCT_OK) fold(cx, param);
        oct_arena_give(cx->arena, param->rows);
        param->rows = NULL;
        param->uses = 0;
    }
    cx->open = NULL;
}

bool oct_sum_over_ranks(oct_context *cx, double *rows, int64_t n, double *total)
{
    oct_tree_fold_f64(&cx->leaves, rows, n);
    oct_context_adopt(cx, cx->group->tree_sum_f64(cx->group, &cx->leaves, rows, n, total));
    return cx->status == OCT_OK;
}

oct_status oct_backward(oct_context *cx, oct_tensor *loss)
{
    if (cx->status != OCT_OK) return cx->status;
    if (!loss || !loss->node) {
        oct_context_fail(cx, OCT_DEFECT, "backward was asked of a tensor that is not on the tape");
        return cx->status;
    }
    for (oct_node *node = cx->last, *previous; node; node = previous) {
        oct_tensor *y = node->output;
        previous = node->previous;
        cx->module = node->module;
        if (cx->status == OCT_OK && (y->grad || y == loss)) node->backward(cx, node);
        oct_arena_give(cx->arena, oct_take_grad(y));
        /* Nodes before this one know nothing that was made after it. */
        if (cx->release_on_backward) oct_arena_rewind(cx->arena, node->mark);
    }
    cx->module = NULL;
    cx->last = NULL;
    close_open_rows(cx);
    return cx->status;
}
