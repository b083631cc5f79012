/* The module clip takes a tensor and two bounds; each bound may be infinite. */
#include "core/nn/modules.h"
#include "core/nn/modules_impl.h"

#include <stdio.h>

static oct_tensor *clip_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const oct_clip_module *m = (const oct_clip_module *)self;
    return oct_needs_inputs(cx, self, n, 1) ? oct_clip(cx, x[0], m->lo, m->hi) : NULL;
}

static void describe(const oct_module *self, char *text, size_t size)
{
    const oct_clip_module *m = (const oct_clip_module *)self;
    oct_snprintf(text, size, "%g to %g", m->lo, m->hi);
}

static void get_args(const oct_module *self, oct_op_args *args)
{
    const oct_clip_module *m = (const oct_clip_module *)self;
    *args = *OCT_OP_ARGS(m->lo, m->hi);
}

static oct_status create(oct_module **m, const oct_op_args *args)
{
    *m = NULL;
    OCT_TRY(oct_args_count("clip", args, 2));
    const double lo = args->value[0], hi = args->value[1];
    OCT_CHECK(lo <= hi, OCT_USAGE,
              "clip cannot have the bounds %g and %g; give two numbers in ascending order, or "
              "infinities for none",
              lo, hi);
    OCT_TRY(oct_module_create(m, &oct_clip_type, sizeof(oct_clip_module)));
    oct_clip_module *self = (oct_clip_module *)*m;
    self->lo = lo;
    self->hi = hi;
    return OCT_OK;
}

const oct_module_type oct_clip_type = {.name = "clip",
                                       .forward = clip_forward,
                                       .describe = describe,
                                       .atomic = true,
                                       .create = create,
                                       .args = get_args};

oct_status oct_clip_create(oct_module **m, double lo, double hi)
{
    return create(m, OCT_OP_ARGS(lo, hi));
}
