/* A cache keeps samples as they were decoded, before transforms, until its room is used up. Several threads
 * read and fill it at once. */
#pragma once

#include "io/image/image.h"

typedef struct oct_cache oct_cache;

/* For samples 0 to count - 1. */
oct_status oct_cache_create(oct_cache **cache, int64_t count, int64_t bytes) OCT_NODISCARD;
void oct_cache_destroy(oct_cache **cache);
/* Copies a sample, and its map unless that is NULL, out of the cache; *found: was it there? */
oct_status oct_cache_get(const oct_cache *cache, int64_t number, oct_image *image, oct_image *map,
                         bool *found) OCT_NODISCARD;
/* Keeps a copy where there is room; otherwise, or without memory, nothing happens. */
void oct_cache_put(oct_cache *cache, int64_t number, const oct_image *image, const oct_image *map);
