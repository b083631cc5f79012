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

static bool lists(const char *const *names, const char *name)
{
    for (; names && *names; names++)
        if (strcmp(*names, name) == 0) return true;
    return false;
}

bool oct_target_fuses(const oct_target *target, const char *fusion)
{
    return !lists(target->no_fusions, fusion);
}

bool oct_target_runs(const oct_target *target, const char *op)
{
    return !lists(target->no_ops, op);
}
