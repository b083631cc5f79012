/* One step of an op or module in a test: a context, inputs, parameters and their gradients. */
#pragma once

#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/nn/modules.h"
#include "core/nn/params.h"
#include "tests/support/check_tensor.h"

#define RIG_OK(call) cr_assert_eq((call), OCT_OK, "%s: %s", #call, oct_error_message(0))

enum { RIG_INPUTS = 3 };

typedef oct_tensor *(*rig_forward)(oct_context *cx, oct_module *root, oct_tensor *const *x, int n);

/* A forward that is one expression of cx and the inputs x. */
#define RIG_FORWARD(name, expression)                                                              \
    static oct_tensor *name(oct_context *cx, oct_module *root, oct_tensor *const *x, int n)        \
    {                                                                                              \
        (void)root, (void)n;                                                                       \
        return expression;                                                                         \
    }

typedef struct rig {
    oct_context *cx;
    oct_module *root; /* holds the parameters; NULL for none */
    oct_params params;
    oct_leaves leaves;
    rig_forward forward;
    oct_tensor input[RIG_INPUTS]; /* of the step at hand; data owned by the rig */
    int num_inputs;
} rig;

static inline void *rig_take(size_t count, size_t size)
{
    void *block;
    RIG_OK(oct_alloc(&block, count, size));
    return block;
}

/* Distinct values (k + 1/2) * step around 0 in a random order: no ties, and none within step / 2 of a
 * multiple of step. */
static inline void rig_fill(float *x, int64_t n, float step, uint64_t seed)
{
    int64_t *order = rig_take((size_t)n, sizeof *order);
    oct_permutation(order, n, seed, 0);
    for (int64_t i = 0; i < n; i++)
        x[i] = ((float)(order[i] - n / 2) + 0.5F) * step;
    oct_free(&order);
}

static inline rig rig_of(oct_module *root, rig_forward forward, int64_t samples, int64_t leaf)
{
    rig r = {.root = root, .forward = forward, .leaves = oct_leaves_split(samples, leaf, 0, 1)};
    RIG_OK(oct_context_create(&r.cx, &oct_collective_one));
    if (root) RIG_OK(oct_params_bind(&r.params, root, &r.leaves));
    for (size_t i = 0; i < r.params.count; i++)
        rig_fill(oct_f32(&r.params.items[i]->value), oct_numel(&r.params.items[i]->value), 0.05F,
                 100 + i);
    return r;
}

static inline void rig_input(rig *r, oct_shape shape, float step)
{
    int64_t n = oct_shape_numel(&shape);
    oct_tensor *x = &r->input[r->num_inputs++];
    *x = (oct_tensor){.shape = shape,
                      .data = rig_take((size_t)n, sizeof(float)),
                      .needs_grad = true,
                      .trace_value = -1,
                      .graph_value = -1};
    rig_fill(oct_f32(x), n, step, (uint64_t)r->num_inputs);
}

static inline void rig_end(rig *r)
{
    oct_params_unbind(&r->params);
    oct_module_destroy(&r->root);
    oct_context_destroy(&r->cx);
    for (int i = 0; i < r->num_inputs; i++)
        oct_free(&r->input[i].data);
}

/* Forward; the output lives until the next run. NULL when it failed. */
static inline oct_tensor *rig_run(rig *r, bool record)
{
    oct_context_begin(r->cx, r->leaves, record);
    if (r->root) oct_params_zero(&r->params);
    oct_tensor *x[RIG_INPUTS];
    for (int i = 0; i < r->num_inputs; i++) {
        r->input[i].grad = NULL;
        x[i] = &r->input[i];
    }
    return r->forward(r->cx, r->root, x, r->num_inputs);
}

/* Backward from y with the gradient given (NULL: y's own), and the reduction of the parameters'. */
static inline void rig_backward(rig *r, oct_tensor *y, const float *grad)
{
    if (grad) {
        size_t bytes = (size_t)oct_numel(y) * sizeof(float);
        float *copy = oct_scratch(r->cx, bytes);
        memcpy(copy, grad, bytes);
        oct_add_grad(r->cx, y, copy);
    }
    RIG_OK(oct_backward(r->cx, y));
    if (r->root) RIG_OK(oct_params_reduce(&r->params, &oct_collective_one, &r->leaves));
}

static inline oct_tensor *rig_call_root(oct_context *cx, oct_module *root, oct_tensor *const *x,
                                        int n)
{
    return oct_module_call(cx, root, x, n);
}

static inline void rig_append(oct_module *sequential, oct_module *item)
{
    RIG_OK(oct_sequential_append(sequential, &item));
}
