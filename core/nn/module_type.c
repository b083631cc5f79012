/* Module types are found by name: the lists of this program, then what plug-ins added. */
#include "core/base/registry.h"
#include "core/nn/modules.h"

static const void *const listed[] = {
#define OCT_MODULE(name) &oct_##name##_type,
#include "core/nn/module_list.def"
#undef OCT_MODULE
};
static oct_registry types = OCT_REGISTRY("a module type", listed);

const oct_module_type *oct_module_type_find(const char *name)
{
    return oct_registry_find(&types, name);
}

bool oct_module_type_is_listed(const oct_module_type *type)
{
    for (size_t i = 0; i < OCT_COUNT(listed); i++)
        if (listed[i] == type) return true;
    return false;
}

oct_status oct_module_type_register(const oct_module_type *type)
{
    OCT_CHECK(type->create && type->args, OCT_USAGE,
              "module type '%s' cannot be made from arguments; give it create and args",
              type->name);
    return oct_registry_add(&types, type);
}
