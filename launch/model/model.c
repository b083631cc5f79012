/* The table of models, from its list and from plug-ins. */
#include "launch/model/model.h"

#include "core/base/registry.h"

static const void *const listed[] = {
#define OCT_MODEL(id, file) &oct_model_##file,
#include "launch/model/model_list.def"
#undef OCT_MODEL
};
static oct_registry models = {.what = "a model", .listed = listed, .num_listed = OCT_COUNT(listed)};

size_t oct_model_count(void)
{
    return oct_registry_count(&models);
}

const oct_model_spec *oct_model_at(size_t i)
{
    return oct_registry_at(&models, i);
}

const oct_model_spec *oct_model_find(const char *name)
{
    return oct_registry_find(&models, name);
}

oct_status oct_model_register(const oct_model_spec *spec)
{
    return oct_registry_add(&models, spec);
}
