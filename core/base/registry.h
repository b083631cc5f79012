/* Tables of things with names: those of this program's list, then those that plug-ins add at the start
 * of the process. Whatever they are, their structs begin with the name, a const char *. */
#pragma once

#include "core/base/status.h"

enum { OCT_REGISTRY_ADDED_MAX = 64 };

typedef struct oct_registry {
    const char *what; /* "a model": for messages */
    const void *const *listed;
    size_t num_listed, num_added;
    const void *added[OCT_REGISTRY_ADDED_MAX];
} oct_registry;

size_t oct_registry_count(const oct_registry *r);
const void *oct_registry_at(const oct_registry *r, size_t i);
const void *oct_registry_find(const oct_registry *r, const char *name); /* NULL */
/* `item` lives as long as the process; adding it twice is fine. OCT_USAGE when another one has its name
 * or the table is full. */
oct_status oct_registry_add(oct_registry *r, const void *item) OCT_NODISCARD;
