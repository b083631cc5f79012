/* Tables of things with names. */
#include "core/base/registry.h"

#include <string.h>

static const char *name_of(const void *item)
{
    return *(const char *const *)item;
}

size_t oct_registry_count(const oct_registry *r)
{
    return r->num_listed + r->num_added;
}

const void *oct_registry_at(const oct_registry *r, size_t i)
{
    OCT_ASSERT(i < oct_registry_count(r));
    return i < r->num_listed ? r->listed[i] : r->added[i - r->num_listed];
}

const void *oct_registry_find(const oct_registry *r, const char *name)
{
    for (size_t i = 0; i < oct_registry_count(r); i++)
        if (strcmp(name_of(oct_registry_at(r, i)), name) == 0) return oct_registry_at(r, i);
    return NULL;
}

oct_status oct_registry_add(oct_registry *r, const void *item)
{
    const void *there = oct_registry_find(r, name_of(item));
    if (there == item) return OCT_OK;
    OCT_CHECK(!there, OCT_USAGE, "there is %s '%s' already; give yours another name", r->what,
              name_of(item));
    OCT_CHECK(r->num_added < OCT_REGISTRY_ADDED_MAX, OCT_USAGE,
              "%s '%s' is one too many; plug-ins can add %d", r->what, name_of(item),
              OCT_REGISTRY_ADDED_MAX);
    r->added[r->num_added++] = item;
    return OCT_OK;
}
