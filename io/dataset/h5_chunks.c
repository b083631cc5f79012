/* Arrays of HDF5 in chunks: all are found when the array is opened; a sample reads those that it lies in.
 *
 * A chunk is unpacked each time that one of its samples is read, so that nothing is shared between
 * threads: chunks of one sample cost the least.
 */
#include "io/dataset/h5_file.h"

#include "core/base/mem.h"

#include <inttypes.h>
#include <string.h>
#include <zlib.h>

enum { DEFLATE_RATIO = 1032, CHUNK_MAX = 1 << 28, LEVELS_MAX = 32, PACKED_MORE = 4096 };
static const uint64_t nowhere = UINT64_MAX;

typedef struct chunk {
    uint64_t at;                /* nowhere: not found yet */
    uint32_t bytes, unfiltered; /* unfiltered: a bit for each filter that was left out */
} chunk;

typedef struct chunks {
    oct_h5_chunking c;
    int64_t dim[OCT_MAX_DIMS];  /* of the array, 1 beyond its dimensions */
    int64_t grid[OCT_MAX_DIMS]; /* chunks along each */
    int64_t count;
    size_t bytes; /* of an unpacked chunk */
    chunk *chunk;
} chunks;

static void drop(oct_array *array)
{
    chunks *k = array->store;
    if (k) oct_free(&k->chunk);
    oct_free(&array->store);
}

/* Where a chunk stands in the grid, by the first element in it; -1 when it belongs nowhere. */
static int64_t place_of(const chunks *k, const uint8_t *offsets)
{
    int64_t place = 0;
    for (int i = 0; i < k->c.ndim; i++) {
        const uint64_t offset = oct_h5_number(offsets + 8 * i, 8);
        const uint64_t step = (uint64_t)k->c.dim[i];
        if (offset % step != 0 || offset / step >= (uint64_t)k->grid[i]) return -1;
        place = place * k->grid[i] + (int64_t)(offset / step);
    }
    return place;
}

static oct_status take_chunk(oct_array *array, const uint8_t *key, uint64_t at)
{
    chunks *k = array->store;
    const int64_t place = place_of(k, key + 8);
    const chunk found = {at, (uint32_t)oct_h5_number(key, 4), (uint32_t)oct_h5_number(key + 4, 4)};
    const uint64_t size = (uint64_t)array->span.size;
    if (place < 0 || k->chunk[place].at != nowhere || at > size || found.bytes > size - at ||
        k->bytes / DEFLATE_RATIO > found.bytes || found.bytes / 2 > k->bytes + PACKED_MORE)
        return oct_h5_array_damaged(array);
    k->chunk[place] = found;
    return OCT_OK;
}

/* A node of the tree: keys with a child between each two. `left`: nodes that may still come. */
static oct_status walk(oct_array *array, uint64_t at, int levels, int64_t *left)
{
    enum { HEAD = 24 };
    const chunks *k = array->store;
    uint8_t head[HEAD], key[8 + 8 * (OCT_MAX_DIMS + 1) + 8];
    const size_t key_bytes = 8 + 8 * (size_t)(k->c.ndim + 1), step = key_bytes + 8;
    if (--*left < 0 || at > (uint64_t)array->span.size) return oct_h5_array_damaged(array);
    OCT_TRY(oct_span_read(&array->span, (int64_t)at, head, sizeof head, array->name));
    if (memcmp(head, "TREE", 4) != 0 || head[4] != 1 || head[5] >= levels)
        return oct_h5_array_damaged(array);
    const uint64_t count = oct_h5_number(head + 6, 2);
    for (uint64_t i = 0; i < count; i++) {
        OCT_TRY(
            oct_span_read(&array->span, (int64_t)(at + HEAD + i * step), key, step, array->name));
        const uint64_t child = oct_h5_number(key + key_bytes, 8);
        OCT_TRY(head[5] == 0 ? take_chunk(array, key, child) : walk(array, child, head[5], left));
    }
    return OCT_OK;
}

static oct_status lay_grid(oct_array *array, chunks *k)
{
    char text[96];
    int64_t elements = 1;
    k->count = 1;
    if (k->c.ndim != array->shape.ndim) return oct_h5_array_damaged(array);
    for (int i = 0; i < OCT_MAX_DIMS; i++) {
        const bool real = i < k->c.ndim;
        if (!real) k->c.dim[i] = 1;
        k->dim[i] = real ? array->shape.dim[i] : 1;
        if (k->c.dim[i] < 1 || __builtin_mul_overflow(elements, k->c.dim[i], &elements) ||
            elements > CHUNK_MAX)
            return oct_h5_array_damaged(array);
        k->grid[i] = k->dim[i] / k->c.dim[i] + (k->dim[i] % k->c.dim[i] != 0);
        if (__builtin_mul_overflow(k->count, k->grid[i], &k->count))
            return oct_h5_array_damaged(array);
    }
    k->bytes = (size_t)elements * array->bytes;
    /* Each chunk has an entry of at least 32 bytes in the file. */
    OCT_CHECK(k->count <= array->span.size / 32 && k->bytes <= CHUNK_MAX, OCT_DATA,
              "%s: its shape %s and its chunks are more than the file can hold, or chunks are not "
              "filled",
              array->name, oct_shape_text(&array->shape, text));
    return OCT_OK;
}

static oct_status check_all_there(const oct_array *array)
{
    const chunks *k = array->store;
    for (int64_t i = 0; i < k->count; i++) {
        OCT_CHECK(k->chunk[i].at != nowhere, OCT_DATA,
                  "%s: chunk %" PRId64 " of %" PRId64 " was never filled", array->name, i,
                  k->count);
        if (k->c.filters == 0 && k->chunk[i].bytes != k->bytes) return oct_h5_array_damaged(array);
    }
    return OCT_OK;
}

