/* A sequential calls its modules one after another. */
#include "core/nn/modules.h"

#include <stdio.h>

/* Passes may add children that are no items. */
static size_t count_items(const oct_sequential_module *m)
{
    size_t count = 0;
    while (count < OCT_SEQUENTIAL_MAX && m->items[count])
        count++;
    return count;
}

static oct_tensor *sequential_forward(oct_context *cx, oct_module *self, oct_tensor *const *x,
                                      int n)
{
    oct_sequential_module *m = (oct_sequential_module *)self;
    (void)n;
    oct_tensor *y = x[0];
    for (size_t i = 0, count = count_items(m); i < count; i++)
        y = oct_call(cx, m->items[i], y);
    return y;
}

static void describe_sequential(const oct_module *self, char *text, size_t size)
{
    snprintf(text, size, "%zu modules", count_items((const oct_sequential_module *)self));
}

const oct_module_type oct_sequential_type = {.name = "sequential",
                                             .forward = sequential_forward,
                                             .inputs = 1,
                                             .describe = describe_sequential,
                                             .calls_only = true};

oct_status oct_sequential_create(oct_module **m)
{
    return oct_module_create(m, &oct_sequential_type, sizeof(oct_sequential_module));
}

oct_status oct_sequential_append(oct_module *sequential, oct_module **item)
{
    oct_sequential_module *self = (oct_sequential_module *)sequential;
    size_t at = count_items(self);
    if (at == OCT_SEQUENTIAL_MAX) {
        oct_module_destroy(item);
        return oct_fail(OCT_USAGE, "a sequential holds at most %d modules; put one inside another",
                        OCT_SEQUENTIAL_MAX);
    }
    char name[24];
    snprintf(name, sizeof name, "%zu", at);
    self->items[at] = *item;
    *item = NULL;
    return oct_module_add_child(sequential, name, &self->items[at]);
}
