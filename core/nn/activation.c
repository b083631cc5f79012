/* Modules without state and arguments: relu, relu6, identity, add, mul, softmax,
 * argmax. */
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

static oct_tensor *softmax_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    return oct_needs_inputs(cx, self, n, 1) ? oct_softmax(cx, x[0]) : NULL;
}

static oct_tensor *argmax_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    return oct_needs_inputs(cx, self, n, 1) ? oct_argmax(cx, x[0]) : NULL;
}

static oct_tensor *add_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    return oct_needs_inputs(cx, self, n, 2) ? oct_add(cx, x[0], x[1]) : NULL;
}

static oct_tensor *mul_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    return oct_needs_inputs(cx, self, n, 2) ? oct_mul(cx, x[0], x[1]) : NULL;
}

OCT_PLAIN_MODULE(relu)
OCT_PLAIN_MODULE(relu6)
OCT_PLAIN_MODULE(identity)
OCT_PLAIN_MODULE(softmax)
OCT_PLAIN_MODULE(argmax)
OCT_PLAIN_MODULE(add)
OCT_PLAIN_MODULE(mul)