static void unshuffle(const uint8_t *from, size_t bytes, size_t element, uint8_t *to)
{
    const size_t count = bytes / element;
    for (size_t i = 0; i < count; i++)
        for (size_t b = 0; b < element; b++)
            to[i * element + b] = from[b * count + i];
    memcpy(to + count * element, from + count * element, bytes - count * element);
}

/* Undoes the filters, last first, from one of two buffers to the other; *from holds the result. */
static bool unpack(const oct_array *array, const chunk *k, const uint8_t **from,
                   uint8_t *const buffers[2])
{
    const chunks *all = array->store;
    size_t size = k->bytes;
    int next = 0;
    for (int i = all->c.filters - 1; i >= 0; i--) {
        uLongf length = all->bytes;
        uint8_t *to = buffers[next];
        if (k->unfiltered >> i & 1) continue;
        if (all->c.filter[i] == OCT_H5_DEFLATE) {
            if (uncompress(to, &length, *from, size) != Z_OK) return false;
            size = length;
        } else {
            if (size > all->bytes) return false;
            unshuffle(*from, size, array->bytes, to);
        }
        *from = to;
        next = !next;
    }
    return size == all->bytes;
}

/* Samples [first, first + count) of one chunk, whose coordinates in the grid are `where`. */
typedef struct part {
    int64_t first, count;
    int64_t where[OCT_MAX_DIMS];
    uint8_t *to;
} part;

/* Copies runs of the last dimension that the chunk and the wanted samples share. */
static void copy_part(const oct_array *array, const part *p, const uint8_t *from)
{
    const chunks *k = array->store;
    int64_t begin[OCT_MAX_DIMS], end[OCT_MAX_DIMS], i[OCT_MAX_DIMS];
    for (int d = 0; d < OCT_MAX_DIMS; d++) {
        const int64_t low = p->where[d] * k->c.dim[d];
        const int64_t high = low + k->c.dim[d];
        const int64_t most = d == 0 ? p->first + p->count : k->dim[d];
        begin[d] = d == 0 && p->first > low ? p->first : low;
        end[d] = high < most ? high : most;
    }
    for (i[0] = begin[0]; i[0] < end[0]; i[0]++)
        for (i[1] = begin[1]; i[1] < end[1]; i[1]++)
            for (i[2] = begin[2]; i[2] < end[2]; i[2]++) {
                int64_t source = 0, target = 0;
                i[3] = begin[3];
                for (int d = 0; d < OCT_MAX_DIMS; d++) {
                    source = source * k->c.dim[d] + i[d] - p->where[d] * k->c.dim[d];
                    target = target * k->dim[d] + i[d] - (d == 0 ? p->first : 0);
                }
                memcpy(p->to + (size_t)target * array->bytes, from + (size_t)source * array->bytes,
                       (size_t)(end[3] - begin[3]) * array->bytes);
            }
}

static oct_status read_chunk(const oct_array *array, const part *p, uint8_t *const buffers[2])
{
    const chunks *k = array->store;
    int64_t place = 0;
    for (int d = 0; d < OCT_MAX_DIMS; d++)
        place = place * k->grid[d] + p->where[d];
    const chunk *c = &k->chunk[place];
    uint8_t *packed = NULL;
    OCT_TRY(oct_alloc(&packed, c->bytes, 1));
    oct_status status = oct_span_read(&array->span, (int64_t)c->at, packed, c->bytes, array->name);
    const uint8_t *at = packed;
    if (status == OCT_OK && !unpack(array, c, &at, buffers)) status = oct_h5_array_damaged(array);
    if (status == OCT_OK) copy_part(array, p, at);
    oct_free(&packed);
    return status;
}

static oct_status read_chunks(const oct_array *array, part *p, uint8_t *const buffers[2])
{
    const chunks *k = array->store;
    const int64_t last = (p->first + p->count - 1) / k->c.dim[0];
    int64_t *w = p->where;
    for (w[0] = p->first / k->c.dim[0]; w[0] <= last; w[0]++)
        for (w[1] = 0; w[1] < k->grid[1]; w[1]++)
            for (w[2] = 0; w[2] < k->grid[2]; w[2]++)
                for (w[3] = 0; w[3] < k->grid[3]; w[3]++)
                    OCT_TRY(read_chunk(array, p, buffers));
    return OCT_OK;
}

static oct_status read_samples(const oct_array *array, int64_t first, int64_t count, void *to)
{
    const chunks *k = array->store;
    part p = {.first = first, .count = count, .to = to};
    uint8_t *buffers[2] = {NULL, NULL};
    oct_status status = OCT_OK;
    if (count == 0) return OCT_OK;
    for (int i = 0; i < 2; i++)
        OCT_TRY_OUT(oct_alloc(&buffers[i], k->bytes, 1));
    status = read_chunks(array, &p, buffers);
out:
    oct_free(&buffers[0]);
    oct_free(&buffers[1]);
    return status;
}

oct_status oct_h5_chunks_find(oct_array *array, const oct_h5_chunking *chunking)
{
    chunks *k;
    OCT_TRY(oct_alloc(&array->store, 1, sizeof *k));
    k = array->store;
    k->c = *chunking;
    array->drop = drop;
    array->read = read_samples;
    OCT_TRY(lay_grid(array, k));
    OCT_TRY(oct_alloc(&k->chunk, (size_t)k->count, sizeof *k->chunk));
    for (int64_t i = 0; i < k->count; i++)
        k->chunk[i].at = nowhere;
    int64_t left = 2 * (k->count + LEVELS_MAX); /* a node has one child at least */
    if (k->count > 0) OCT_TRY(walk(array, chunking->tree, LEVELS_MAX, &left));
    return check_all_there(array);
}
