/* The modules parameter, add_parameter and mul_parameter hold a value that is trained. */
#include "core/nn/modules.h"
#include "core/nn/modules_impl.h"

#include <stdio.h>

static oct_tensor *value_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    oct_param *weight = ((oct_parameter_module *)self)->weight;
    return oct_needs_inputs(cx, self, n, 1) ? oct_parameter(cx, x[0], weight) : NULL;
}

static oct_tensor *add_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    oct_param *weight = ((oct_parameter_module *)self)->weight;
    return oct_needs_inputs(cx, self, n, 1) ? oct_add_parameter(cx, x[0], weight) : NULL;
}

static oct_tensor *mul_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    oct_param *weight = ((oct_parameter_module *)self)->weight;
    return oct_needs_inputs(cx, self, n, 1) ? oct_mul_parameter(cx, x[0], weight) : NULL;
}

/* "(16, 64)" */
static void describe(const oct_module *self, char *text, size_t size)
{
    char shape[96];
    snprintf(text, size, "%s",
             oct_shape_text(&((const oct_parameter_module *)self)->weight->value.shape, shape));
}

static void get_args(const oct_module *self, oct_op_args *args)
{
    const oct_shape *shape = &((const oct_parameter_module *)self)->weight->value.shape;
    *args = (oct_op_args){.count = shape->ndim + 1, .value = {shape->ndim}};
    for (int i = 0; i < shape->ndim; i++)
        args->value[i + 1] = (double)shape->dim[i];
}

static oct_status create(oct_module **m, const oct_module_type *type, oct_shape shape, float value)
{
    char text[96];
    oct_status status;
    *m = NULL;
    OCT_CHECK(shape.ndim >= 1 && shape.ndim < OCT_MAX_DIMS && oct_shape_numel(&shape) >= 1,
              OCT_USAGE, "a %s cannot have the shape %s; it has 1 to %d dimensions of at least 1",
              type->name, oct_shape_text(&shape, text), OCT_MAX_DIMS - 1);
    OCT_TRY(oct_module_create(m, type, sizeof(oct_parameter_module)));
    oct_param **weight = &((oct_parameter_module *)*m)->weight;
    OCT_TRY_OUT(oct_module_add_param(*m, "weight", shape, false, weight));
    for (int64_t i = 0; i < oct_numel(&(*weight)->value); i++)
        oct_f32(&(*weight)->value)[i] = value;
out:
    return oct_module_made(m, status);
}

/* The arguments are the number of dimensions and the dimensions. */
static oct_status from(oct_module **m, const oct_op_args *args, const oct_module_type *type,
                       float value)
{
    *m = NULL;
    int64_t a[OCT_MAX_DIMS] = {0};
    OCT_CHECK(args->count >= 2 && args->count <= OCT_MAX_DIMS, OCT_USAGE,
              "a %s is made from its number of dimensions, 1 to %d, and those; it has %d arguments",
              type->name, OCT_MAX_DIMS - 1, args->count);
    OCT_TRY(oct_args_integers(type->name, args, args->count, a));
    OCT_CHECK(a[0] == args->count - 1, OCT_USAGE, "a %s of %lld dimensions has %d", type->name,
              (long long)a[0], args->count - 1);
    return create(m, type, oct_shape_of((int)a[0], a + 1), value);
}

#define PARAMETER_MODULE(id, verb, start)                                                          \
    static oct_status verb##_from(oct_module **m, const oct_op_args *args)                         \
    {                                                                                              \
        return from(m, args, &oct_##id##_type, start);                                             \
    }                                                                                              \
    const oct_module_type oct_##id##_type = {.name = #id,                                          \
                                             .forward = verb##_forward,                            \
                                             .describe = describe,                                 \
                                             .atomic = true,                                       \
                                             .create = verb##_from,                                \
                                             .args = get_args};                                    \
    oct_status oct_##id##_create(oct_module **m, oct_shape shape)                                  \
    {                                                                                              \
        return create(m, &oct_##id##_type, shape, start);                                          \
    }
PARAMETER_MODULE(parameter, value, 0.0F)
PARAMETER_MODULE(add_parameter, add, 0.0F)
PARAMETER_MODULE(mul_parameter, mul, 1.0F)
