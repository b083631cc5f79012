/* The module mean takes the mean along a dimension. */
#include "core/nn/modules.h"
#include "core/nn/modules_impl.h"

#include <stdio.h>

static oct_tensor *mean_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const oct_mean_module *m = (const oct_mean_module *)self;
    return oct_needs_inputs(cx, self, n, 1) ? oct_mean(cx, x[0], m->axis, m->keep) : NULL;
}

static void describe(const oct_module *self, char *text, size_t size)
{
    const oct_mean_module *m = (const oct_mean_module *)self;
    if (m->axis == OCT_MEAN_PLANE)
        snprintf(text, size, "dimensions 1 and 2%s", m->keep ? ", kept" : "");
    else
        snprintf(text, size, "dimension %d%s", m->axis, m->keep ? ", kept" : "");
}

static void get_args(const oct_module *self, oct_op_args *args)
{
    const oct_mean_module *m = (const oct_mean_module *)self;
    *args = *OCT_OP_ARGS(m->axis, m->keep);
}

static oct_status create(oct_module **m, const oct_op_args *args)
{
    *m = NULL;
    int64_t a[2];
    OCT_TRY(oct_args_integers("mean", args, 2, a));
    return oct_mean_create(m, (int)a[0], a[1] != 0);
}

const oct_module_type oct_mean_type = {.name = "mean",
                                       .forward = mean_forward,
                                       .describe = describe,
                                       .atomic = true,
                                       .create = create,
                                       .args = get_args};

oct_status oct_mean_create(oct_module **m, int axis, bool keep)
{
    *m = NULL;
    OCT_CHECK((axis >= 1 && axis < OCT_MAX_DIMS) || axis == OCT_MEAN_PLANE, OCT_USAGE,
              "a mean cannot be taken along dimension %d; it is 1 to %d, or %d for both of a plane",
              axis, OCT_MAX_DIMS - 1, OCT_MEAN_PLANE);
    OCT_TRY(oct_module_create(m, &oct_mean_type, sizeof(oct_mean_module)));
    ((oct_mean_module *)*m)->axis = axis;
    ((oct_mean_module *)*m)->keep = keep;
    return OCT_OK;
}
