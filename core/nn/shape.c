/* Modules that move values and change none: concat and flatten. */
#include "core/nn/modules.h"
#include "core/nn/modules_impl.h"

static oct_tensor *concat_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    if (n < 2)
        return oct_context_fail(cx, OCT_USAGE,
                                "%s takes two or more inputs, but was called with %d",
                                self->type->name, n);
    return oct_concat(cx, x, n);
}

static oct_tensor *flatten_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    return oct_needs_inputs(cx, self, n, 1) ? oct_flatten(cx, x[0]) : NULL;
}

const oct_module_type oct_concat_type = {.name = "concat", .forward = concat_forward, .leaf = true};
const oct_module_type oct_flatten_type = {
    .name = "flatten", .forward = flatten_forward, .leaf = true};

oct_status oct_concat_create(oct_module **m)
{
    return oct_plain_create(m, &oct_concat_type);
}

oct_status oct_flatten_create(oct_module **m)
{
    return oct_plain_create(m, &oct_flatten_type);
}
