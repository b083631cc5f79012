/* The module dropout acts in training, and hands its input on in evaluation. */
#include "core/nn/modules.h"
#include "core/nn/modules_impl.h"

#include <stdio.h>

static oct_tensor *dropout_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    if (!oct_needs_inputs(cx, self, n, 1)) return NULL;
    return self->training ? oct_dropout(cx, x[0], ((const oct_dropout_module *)self)->p) : x[0];
}

static void describe(const oct_module *self, char *text, size_t size)
{
    oct_snprintf(text, size, "p %g", ((const oct_dropout_module *)self)->p);
}

static void get_args(const oct_module *self, oct_op_args *args)
{
    *args = *OCT_OP_ARGS(((const oct_dropout_module *)self)->p);
}

static oct_status create(oct_module **m, const oct_op_args *args)
{
    *m = NULL;
    OCT_TRY(oct_args_count("dropout", args, 1));
    const double p = args->value[0];
    OCT_CHECK(p >= 0 && p < 1, OCT_USAGE,
              "dropout cannot have the probability %g; give one from 0 to below 1", p);
    OCT_TRY(oct_module_create(m, &oct_dropout_type, sizeof(oct_dropout_module)));
    ((oct_dropout_module *)*m)->p = p;
    return OCT_OK;
}

const oct_module_type oct_dropout_type = {.name = "dropout",
                                          .forward = dropout_forward,
                                          .describe = describe,
                                          .atomic = true,
                                          .create = create,
                                          .args = get_args};

oct_status oct_dropout_create(oct_module **m, double p)
{
    return create(m, OCT_OP_ARGS(p));
}
