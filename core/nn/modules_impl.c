/* Small steps that every float module takes. */
#include "core/nn/modules_impl.h"

bool oct_needs_inputs(oct_context *cx, const oct_module *self, int n, int wanted)
{
    if (n == wanted) return true;
    oct_context_fail(cx, OCT_USAGE, "%s takes %d input%s, but was called with %d", self->type->name,
                     wanted, wanted == 1 ? "" : "s", n);
    return false;
}

oct_status oct_plain_create(oct_module **m, const oct_module_type *type)
{
    return oct_module_create(m, type, sizeof(oct_module));
}
