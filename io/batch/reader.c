/* Samples that were asked for stand in a ring, in the order in which they will be used. A thread takes the
 * first that no other one reads; the user waits for those in front. Failures are texts of their sample, since
 * the record of failures belongs to a thread.
 */
#include "io/batch/reader.h"

#include "core/base/mem.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Image and map without their data, then the bytes of both. */
typedef struct cached_sample {
    oct_image image, map;
    uint8_t bytes[];
} cached_sample;

struct oct_cache {
    int64_t count;
    _Atomic int64_t left; /* bytes */
    _Atomic(cached_sample *) *sample;
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
        cached_sample *k = atomic_load(&c->sample[i]);
        oct_free(&k);
    }
    if (c) oct_free(&c->sample);
    oct_free(cache);
}

static size_t image_bytes(const oct_image *image)
{
    return (size_t)oct_image_numel(image) * oct_dtype_bytes(image->dtype);
}

static oct_status copy_image(const oct_image *from, const uint8_t *bytes, oct_image *image)
{
    OCT_TRY(oct_image_resize(image, from->dtype, from->h, from->w, from->c));
    memcpy(image->data, bytes, image_bytes(from));
    return OCT_OK;
}

/* Copies a sample, and its map unless that is NULL, out of the cache; *found: was it there? */
static oct_status copy_from_cache(const oct_cache *cache, int64_t number, oct_image *image,
                                  oct_image *map, bool *found)
{
    const cached_sample *k = atomic_load(&cache->sample[number]);
    *found = k != NULL;
    if (!k) return OCT_OK;
    OCT_TRY(copy_image(&k->image, k->bytes, image));
    return map ? copy_image(&k->map, k->bytes + image_bytes(&k->image), map) : OCT_OK;
}

/* Keeps a copy where there is room; otherwise, or without memory, nothing happens. Two threads may keep the same sample
 * at once; the second one's copy is dropped. */
static void add_to_cache(oct_cache *cache, int64_t number, const oct_image *image,
                         const oct_image *map)
{
    const size_t size = image_bytes(image) + (map ? image_bytes(map) : 0);
    cached_sample *k = NULL, *none = NULL;
    if (atomic_fetch_sub(&cache->left, (int64_t)size) < (int64_t)size ||
        oct_alloc(&k, 1, sizeof *k + size) != OCT_OK) {
        atomic_fetch_add(&cache->left, (int64_t)size);
        oct_fail_clear();
        return;
    }
    k->image = *image;
    memcpy(k->bytes, image->data, image_bytes(image));
    if (map) {
        k->map = *map;
        memcpy(k->bytes + image_bytes(image), map->data, image_bytes(map));
    }
    if (!atomic_compare_exchange_strong(&cache->sample[number], &none, k)) {
        atomic_fetch_add(&cache->left, (int64_t)size);
        oct_free(&k);
    }
}

static const void *const damaged_modes[] = {OCT_DAMAGED_LIST(OCT_WORD_ITEM)};
const oct_registry oct_damaged_mode_table = OCT_REGISTRY("a mode", damaged_modes);

/* Reads sample `number` from the cache or the data set, checks its map and transforms it. */
static oct_status read_transformed(const oct_reader_options *o, int64_t number,
                                   const oct_draw *draw, oct_sample *s)
{
    const oct_dataset *data = o->data;
    oct_image *map = data->goal == OCT_GOAL_MAP ? &s->map : NULL;
    bool found = false;
    if (o->cache) OCT_TRY(copy_from_cache(o->cache, number, &s->image, map, &found));
    if (!found) {
        OCT_TRY(data->format->read(data, number, &s->image, map));
        if (o->cache) add_to_cache(o->cache, number, &s->image, map);
    }
    if (map) {
        const int64_t pixels = map->h * map->w;
        OCT_CHECK(map->h == s->image.h && map->w == s->image.w && map->dtype == OCT_S32, OCT_DATA,
                  "the map of sample %" PRId64 " has %" PRId64 "x%" PRId64
                  " pixels, but its image %" PRId64 "x%" PRId64,
                  number, map->h, map->w, s->image.h, s->image.w);
        for (int64_t i = 0; i < pixels; i++)
            OCT_CHECK(
                ((const int32_t *)map->data)[i] < data->classes, OCT_DATA,
                "the map of sample %" PRId64 " holds class %d, but there are %" PRId64
                " classes; raise data.classes, or use a negative number for pixels without one",
                number, (int)((const int32_t *)map->data)[i], data->classes);
    }
    OCT_TRY(oct_augment_run(o->augment, draw, &s->image, map));
    OCT_ASSERT(s->image.dtype == data->dtype);
    OCT_CHECK(s->image.h == data->h && s->image.w == data->w && s->image.c == data->c, OCT_DATA,
              "sample %" PRId64 " of the data set has %" PRId64 "x%" PRId64 "x%" PRId64
              " numbers, but the model takes %" PRId64 "x%" PRId64 "x%" PRId64,
              number, s->image.h, s->image.w, s->image.c, data->h, data->w, data->c);
    return OCT_OK;
}

