/* Modules without state that act element by element: relu, relu6, identity, add. */
#include "core/nn/modules.h"
#include "core/nn/modules_impl.h"

static oct_tensor *relu_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    return oct_needs_inputs(cx, self, n, 1) ? oct_relu(cx, x[0]) : NULL;
}

static oct_tensor *relu6_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    return oct_needs_inputs(cx, self, n, 1) ? oct_relu6(cx, x[0]) : NULL;
}

static oct_tensor *identity_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    return oct_needs_inputs(cx, self, n, 1) ? x[0] : NULL;
}

static oct_tensor *add_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    return oct_needs_inputs(cx, self, n, 2) ? oct_add(cx, x[0], x[1]) : NULL;
}

const oct_module_type oct_relu_type = {.name = "relu", .forward = relu_forward, .leaf = true};
const oct_module_type oct_relu6_type = {.name = "relu6", .forward = relu6_forward, .leaf = true};
const oct_module_type oct_identity_type = {
    .name = "identity", .forward = identity_forward, .leaf = true};
const oct_module_type oct_add_type = {.name = "add", .forward = add_forward, .leaf = true};

oct_status oct_relu_create(oct_module **m)
{
    return oct_plain_create(m, &oct_relu_type);
}

oct_status oct_relu6_create(oct_module **m)
{
    return oct_plain_create(m, &oct_relu6_type);
}

oct_status oct_identity_create(oct_module **m)
{
    return oct_plain_create(m, &oct_identity_type);
}

oct_status oct_add_create(oct_module **m)
{
    return oct_plain_create(m, &oct_add_type);
}
