/* Module types by name: the lists of this program, then what plug-ins added. */
#include "core/nn/modules.h"

#include <string.h>

static const oct_module_type *const listed[] = {
#define OCT_MODULE(name) &oct_##name##_type,
#include "core/nn/module_list.def"
#undef OCT_MODULE
#define OCT_ELEMENTWISE(name) &oct_##name##_type,
#include "core/op/elementwise_list.def"
#undef OCT_ELEMENTWISE
};

enum { MOST_ADDED = 64 };
static const oct_module_type *added[MOST_ADDED];
static size_t num_added;

static const oct_module_type *find(const oct_module_type *const *types, size_t count,
                                   const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(types[i]->name, name) == 0) return types[i];
    return NULL;
}

const oct_module_type *oct_module_type_find(const char *name)
{
    const oct_module_type *type = find(listed, OCT_COUNT(listed), name);
    return type ? type : find(added, num_added, name);
}

oct_status oct_module_type_register(const oct_module_type *type)
{
    const oct_module_type *known = oct_module_type_find(type->name);
    if (known == type) return OCT_OK;
    OCT_CHECK(!known, OCT_USAGE, "there is a module type \"%s\" already; take another name",
              type->name);
    OCT_CHECK(type->create && type->args, OCT_USAGE,
              "module type \"%s\" cannot be made from arguments; give it create and args",
              type->name);
    OCT_CHECK(num_added < MOST_ADDED, OCT_USAGE,
              "module type \"%s\" is one too many; plug-ins may add %d", type->name, MOST_ADDED);
    added[num_added++] = type;
    return OCT_OK;
}
