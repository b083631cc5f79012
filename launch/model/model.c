/* The table of models comes from its list and from plug-ins. */
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
