/* The pooling modules are max_pool, avg_pool and global_avg_pool. */
#include "core/nn/modules.h"
#include "core/nn/modules_impl.h"

#include <stdio.h>

static oct_tensor *max_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const oct_pool_module *m = (const oct_pool_module *)self;
    if (!oct_needs_inputs(cx, self, n, 1)) return NULL;
    return oct_max_pool(cx, x[0], m->geometry);
}

static oct_tensor *avg_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const oct_pool_module *m = (const oct_pool_module *)self;
    if (!oct_needs_inputs(cx, self, n, 1)) return NULL;
    return oct_avg_pool(cx, x[0], m->geometry);
}

static void describe(const oct_module *self, char *text, size_t size)
{
    const oct_pool_module *m = (const oct_pool_module *)self;
    char windows[OCT_GEOMETRY_TEXT];
    snprintf(text, size, "%s", oct_pool_geometry_text(&m->geometry, windows));
}

/* The arguments are kernel, stride, the four pads and ceil; of averages also count_include_pad. */
enum { MAX_ARGS = 9, AVG_ARGS = 10 };

static void avg_args(const oct_module *self, oct_op_args *args)
{
    const oct_pool_geometry *g = &((const oct_pool_module *)self)->geometry;
    *args = *OCT_OP_ARGS(g->kernel_h, g->kernel_w, g->stride_h, g->stride_w, g->pad_top,
                         g->pad_left, g->pad_bottom, g->pad_right, g->ceil, g->count_include_pad);
}

static void max_args(const oct_module *self, oct_op_args *args)
{
    avg_args(self, args);
    args->value[--args->count] = 0;
}

static oct_pool_geometry geometry_of(const int64_t *a)
{
    oct_pool_geometry g = oct_pool_geometry_from(a);
    g.ceil = a[OCT_WINDOW_NUMBERS] != 0;
    return g;
}

static oct_status max_from(oct_module **m, const oct_op_args *args)
{
    *m = NULL;
    int64_t a[MAX_ARGS];
    OCT_TRY(oct_args_integers("max_pool", args, MAX_ARGS, a));
    return oct_max_pool_create(m, geometry_of(a));
}

static oct_status avg_from(oct_module **m, const oct_op_args *args)
{
    *m = NULL;
    int64_t a[AVG_ARGS];
    OCT_TRY(oct_args_integers("avg_pool", args, AVG_ARGS, a));
    oct_pool_geometry g = geometry_of(a);
    g.count_include_pad = a[9] != 0;
    return oct_avg_pool_create(m, g);
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

static oct_status create(oct_module **m, const oct_module_type *type, oct_pool_geometry g)
{
    char windows[OCT_GEOMETRY_TEXT];
    *m = NULL;
    OCT_CHECK(oct_pool_geometry_fits(&g), OCT_USAGE, "a %s cannot have windows of %s; %s",
              type->name, oct_pool_geometry_text(&g, windows), oct_pool_geometry_rule);
    OCT_TRY(oct_module_create(m, type, sizeof(oct_pool_module)));
    ((oct_pool_module *)*m)->geometry = g;
    return OCT_OK;
}

oct_status oct_max_pool_create(oct_module **m, oct_pool_geometry g)
{
    g.count_include_pad = false;
    return create(m, &oct_max_pool_type, g);
}

oct_status oct_avg_pool_create(oct_module **m, oct_pool_geometry g)
{
    return create(m, &oct_avg_pool_type, g);
}
