/* Module types are found by name: the lists of this program, what plug-ins added, then those of specs. */
#include "core/base/mem.h"
#include "core/base/registry.h"
#include "core/nn/modules.h"

#include <pthread.h>
#include <string.h>

static const void *const listed[] = {
#define OCT_MODULE(name) &oct_##name##_type,
#include "core/nn/module_list.def"
#undef OCT_MODULE
};
static oct_registry types = OCT_REGISTRY("a module type", listed);

/* The type inside that a spec has, made when the spec is first used, which lives as long as the process. */
typedef struct spec_type {
    oct_module_type type;
    oct_arg_list list;
    const oct_module_spec *spec;
    struct spec_type *next;
} spec_type;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of spec_types */
static spec_type *spec_types;

/* Finds a spec's type, by the spec or, where files can have its modules, by its name. Under the lock. */
static const oct_module_type *find_spec_type(const oct_module_spec *spec, const char *name)
{
    const spec_type *t = spec_types;
    while (t && t->spec != spec &&
           !(name && t->type.atomic && t->type.args && strcmp(t->type.name, name) == 0))
        t = t->next;
    return t ? &t->type : NULL;
}

/* Can a module of the spec be made again from its arguments? */
static bool is_listed(const oct_module_spec *spec)
{
    return spec->num_args > 0 || (spec->lists_args && spec->args_bytes == 0);
}

