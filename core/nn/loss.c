/* A loss at the end of a forward is a module. */
#include "core/nn/modules.h"
#include "core/nn/modules_impl.h"

#include <stdio.h>

static oct_tensor *loss_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const oct_cross_entropy_loss_module *m = (const oct_cross_entropy_loss_module *)self;
    if (!oct_needs_inputs(cx, self, n, 2)) return NULL;
    return oct_cross_entropy_loss(cx, x[0], x[1], m->smoothing);
}

static void describe(const oct_module *self, char *text, size_t size)
{
    const oct_cross_entropy_loss_module *m = (const oct_cross_entropy_loss_module *)self;
    text[0] = '\0';
    if (m->smoothing > 0) oct_snprintf(text, size, "smoothing %g", m->smoothing);
}

static void get_args(const oct_module *self, oct_op_args *args)
{
    *args = *OCT_OP_ARGS(((const oct_cross_entropy_loss_module *)self)->smoothing);
}

static oct_status create(oct_module **m, const oct_op_args *args)
{
    *m = NULL;
    OCT_TRY(oct_args_count("cross_entropy_loss", args, 1));
    OCT_CHECK(args->value[0] >= 0 && args->value[0] <= 1, OCT_USAGE,
              "a cross_entropy_loss cannot have a smoothing of %g; it is 0 to 1", args->value[0]);
    OCT_TRY(
        oct_module_create(m, &oct_cross_entropy_loss_type, sizeof(oct_cross_entropy_loss_module)));
    ((oct_cross_entropy_loss_module *)*m)->smoothing = args->value[0];
    return OCT_OK;
}

const oct_module_type oct_cross_entropy_loss_type = {.name = "cross_entropy_loss",
                                                     .forward = loss_forward,
                                                     .describe = describe,
                                                     .atomic = true,
                                                     .create = create,
                                                     .args = get_args};

oct_status oct_cross_entropy_loss_create(oct_module **m, double smoothing)
{
    return create(m, OCT_OP_ARGS(smoothing));
}
