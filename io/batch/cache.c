#include "io/batch/cache.h"

#include "core/base/mem.h"

#include <stdatomic.h>
#include <string.h>

/* What is kept of a sample: image and map, both without data of their own, then their bytes. */
typedef struct kept {
    oct_image image, map;
    uint8_t bytes[];
} kept;

struct oct_cache {
    int64_t count;
    _Atomic int64_t left; /* bytes */
    _Atomic(kept *) *sample;
};

oct_status oct_cache_create(oct_cache **cache, int64_t count, int64_t bytes)
{
    oct_cache *c = NULL;
    OCT_TRY(oct_alloc(&c, 1, sizeof *c));
    *cache = c;
    c->count = count;
    atomic_store(&c->left, bytes);
    const oct_status status = oct_alloc(&c->sample, (size_t)count, sizeof *c->sample);
    if (status != OCT_OK) oct_cache_destroy(cache);
    return status;
}

void oct_cache_destroy(oct_cache **cache)
{
    oct_cache *c = *cache;
    for (int64_t i = 0; c && c->sample && i < c->count; i++) {
        kept *k = atomic_load(&c->sample[i]);
        oct_free(&k);
    }
    if (c) oct_free(&c->sample);
    oct_free(cache);
}

static size_t bytes_of(const oct_image *image)
{
    return (size_t)oct_image_numel(image) * oct_dtype_bytes(image->dtype);
}

static oct_status copy_out(const oct_image *kept_image, const uint8_t *bytes, oct_image *image)
{
    OCT_TRY(
        oct_image_resize(image, kept_image->dtype, kept_image->h, kept_image->w, kept_image->c));
    memcpy(image->data, bytes, bytes_of(kept_image));
    return OCT_OK;
}

oct_status oct_cache_get(const oct_cache *cache, int64_t number, oct_image *image, oct_image *map,
                         bool *found)
{
    const kept *k = atomic_load(&cache->sample[number]);
    *found = k != NULL;
    if (!k) return OCT_OK;
    OCT_TRY(copy_out(&k->image, k->bytes, image));
    return map ? copy_out(&k->map, k->bytes + bytes_of(&k->image), map) : OCT_OK;
}

/* Two threads may keep the same sample at once; the second one's copy is dropped. */
void oct_cache_put(oct_cache *cache, int64_t number, const oct_image *image, const oct_image *map)
{
    const size_t size = bytes_of(image) + (map ? bytes_of(map) : 0);
    kept *k = NULL, *none = NULL;
    if (atomic_fetch_sub(&cache->left, (int64_t)size) < (int64_t)size ||
        oct_alloc(&k, 1, sizeof *k + size) != OCT_OK) {
        atomic_fetch_add(&cache->left, (int64_t)size);
        oct_fail_clear();
        return;
    }
    k->image = *image;
    memcpy(k->bytes, image->data, bytes_of(image));
    if (map) {
        k->map = *map;
        memcpy(k->bytes + bytes_of(image), map->data, bytes_of(map));
    }
    if (!atomic_compare_exchange_strong(&cache->sample[number], &none, k)) {
        atomic_fetch_add(&cache->left, (int64_t)size);
        oct_free(&k);
    }
}