const oct_module_type *oct_module_type_find(const char *name)
{
    const oct_module_type *type = oct_registry_find(&types, name);
    if (type) return type;
    pthread_mutex_lock(&lock);
    type = find_spec_type(NULL, name);
    pthread_mutex_unlock(&lock);
    return type;
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

static oct_status check_spec(const oct_module_spec *spec)
{
    static const size_t bytes[] = {[OCT_ARG_BOOL] = sizeof(bool),
                                   [OCT_ARG_INT] = sizeof(int),
                                   [OCT_ARG_INT64] = sizeof(int64_t),
                                   [OCT_ARG_FLOAT] = sizeof(float),
                                   [OCT_ARG_DOUBLE] = sizeof(double)};
    OCT_CHECK(spec && spec->name, OCT_USAGE, "a module's spec, or its name, is NULL");
    OCT_CHECK(oct_is_module_name(spec->name), OCT_USAGE,
              "'%s' is no name for a module type; use 1 to %d of a-z, 0-9 and _", spec->name,
              OCT_NAME_MAX);
    OCT_CHECK(!oct_registry_find(&types, spec->name) &&
                  !(spec->atomic && is_listed(spec) && find_spec_type(spec, spec->name)),
              OCT_USAGE, "there is a module type '%s' already; give yours another name",
              spec->name);
    OCT_CHECK(spec->forward && spec->inputs >= 0 && spec->inputs <= OCT_MAX_INPUTS &&
                  spec->data_bytes <= PTRDIFF_MAX / 2,
              OCT_USAGE,
              "module type '%s' needs a forward, 0 to %d inputs, and data that fit into memory",
              spec->name, OCT_MAX_INPUTS);
    OCT_CHECK(spec->num_args >= 0 && spec->num_args <= OCT_MAX_ARGS &&
                  spec->args_bytes <= OCT_ARGS_BYTES && (spec->args || spec->num_args == 0),
              OCT_USAGE,
              "module type '%s' has %d arguments in %zu bytes; it may have a table of up to %d in "
              "%d",
              spec->name, spec->num_args, spec->args_bytes, OCT_MAX_ARGS, OCT_ARGS_BYTES);
    for (const oct_arg *a = spec->args; a < spec->args + spec->num_args; a++) {
        const size_t size = (size_t)a->type < OCT_COUNT(bytes) ? bytes[a->type] : SIZE_MAX;
        OCT_CHECK(a->name && size <= spec->args_bytes && a->offset <= spec->args_bytes - size &&
                      a->offset % size == 0 && (a->type == OCT_ARG_BOOL || a->least <= a->most),
                  OCT_USAGE,
                  "module type '%s': argument %td, %s, needs a name, a type, a place in the %zu "
                  "bytes of the arguments, and bounds in ascending order",
                  spec->name, a - spec->args, a->name ? a->name : "NULL", spec->args_bytes);
    }
    return OCT_OK;
}

/* Finds or makes the type of a spec. */
static oct_status type_of_spec(const oct_module_spec *spec, const oct_module_type **type)
{
    oct_status status = OCT_OK;
    pthread_mutex_lock(&lock);
    *type = spec ? find_spec_type(spec, NULL) : NULL;
    OCT_CHECK_OUT(!*type || ((*type)->name == spec->name && (*type)->forward == spec->forward &&
                             (*type)->init == spec->init &&
                             (*type)->size == (*type)->data_at + spec->data_bytes),
                  OCT_USAGE,
                  "the spec of module type '%s' has changed, but it must stay as it is as long as "
                  "the process lives",
                  (*type)->name);
    if (*type) goto out;
    OCT_TRY_OUT(check_spec(spec));
    OCT_ASSERT(spec);
    spec_type *t;
    OCT_TRY_OUT(oct_alloc(&t, 1, sizeof *t));
    oct_mem_count(-(int64_t)sizeof *t); /* nobody frees it, so it is in nobody's balance */
    const size_t args_at = oct_cache_aligned(sizeof(oct_module));
    const size_t data_at = args_at + oct_cache_aligned(spec->args_bytes);
    t->spec = spec;
    t->list = (oct_arg_list){.bytes = spec->args_bytes, .arg = spec->args, .count = spec->num_args};
    t->type = (oct_module_type){.name = spec->name,
                                .forward = spec->forward,
                                .inputs = spec->inputs,
                                .destroy = spec->destroy,
                                .atomic = spec->atomic,
                                .args = is_listed(spec) ? &t->list : NULL,
                                .size = data_at + spec->data_bytes,
                                .args_at = spec->args_bytes > 0 ? args_at : 0,
                                .data_at = data_at,
                                .init = spec->init,
                                .calls_only = spec->calls_only};
    t->next = spec_types;
    spec_types = t;
    *type = &t->type;
out:
    pthread_mutex_unlock(&lock);
    return status;
}

oct_status oct_module_spec_register(const oct_module_spec *spec)
{
    const oct_module_type *type;
    return type_of_spec(spec, &type);
}

/* Makes a module with a copy of its arguments, which are good. */
static oct_status make(oct_module **m, const oct_module_type *type, const void *args, size_t bytes)
{
    OCT_TRY(oct_module_alloc(m, type, type->size));
    OCT_ASSERT(m);
    if (args) memcpy((char *)*m + type->args_at, args, bytes);
    return type->init ? oct_module_made(m, type->init(*m)) : OCT_OK;
}

oct_status oct_module_make(oct_module **m, const oct_module_type *type, const void *args)
{
    if (m) *m = NULL;
    OCT_CHECK(args || type->args->bytes == 0, OCT_USAGE, "the arguments of a %s are NULL",
              type->name);
    OCT_TRY(oct_args_check(type->args, type->name, args));
    return make(m, type, args, type->args->bytes);
}

oct_status oct_module_create(oct_module **m, const oct_module_spec *spec, const void *args)
{
    static const oct_args_buffer zeros;
    const oct_module_type *type;
    if (m) *m = NULL;
    OCT_TRY(type_of_spec(spec, &type));
    if (!args) args = &zeros;
    return type->args ? oct_module_make(m, type, args) : make(m, type, args, spec->args_bytes);
}

void *oct_module_data(oct_module *m)
{
    const bool has_data = m && m->type->data_at > 0 && m->type->data_at < m->type->size;
    return has_data ? (char *)m + m->type->data_at : NULL;
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

const void *oct_module_own_args(const oct_module *m)
{
    return m && m->type->args_at > 0 ? args_of(m) : NULL;
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
