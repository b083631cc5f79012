/* The table of targets, from its list. */
#include "quant/target/target.h"

#include <string.h>

static const oct_target *const targets[] = {
#define OCT_TARGET(id, file) &oct_target_##file,
#include "quant/target/target_list.def"
#undef OCT_TARGET
};

size_t oct_target_count(void)
{
    return OCT_COUNT(targets);
}

const oct_target *oct_target_at(size_t i)
{
    return targets[i];
}

const oct_target *oct_target_find(const char *name)
{
    for (size_t i = 0; i < OCT_COUNT(targets); i++)
        if (strcmp(targets[i]->name, name) == 0) return targets[i];
    return NULL;
}
