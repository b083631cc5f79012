/* All elementwise functions are one op, over a table of them. */
#include "core/op/elementwise.h"

#include "core/base/registry.h"
#include "core/op/op_impl.h"
#include "core/op/ops.h"

#include <math.h>

static const void *const listed[] = {
#define OCT_ELEMENTWISE(name, args) &oct_elementwise_##name,
#include "core/op/elementwise_list.def"
#undef OCT_ELEMENTWISE
};
static const oct_registry functions = OCT_REGISTRY("a function", listed);

const oct_elementwise *oct_elementwise_find(const char *name)
{
    return oct_registry_find(&functions, name);
}

/* An op remembers its function with the numbers given. */
typedef struct applied {
    const oct_elementwise *function;
    oct_elementwise_args args;
} applied;

static void elementwise_backward(oct_context *cx, oct_node *node)
{
    const applied *a = node->saved;
    oct_tensor *x = node->input[0];
    const int64_t n = oct_numel(x);
    float *grad = oct_detach_grad(node->output);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        grad[i] = (float)((double)grad[i] * a->function->slope((double)oct_f32(x)[i], &a->args));
    oct_add_grad(cx, x, grad);
}

oct_tensor *oct_elementwise_apply(oct_context *cx, const oct_elementwise *f,
                                  const oct_elementwise_args *args, oct_tensor *x)
{
    const applied a = {.function = f, .args = args ? *args : f->default_args};
    oct_op_args all;
    oct_args_write(&oct_elementwise_arg_list[f->num_args], &a.args, &all);
    for (int i = 0; i < all.count; i++)
        if (!isfinite(all.value[i]))
            return oct_context_fail(cx, OCT_USAGE, "%s takes finite numbers, but has %g", f->name,
                                    all.value[i]);
    oct_tensor *y;
    if (oct_call_site(cx, f->name, &all, &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1) || !oct_needs_f32(cx, f->name, x)) return NULL;
    y = oct_tensor_new(cx, OCT_F32, x->shape);
    if (!y) return NULL;
    const int64_t n = oct_numel(x);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        oct_f32(y)[i] = (float)f->value((double)oct_f32(x)[i], &a.args);
    oct_node *node = oct_record(cx, f->name, elementwise_backward, &x, 1, false, y);
    if (node) {
        applied *saved = node->saved = oct_save(cx, sizeof *saved);
        if (!saved) return NULL;
        *saved = a;
    }
    return y;
}

#define GIVEN_0 NULL
#define GIVEN_1                                                                                    \
    &(oct_elementwise_args)                                                                        \
    {                                                                                              \
        .alpha = first                                                                             \
    }
#define GIVEN_2                                                                                    \
    &(oct_elementwise_args)                                                                        \
    {                                                                                              \
        .alpha = first, .beta = second                                                             \
    }
#define OCT_ELEMENTWISE(name, args)                                                                \
    oct_tensor *oct_##name(oct_context *cx, oct_tensor *x OCT_ELEMENTWISE_ARGS_##args)             \
    {                                                                                              \
        return oct_elementwise_apply(cx, &oct_elementwise_##name, GIVEN_##args, x);                \
    }
#include "core/op/elementwise_list.def"
#undef OCT_ELEMENTWISE
