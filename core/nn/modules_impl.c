/* Every float module takes these small steps. */
#include "core/nn/modules_impl.h"

#include "core/autograd/context.h"

#include <math.h>
#include <stdio.h>

bool oct_needs_inputs(oct_context *cx, const oct_module *self, int n, int wanted)
{
    if (n == wanted) return true;
    oct_context_fail(cx, OCT_USAGE, "%s takes %d input%s, but was called with %d", self->type->name,
                     wanted, wanted == 1 ? "" : "s", n);
    return false;
}

oct_status oct_args_count(const char *type, const oct_op_args *args, int count)
{
    OCT_CHECK(args->count == count, OCT_USAGE, "a %s is made from %d argument%s, but has %d", type,
              count, count == 1 ? "" : "s", args->count);
    return OCT_OK;
}

oct_status oct_args_integers(const char *type, const oct_op_args *args, int count, int64_t *whole)
{
    OCT_TRY(oct_args_count(type, args, count));
    for (int i = 0; i < count; i++) {
        double value = args->value[i];
        OCT_CHECK(value == rint(value) && fabs(value) <= (double)INT32_MAX, OCT_USAGE,
                  "argument %d of a %s is %g, but must be a whole number of at most 32 bits", i + 1,
                  type, value);
        whole[i] = (int64_t)value;
    }
    return OCT_OK;
}

void oct_describe_shape(const oct_shape *shape, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "(N");
    for (int i = 1; i < shape->ndim && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, ", %lld", (long long)shape->dim[i]);
    if (used < size) snprintf(text + used, size - used, ")");
}

oct_status oct_add_weight(oct_module **m, const oct_shape *shape, oct_param **weight,
                          oct_param **bias)
{
    char text[96];
    oct_status status;
    OCT_CHECK_OUT(oct_shape_numel(shape) > 0, OCT_USAGE,
                  "a %s cannot have weights of shape %s: they are more than can be counted",
                  (*m)->type->name, oct_shape_text(shape, text));
    OCT_TRY_OUT(oct_module_add_param(*m, "weight", *shape, true, weight));
    if (bias) OCT_TRY_OUT(oct_module_add_param(*m, "bias", OCT_SHAPE(shape->dim[0]), false, bias));
out:
    if (status != OCT_OK) oct_module_destroy(m);
    return status;
}

oct_status oct_plain_create(oct_module **m, const oct_module_type *type, size_t size,
                            const oct_op_args *args)
{
    *m = NULL;
    OCT_TRY(oct_args_count(type->name, args, 0));
    return oct_module_create(m, type, size);
}

void oct_plain_args(const oct_module *self, oct_op_args *args)
{
    (void)self;
    *args = (oct_op_args){0};
}