void oct_read_sample(const oct_reader_options *o, const oct_place *place, oct_sample *s)
{
    const int64_t count = o->data->count;
    s->place = *place;
    s->number = place->sample;
    s->damaged = 0;
    s->text[0] = '\0';
    s->status = read_transformed(o, s->number, &place->draw, s);
    if (s->status == OCT_OK) return;
    const bool refused = s->status == OCT_DATA && o->damaged_mode == OCT_DAMAGED_REFUSE;
    snprintf(s->text, sizeof s->text, "%s%s",
             oct_error_message(0), /* of the first, also when skipped */
             refused ? "; data.damaged=skip takes another sample in its place" : "");
    while (s->status == OCT_DATA && o->damaged_mode == OCT_DAMAGED_SKIP && ++s->damaged < count) {
        s->number = (s->number + 1) % count;
        s->status = read_transformed(o, s->number, &place->draw, s);
        if (s->status != OCT_OK && s->status != OCT_DATA)
            snprintf(s->text, sizeof s->text, "%s", oct_error_message(0));
    }
    oct_fail_clear();
}

void oct_sample_free(oct_sample *s)
{
    oct_image_free(&s->image);
    oct_image_free(&s->map);
}

struct oct_reader {
    oct_reader_options options;
    oct_sample *ring;
    bool *ready;
    int64_t size;
    /* Samples are numbered as they were asked for: [first, next) are being read or ready, [next, end) wait. */
    int64_t first, next, end;
    int reading; /* threads that read at this moment */
    bool stop;
    pthread_mutex_t lock;
    pthread_cond_t asked, done;
    pthread_t *thread;
    int threads;
};

/* A thread of the reader: reads the next sample that waits, again and again. */
static void *read_ahead(void *user)
{
    oct_reader *r = user;
    pthread_mutex_lock(&r->lock);
    for (;;) {
        while (!r->stop && r->next == r->end)
            pthread_cond_wait(&r->asked, &r->lock);
        if (r->stop) break;
        const int64_t at = r->next++ % r->size;
        r->reading++;
        pthread_mutex_unlock(&r->lock);
        const oct_place place = r->ring[at].place;
        oct_read_sample(&r->options, &place, &r->ring[at]);
        pthread_mutex_lock(&r->lock);
        r->reading--;
        r->ready[at] = true;
        pthread_cond_broadcast(&r->done);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

oct_status oct_reader_create(oct_reader **reader, const oct_reader_options *options, int threads,
                             int64_t room)
{
    oct_reader *r = NULL;
    oct_status status = OCT_OK;
    sigset_t all, before;
    int error = 0;
    OCT_TRY(oct_alloc(&r, 1, sizeof *r));
    r->options = *options;
    r->size = room;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->asked, NULL);
    pthread_cond_init(&r->done, NULL);
    OCT_TRY_OUT(oct_alloc(&r->ring, (size_t)room, sizeof *r->ring));
    OCT_TRY_OUT(oct_alloc(&r->ready, (size_t)room, sizeof *r->ready));
    OCT_TRY_OUT(oct_alloc(&r->thread, (size_t)threads, sizeof *r->thread));
    /* Signals are for the thread that runs the program. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; r->threads < threads && error == 0; r->threads += error == 0)
        error = pthread_create(&r->thread[r->threads], NULL, read_ahead, r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    OCT_CHECK_OUT(error == 0, OCT_RESOURCE, "data.prefetch_threads: cannot start %d threads: %s",
                  threads, strerror(error));
out:
    if (status != OCT_OK) oct_reader_destroy(&r);
    *reader = r;
    return status;
}

void oct_reader_destroy(oct_reader **reader)
{
    oct_reader *r = *reader;
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->asked);
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->threads; i++)
        pthread_join(r->thread[i], NULL);
    for (int64_t i = 0; r->ring && i < r->size; i++)
        oct_sample_free(&r->ring[i]);
    pthread_cond_destroy(&r->asked);
    pthread_cond_destroy(&r->done);
    pthread_mutex_destroy(&r->lock);
    OCT_FREE_ALL(&r->ring, &r->ready, &r->thread, reader);
}

int64_t oct_reader_room(const oct_reader *r)
{
    return r->size - (r->end - r->first);
}

int64_t oct_reader_asked(const oct_reader *r)
{
    return r->end - r->first;
}

bool oct_reader_expect(oct_reader *r, int64_t i, const oct_place *place)
{
    if (i >= oct_reader_asked(r)) return false;
    const oct_place *asked = &r->ring[(r->first + i) % r->size].place;
    if (asked->sample == place->sample && asked->draw.index == place->draw.index &&
        asked->draw.seed == place->draw.seed)
        return true;
    /* What waits is dropped; what is being read is waited for. */
    pthread_mutex_lock(&r->lock);
    r->end = r->next;
    while (r->reading > 0)
        pthread_cond_wait(&r->done, &r->lock);
    r->first = r->next;
    pthread_mutex_unlock(&r->lock);
    return false;
}

void oct_reader_ask(oct_reader *r, const oct_place *place)
{
    OCT_ASSERT(oct_reader_room(r) > 0);
    pthread_mutex_lock(&r->lock);
    r->ring[r->end % r->size].place = *place;
    r->ready[r->end % r->size] = false;
    r->end++;
    pthread_cond_signal(&r->asked);
    pthread_mutex_unlock(&r->lock);
}

const oct_sample *oct_reader_wait(oct_reader *r, int64_t i)
{
    const int64_t at = (r->first + i) % r->size;
    OCT_ASSERT(i < oct_reader_asked(r));
    pthread_mutex_lock(&r->lock);
    while (!r->ready[at])
        pthread_cond_wait(&r->done, &r->lock);
    pthread_mutex_unlock(&r->lock);
    return &r->ring[at];
}

void oct_reader_release(oct_reader *r, int64_t n)
{
    pthread_mutex_lock(&r->lock);
    r->first += n;
    pthread_mutex_unlock(&r->lock);
}
