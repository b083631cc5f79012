/* Modules without state and arguments: identity, and those of plain_op_list.def. */
#include "core/nn/modules.h"
#include "core/nn/modules_impl.h"

static oct_tensor *identity_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    oct_identity_module *m = (oct_identity_module *)self;
    if (!oct_needs_inputs(cx, self, n, 1) || !oct_inputs_ok(cx, x, n)) return NULL;
    m->passed = x[0]->data;
    return m->fused ? oct_view_as(cx, "identity", x[0], x[0]->shape) : x[0];
}

OCT_PLAIN_MODULE(identity, oct_identity_module)

#define GIVEN_1 x[0]
#define GIVEN_2 x[0], x[1]
#define OCT_PLAIN_OP(id, inputs)                                                                   \
    static oct_tensor *id##_forward(oct_context *cx, oct_module *self, oct_tensor *const *x,       \
                                    int n)                                                         \
    {                                                                                              \
        return oct_needs_inputs(cx, self, n, inputs) ? oct_##id(cx, GIVEN_##inputs) : NULL;        \
    }                                                                                              \
    OCT_PLAIN_MODULE(id, oct_module)
#include "core/op/plain_op_list.def"
#undef OCT_PLAIN_OP
