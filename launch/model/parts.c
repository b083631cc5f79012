/* These are building blocks that several models share. */
#include "launch/model/parts.h"

#include "quant/prepare/prepare.h"

oct_status oct_append_conv_bn(oct_module *sequential, int64_t in, int64_t out, int kernel,
                              int stride, bool relu)
{
    oct_conv_geometry geometry = oct_conv_geometry_of(kernel, kernel, stride, kernel / 2, 1);
    OCT_APPEND(sequential, oct_conv2d_create(&item, in, out, geometry, false));
    OCT_APPEND(sequential, oct_batch_norm_create(&item, out));
    if (relu) OCT_APPEND(sequential, oct_relu_create(&item));
    return OCT_OK;
}

static bool is_one_of(const oct_module *m, const oct_module_type *a, const oct_module_type *b)
{
    return m->type == a || m->type == b;
}

/* Counts the items from `first` on that can become one module. */
static size_t count_fusible(const oct_module *sequential, size_t first)
{
    oct_module *const *items = ((const oct_sequential_module *)sequential)->items;
    size_t end = first, count = sequential->num_children;
    if (!is_one_of(items[end++], &oct_conv2d_type, &oct_linear_type)) return 1;
    if (end < count && items[end]->type == &oct_batch_norm_type) end++;
    if (end < count && is_one_of(items[end], &oct_relu_type, &oct_relu6_type)) end++;
    return end - first;
}

static oct_status fuse_sequence(void *user, oct_module *module)
{
    (void)user;
    if (module->type != &oct_sequential_type) return OCT_OK;
    for (size_t first = 0, count; first < module->num_children; first += count) {
        const char *names[3];
        count = count_fusible(module, first);
        for (size_t i = 0; i < count; i++)
            names[i] = module->children[first + i].name;
        if (count > 1) OCT_TRY(oct_fuse_modules(&module, names, count, false));
    }
    return OCT_OK;
}

oct_status oct_fuse_sequences(oct_module **root)
{
    return oct_module_walk(*root, fuse_sequence, NULL);
}
