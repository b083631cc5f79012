/* The modules add_scalar and mul_scalar take a tensor and one number. */
#include "core/nn/modules.h"
#include "core/nn/modules_impl.h"

#include <math.h>
#include <stdio.h>

static oct_tensor *add_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const oct_scalar_module *m = (const oct_scalar_module *)self;
    return oct_needs_inputs(cx, self, n, 1) ? oct_add_scalar(cx, x[0], m->value) : NULL;
}

static oct_tensor *mul_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const oct_scalar_module *m = (const oct_scalar_module *)self;
    return oct_needs_inputs(cx, self, n, 1) ? oct_mul_scalar(cx, x[0], m->value) : NULL;
}

static void describe(const oct_module *self, char *text, size_t size)
{
    oct_snprintf(text, size, "%g", ((const oct_scalar_module *)self)->value);
}

static void get_args(const oct_module *self, oct_op_args *args)
{
    *args = *OCT_OP_ARGS(((const oct_scalar_module *)self)->value);
}

static oct_status create(oct_module **m, const oct_module_type *type, const oct_op_args *args)
{
    *m = NULL;
    OCT_TRY(oct_args_count(type->name, args, 1));
    OCT_CHECK(isfinite((float)args->value[0]), OCT_USAGE, "%s takes a finite number, but has %g",
              type->name, args->value[0]);
    OCT_TRY(oct_module_create(m, type, sizeof(oct_scalar_module)));
    ((oct_scalar_module *)*m)->value = args->value[0];
    return OCT_OK;
}

static oct_status add_from(oct_module **m, const oct_op_args *args)
{
    return create(m, &oct_add_scalar_type, args);
}

static oct_status mul_from(oct_module **m, const oct_op_args *args)
{
    return create(m, &oct_mul_scalar_type, args);
}

const oct_module_type oct_add_scalar_type = {.name = "add_scalar",
                                             .forward = add_forward,
                                             .describe = describe,
                                             .atomic = true,
                                             .create = add_from,
                                             .args = get_args};
const oct_module_type oct_mul_scalar_type = {.name = "mul_scalar",
                                             .forward = mul_forward,
                                             .describe = describe,
                                             .atomic = true,
                                             .create = mul_from,
                                             .args = get_args};

oct_status oct_add_scalar_create(oct_module **m, double value)
{
    return add_from(m, OCT_OP_ARGS(value));
}

oct_status oct_mul_scalar_create(oct_module **m, double value)
{
    return mul_from(m, OCT_OP_ARGS(value));
}
