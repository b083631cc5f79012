/* The table of models, from its list and from plug-ins, and building blocks that several models share. */
#include "launch/model/model.h"

static const void *const listed[] = {
#define OCT_MODEL(id, file) &oct_model_##file,
#include "launch/model/model_list.def"
#undef OCT_MODEL
};
oct_registry oct_model_table = OCT_REGISTRY("a model", listed);

const oct_model_spec *oct_model_find(const char *name)
{
    return oct_registry_find(&oct_model_table, name);
}

oct_status oct_append_conv_bn(oct_module *sequential, const oct_conv_bn *layer)
{
    OCT_CHECK(sequential && layer, OCT_USAGE, "the sequential or the layer that it gets is NULL");
    const int kernel = layer->kernel ? layer->kernel : 3,
              stride = layer->stride ? layer->stride : 1;
    const oct_conv_geometry g = oct_conv_geometry_of(kernel, kernel, stride, kernel / 2, 1);
    OCT_APPEND(sequential, oct_conv2d_create(&item, layer->in, layer->out, g, false));
    OCT_APPEND(sequential, oct_batch_norm_create(&item, layer->out));
    if (layer->relu) OCT_APPEND(sequential, oct_relu_create(&item));
    return OCT_OK;
}

static bool is_one_of(const oct_module *m, const oct_module_type *a, const oct_module_type *b)
{
    return m->type == a || m->type == b;
}

/* Fuses what follows each other in a sequential: a convolution or linear layer, batch norm, relu. */
static oct_status fuse_sequence(void *user, oct_module *module)
{
    (void)user;
    if (module->type != &oct_sequential_type) return OCT_OK;
    for (size_t first = 0, end; first < module->num_children; first = end) {
        oct_module *const *items = ((const oct_sequential_module *)module)->items;
        const char *names[3];
        end = first + 1;
        if (!is_one_of(items[first], &oct_conv2d_type, &oct_linear_type)) continue;
        if (end < module->num_children && items[end]->type == &oct_batch_norm_type) end++;
        if (end < module->num_children && is_one_of(items[end], &oct_relu_type, &oct_relu6_type))
            end++;
        for (size_t i = first; i < end; i++)
            names[i - first] = module->children[i].name;
        if (end - first > 1) OCT_TRY(oct_fuse_modules(&module, names, end - first, false));
    }
    return OCT_OK;
}

oct_status oct_fuse_sequences(oct_module **root)
{
    return oct_module_walk(*root, fuse_sequence, NULL);
}
