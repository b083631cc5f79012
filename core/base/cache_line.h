/* Memory in whole cache lines, so that no two threads or arrays share one. */
#pragma once

#include <stddef.h>

enum { OCT_CACHE_LINE = 64 };

/* Rounds up to whole cache lines. */
static inline size_t oct_cache_aligned(size_t bytes)
{
    return (bytes + OCT_CACHE_LINE - 1) / OCT_CACHE_LINE * OCT_CACHE_LINE;
}

/* Takes the next `bytes` of memory after the *used taken ones, in whole cache lines. memory NULL only
 * counts, and returns NULL. */
static inline void *oct_carve(void *memory, size_t *used, size_t bytes)
{
    void *taken = memory ? (char *)memory + *used : NULL;
    *used += oct_cache_aligned(bytes);
    return taken;
}
