/* Each elementwise function of the list has a module type. */
#include "core/nn/modules.h"
#include "core/nn/modules_impl.h"

#include <math.h>
#include <stdio.h>

static oct_tensor *elementwise_forward(oct_context *cx, oct_module *self, oct_tensor *const *x,
                                       int n)
{
    const oct_elementwise_module *m = (const oct_elementwise_module *)self;
    if (!oct_needs_inputs(cx, self, n, 1)) return NULL;
    return oct_elementwise_apply(cx, m->function, m->args, x[0]);
}

static void describe(const oct_module *self, char *text, size_t size)
{
    const oct_elementwise_module *m = (const oct_elementwise_module *)self;
    text[0] = '\0';
    if (m->function->num_args == 1) oct_snprintf(text, size, "%g", m->args[0]);
    if (m->function->num_args == 2) oct_snprintf(text, size, "%g, %g", m->args[0], m->args[1]);
}

static void get_args(const oct_module *self, oct_op_args *args)
{
    const oct_elementwise_module *m = (const oct_elementwise_module *)self;
    *args = (oct_op_args){.count = m->function->num_args, .value = {m->args[0], m->args[1]}};
}

static oct_status create(oct_module **m, const oct_module_type *type, const oct_elementwise *f,
                         const oct_op_args *args)
{
    *m = NULL;
    OCT_TRY(oct_args_count(f->name, args, f->num_args));
    for (int i = 0; i < args->count; i++)
        OCT_CHECK(isfinite(args->value[i]), OCT_USAGE, "%s takes finite numbers, but has %g",
                  f->name, args->value[i]);
    OCT_TRY(oct_module_create(m, type, sizeof(oct_elementwise_module)));
    oct_elementwise_module *self = (oct_elementwise_module *)*m;
    self->function = f;
    for (int i = 0; i < f->num_args; i++)
        self->args[i] = args->value[i];
    return OCT_OK;
}

#define GIVEN_0 OCT_NO_ARGS
#define GIVEN_1 OCT_OP_ARGS(first)
#define GIVEN_2 OCT_OP_ARGS(first, second)
#define OCT_ELEMENTWISE(id, num)                                                                   \
    static oct_status id##_from(oct_module **m, const oct_op_args *args)                           \
    {                                                                                              \
        return create(m, &oct_##id##_type, &oct_elementwise_##id, args);                           \
    }                                                                                              \
    const oct_module_type oct_##id##_type = {.name = #id,                                          \
                                             .forward = elementwise_forward,                       \
                                             .describe = describe,                                 \
                                             .atomic = true,                                       \
                                             .create = id##_from,                                  \
                                             .args = get_args};                                    \
    oct_status oct_##id##_create(oct_module **m OCT_ELEMENTWISE_ARGS_##num)                        \
    {                                                                                              \
        return id##_from(m, GIVEN_##num);                                                          \
    }
#include "core/op/elementwise_list.def"
#undef OCT_ELEMENTWISE
