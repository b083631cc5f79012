/* The table of models, from its list and from plug-ins. */
#include "launch/model/model.h"

#include <string.h>

static const oct_model_spec *const models[] = {
#define OCT_MODEL(id, file) &oct_model_##file,
#include "launch/model/model_list.def"
#undef OCT_MODEL
};

enum { ADDED_MAX = 64 };
static const oct_model_spec *added[ADDED_MAX];
static size_t num_added;

size_t oct_model_count(void)
{
    return OCT_COUNT(models) + num_added;
}

const oct_model_spec *oct_model_at(size_t i)
{
    OCT_ASSERT(i < oct_model_count());
    return i < OCT_COUNT(models) ? models[i] : added[i - OCT_COUNT(models)];
}

const oct_model_spec *oct_model_find(const char *name)
{
    for (size_t i = 0; i < oct_model_count(); i++)
        if (strcmp(oct_model_at(i)->name, name) == 0) return oct_model_at(i);
    return NULL;
}

oct_status oct_model_register(const oct_model_spec *spec)
{
    const oct_model_spec *there = oct_model_find(spec->name);
    if (there == spec) return OCT_OK;
    OCT_CHECK(!there, OCT_USAGE, "there is a model '%s' already; give yours another name",
              spec->name);
    OCT_CHECK(num_added < ADDED_MAX, OCT_USAGE, "model '%s': plug-ins can add %d at most",
              spec->name, ADDED_MAX);
    added[num_added++] = spec;
    return OCT_OK;
}
