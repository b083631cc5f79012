/* The pooling modules are max_pool, avg_pool and global_avg_pool. */
#include "core/nn/modules.h"
#include "core/nn/modules_impl.h"

#include <stdio.h>

static oct_tensor *max_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const oct_pool_module *m = (const oct_pool_module *)self;
    if (!oct_needs_inputs(cx, self, n, 1)) return NULL;
    return oct_max_pool(cx, x[0], m->kernel, m->stride, m->padding);
}

static oct_tensor *avg_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const oct_pool_module *m = (const oct_pool_module *)self;
    if (!oct_needs_inputs(cx, self, n, 1)) return NULL;
    return oct_avg_pool(cx, x[0], m->kernel, m->stride);
}

static void describe(const oct_module *self, char *text, size_t size)
{
    const oct_pool_module *m = (const oct_pool_module *)self;
    char padding[32] = "";
    if (m->padding != 0) snprintf(padding, sizeof padding, ", padding %d", m->padding);
    snprintf(text, size, "%dx%d, stride %d%s", m->kernel, m->kernel, m->stride, padding);
}

static void max_args(const oct_module *self, oct_op_args *args)
{
    const oct_pool_module *m = (const oct_pool_module *)self;
    *args = *OCT_OP_ARGS(m->kernel, m->stride, m->padding);
}

static void avg_args(const oct_module *self, oct_op_args *args)
{
    const oct_pool_module *m = (const oct_pool_module *)self;
    *args = *OCT_OP_ARGS(m->kernel, m->stride);
}

static oct_status max_from(oct_module **m, const oct_op_args *args)
{
    *m = NULL;
    int64_t a[3];
    OCT_TRY(oct_args_integers("max_pool", args, 3, a));
    return oct_max_pool_create(m, (int)a[0], (int)a[1], (int)a[2]);
}

static oct_status avg_from(oct_module **m, const oct_op_args *args)
{
    *m = NULL;
    int64_t a[2];
    OCT_TRY(oct_args_integers("avg_pool", args, 2, a));
    return oct_avg_pool_create(m, (int)a[0], (int)a[1]);
}

const oct_module_type oct_max_pool_type = {.name = "max_pool",
                                           .forward = max_forward,
                                           .describe = describe,
                                           .atomic = true,
                                           .create = max_from,
                                           .args = max_args};
const oct_module_type oct_avg_pool_type = {.name = "avg_pool",
                                           .forward = avg_forward,
                                           .describe = describe,
                                           .atomic = true,
                                           .create = avg_from,
                                           .args = avg_args};

static oct_status create(oct_module **m, const oct_module_type *type, int kernel, int stride,
                         int padding)
{
    *m = NULL;
    OCT_CHECK(kernel >= 1 && kernel <= OCT_WINDOW_SIDE_MAX && stride >= 1 &&
                  stride <= OCT_WINDOW_SIDE_MAX && padding >= 0 && padding < kernel,
              OCT_USAGE,
              "a %s cannot have kernel %d, stride %d and padding %d; kernel and stride must be at "
              "least 1 and at most %d, and the padding below the kernel",
              type->name, kernel, stride, padding, OCT_WINDOW_SIDE_MAX);
    OCT_TRY(oct_module_create(m, type, sizeof(oct_pool_module)));
    oct_pool_module *self = (oct_pool_module *)*m;
    self->kernel = kernel;
    self->stride = stride;
    self->padding = padding;
    return OCT_OK;
}

oct_status oct_max_pool_create(oct_module **m, int kernel, int stride, int padding)
{
    return create(m, &oct_max_pool_type, kernel, stride, padding);
}

oct_status oct_avg_pool_create(oct_module **m, int kernel, int stride)
{
    return create(m, &oct_avg_pool_type, kernel, stride, 0);
}
