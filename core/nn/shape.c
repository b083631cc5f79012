/* These modules move values: concat, reshape, squeeze, interpolate. */
#include "core/nn/modules.h"
#include "core/nn/modules_impl.h"

#include <stdio.h>

static oct_tensor *concat_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    if (n < 2)
        return oct_context_fail(cx, OCT_USAGE,
                                "%s takes two or more inputs, but was called with %d",
                                self->type->name, n);
    return oct_concat(cx, x, n);
}

OCT_PLAIN_MODULE(concat, oct_module)

static oct_tensor *reshape_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const oct_reshape_module *m = (const oct_reshape_module *)self;
    return oct_needs_inputs(cx, self, n, 1) ? oct_reshape(cx, x[0], m->shape) : NULL;
}

static void reshape_describe(const oct_module *self, char *text, size_t size)
{
    oct_describe_shape(&((const oct_reshape_module *)self)->shape, text, size);
}

static void reshape_args(const oct_module *self, oct_op_args *args)
{
    const oct_shape *shape = &((const oct_reshape_module *)self)->shape;
    *args = (oct_op_args){.count = shape->ndim - 1};
    for (int i = 0; i < args->count; i++)
        args->value[i] = (double)shape->dim[i + 1];
}

static oct_status reshape_from(oct_module **m, const oct_op_args *args)
{
    *m = NULL;
    OCT_CHECK(args->count < OCT_MAX_DIMS, OCT_USAGE,
              "a reshape has at most %d dimensions beside the batch, but has %d", OCT_MAX_DIMS - 1,
              args->count);
    oct_shape shape = {.ndim = args->count + 1, .dim = {1}};
    OCT_TRY(oct_args_integers("reshape", args, args->count, shape.dim + 1));
    return oct_reshape_create(m, shape);
}

const oct_module_type oct_reshape_type = {.name = "reshape",
                                          .forward = reshape_forward,
                                          .describe = reshape_describe,
                                          .atomic = true,
                                          .create = reshape_from,
                                          .args = reshape_args};

oct_status oct_reshape_create(oct_module **m, oct_shape shape)
{
    *m = NULL;
    char text[96];
    shape.dim[0] = 1;
    OCT_CHECK(shape.ndim >= 1 && oct_shape_numel(&shape) >= 1, OCT_USAGE,
              "a reshape cannot make samples of shape %s; each dimension must be at least 1",
              oct_shape_text(&shape, text));
    OCT_TRY(oct_module_create(m, &oct_reshape_type, sizeof(oct_reshape_module)));
    ((oct_reshape_module *)*m)->shape = shape;
    return OCT_OK;
}

static oct_tensor *squeeze_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const oct_squeeze_module *m = (const oct_squeeze_module *)self;
    if (!oct_needs_inputs(cx, self, n, 1)) return NULL;
    return m->dim == 0 ? oct_squeeze(cx, x[0]) : oct_squeeze_dim(cx, x[0], m->dim);
}

static void squeeze_describe(const oct_module *self, char *text, size_t size)
{
    const oct_squeeze_module *m = (const oct_squeeze_module *)self;
    text[0] = '\0';
    if (m->dim != 0) snprintf(text, size, "dimension %d", m->dim);
}

static void squeeze_args(const oct_module *self, oct_op_args *args)
{
    *args = *OCT_OP_ARGS(((const oct_squeeze_module *)self)->dim);
}

static oct_status squeeze_from(oct_module **m, const oct_op_args *args)
{
    *m = NULL;
    int64_t dim;
    OCT_TRY(oct_args_integers("squeeze", args, 1, &dim));
    OCT_CHECK(dim >= 0 && dim < OCT_MAX_DIMS, OCT_USAGE,
              "a squeeze cannot drop dimension %lld; it is 1 to %d, or 0 for all of size 1",
              (long long)dim, OCT_MAX_DIMS - 1);
    OCT_TRY(oct_module_create(m, &oct_squeeze_type, sizeof(oct_squeeze_module)));
    ((oct_squeeze_module *)*m)->dim = (int)dim;
    return OCT_OK;
}

const oct_module_type oct_squeeze_type = {.name = "squeeze",
                                          .forward = squeeze_forward,
                                          .describe = squeeze_describe,
                                          .atomic = true,
                                          .create = squeeze_from,
                                          .args = squeeze_args};

oct_status oct_squeeze_create(oct_module **m)
{
    return squeeze_from(m, OCT_OP_ARGS(0));
}

oct_status oct_squeeze_dim_create(oct_module **m, int dim)
{
    return squeeze_from(m, OCT_OP_ARGS(dim == 0 ? -1 : dim)); /* 0 is the batch here */
}

static oct_tensor *interpolate_forward(oct_context *cx, oct_module *self, oct_tensor *const *x,
                                       int n)
{
    const oct_interpolate_module *m = (const oct_interpolate_module *)self;
    if (!oct_needs_inputs(cx, self, n, 1)) return NULL;
    return oct_interpolate(cx, x[0], m->out_h, m->out_w, m->mode);
}

static void interpolate_describe(const oct_module *self, char *text, size_t size)
{
    const oct_interpolate_module *m = (const oct_interpolate_module *)self;
    snprintf(text, size, "to %lldx%lld, %s", (long long)m->out_h, (long long)m->out_w,
             oct_interpolation_name(m->mode));
}

static void interpolate_args(const oct_module *self, oct_op_args *args)
{
    const oct_interpolate_module *m = (const oct_interpolate_module *)self;
    *args = *OCT_OP_ARGS((double)m->out_h, (double)m->out_w, (double)m->mode);
}

static oct_status interpolate_from(oct_module **m, const oct_op_args *args)
{
    *m = NULL;
    int64_t a[3];
    OCT_TRY(oct_args_integers("interpolate", args, 3, a));
    OCT_CHECK(a[2] >= 0 && a[2] < OCT_INTERPOLATIONS, OCT_USAGE,
              "an interpolate cannot have mode %lld; it is 0 to %d", (long long)a[2],
              OCT_INTERPOLATIONS - 1);
    return oct_interpolate_create(m, a[0], a[1], (oct_interpolation)a[2]);
}

const oct_module_type oct_interpolate_type = {.name = "interpolate",
                                              .forward = interpolate_forward,
                                              .describe = interpolate_describe,
                                              .atomic = true,
                                              .create = interpolate_from,
                                              .args = interpolate_args};

oct_status oct_interpolate_create(oct_module **m, int64_t out_h, int64_t out_w,
                                  oct_interpolation mode)
{
    *m = NULL;
    OCT_CHECK(out_h >= 1 && out_w >= 1, OCT_USAGE,
              "an interpolate cannot make %lldx%lld pixels; height and width must be at least 1",
              (long long)out_h, (long long)out_w);
    OCT_TRY(oct_module_create(m, &oct_interpolate_type, sizeof(oct_interpolate_module)));
    oct_interpolate_module *self = (oct_interpolate_module *)*m;
    self->out_h = out_h;
    self->out_w = out_w;
    self->mode = mode;
    return OCT_OK;
}
