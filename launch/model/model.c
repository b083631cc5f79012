/* The table of models, from its list. */
#include "launch/model/model.h"

#include <string.h>

static const oct_model_spec *const models[] = {
#define OCT_MODEL(id, file) &oct_model_##file,
#include "launch/model/model_list.def"
#undef OCT_MODEL
};

size_t oct_model_count(void)
{
    return OCT_COUNT(models);
}

const oct_model_spec *oct_model_at(size_t i)
{
    return models[i];
}

const oct_model_spec *oct_model_find(const char *name)
{
    for (size_t i = 0; i < OCT_COUNT(models); i++)
        if (strcmp(models[i]->name, name) == 0) return models[i];
    return NULL;
}
