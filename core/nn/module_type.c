/* Module types are found by name: the lists of this program, then what plug-ins added. */
#include "core/base/registry.h"
#include "core/nn/modules.h"

#include <string.h>

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
    OCT_CHECK(type->args && type->size >= sizeof(oct_module) &&
                  type->args->bytes <= OCT_ARGS_BYTES && type->args->count <= OCT_MAX_ARGS &&
                  type->args_at + type->args->bytes <= type->size,
              OCT_USAGE,
              "module type '%s' cannot be made from arguments; give it args and size, the size of "
              "its struct (core/nn/module.h)",
              type->name);
    return oct_registry_add(&types, type);
}

oct_status oct_module_make(oct_module **m, const oct_module_type *type, const void *args)
{
    *m = NULL;
    OCT_TRY(oct_args_check(type->args, type->name, args));
    OCT_TRY(oct_module_create(m, type, type->size));
    if (args) memcpy((char *)*m + type->args_at, args, type->args->bytes);
    return type->init ? oct_module_made(m, type->init(*m)) : OCT_OK;
}

oct_status oct_module_from(oct_module **m, const oct_module_type *type, const oct_op_args *row)
{
    oct_args_buffer args;
    *m = NULL;
    OCT_TRY(oct_args_read(type->args, type->name, row, &args));
    return oct_module_make(m, type, &args);
}

static const void *args_of(const oct_module *m)
{
    return (const char *)m + m->type->args_at;
}

void oct_module_args(const oct_module *m, oct_op_args *row)
{
    *row = (oct_op_args){0};
    if (m->type->args) oct_args_write(m->type->args, args_of(m), row);
}

void oct_module_describe(const oct_module *m, char *text, size_t size)
{
    text[0] = '\0';
    if (m->type->describe)
        m->type->describe(m, text, size);
    else if (m->type->args)
        oct_args_describe(m->type->args, args_of(m), text, size);
}
