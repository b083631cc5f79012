/* Arrays in HDF5 files, read by libhdf5 in a program of its own (io/hdf5/hdf5_child.h).
 *
 * An array of plain numbers in one piece is then read from the file itself. Of others the program gives blocks of
 * samples: all that share a row of chunks, so that no chunk is unpacked twice for one block. Blocks are kept while
 * there is room, as a rule all of them. */
#include "core/base/log.h"
#include "core/base/mem.h"
#include "io/dataset/array_set.h"
#include "io/hdf5/hdf5_child.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

/* The chunks of a block, and what is kept of an array. */
static const int64_t block_max = (int64_t)1 << 30, kept_max = (int64_t)1 << 30;

typedef struct store {
    oct_h5_child child;
    pthread_mutex_t lock;
    int64_t sample, rows, slots; /* bytes of a sample, samples of a block, blocks that are kept */
    int64_t *block_of;           /* the block in a slot, from 1 on; 0: none */
    uint8_t *bytes;
} store;

static void close_store(oct_array *array)
{
    store *s = array->store;
    if (!s) return;
    oct_h5_child_end(&s->child);
    pthread_mutex_destroy(&s->lock);
    OCT_FREE_ALL(&s->block_of, &s->bytes, &array->store);
}

/* Makes sure that a block of samples is in its slot (block mod slots), else asks the HDF5 process for it. */
static oct_status load_block(const oct_array *array, store *s, int64_t block)
{
    const int64_t first = block * s->rows, left = array->shape.dim[0] - first;
    const int64_t rows = left < s->rows ? left : s->rows, slot = block % s->slots;
    oct_h5_message m = {.kind = OCT_H5_READ, .at = first, .bytes = rows};
    if (s->block_of[slot] == block + 1) return OCT_OK;
    s->block_of[slot] = 0;
    OCT_TRY(oct_h5_child_ask(&s->child, &m));
    OCT_TRY(oct_h5_child_answer(&s->child, OCT_H5_DATA, &m, NULL));
    if (m.bytes != rows * s->sample) return oct_h5_child_nonsense(&s->child);
    OCT_TRY(oct_h5_child_take(&s->child, s->bytes + slot * s->rows * s->sample, (size_t)m.bytes));
    s->block_of[slot] = block + 1;
    return OCT_OK;
}

/* Copies `count` samples from `first` on out of their blocks; one thread at a time. */
static oct_status read_samples(const oct_array *array, int64_t first, int64_t count, void *to)
{
    store *s = array->store;
    oct_status status = OCT_OK;
    uint8_t *next = to;
    pthread_mutex_lock(&s->lock);
    while (count > 0 && status == OCT_OK) {
        const int64_t block = first / s->rows, at = first % s->rows;
        const int64_t n = count < s->rows - at ? count : s->rows - at;
        status = load_block(array, s, block);
        if (status == OCT_OK)
            memcpy(next, s->bytes + (block % s->slots * s->rows + at) * s->sample,
                   (size_t)(n * s->sample));
        next += n * s->sample;
        first += n;
        count -= n;
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* Chooses how many samples a block has, whole chunks of `chunk` samples (0: not chunked), and how many blocks are kept.
 * Blocks are small where not all are kept, since then each sample may cost a block. */
static oct_status choose_blocks(const oct_array *array, store *s, int64_t chunk)
{
    enum { SMALL_BYTES = 64, USUAL_BYTES = 1 << 18 };
    const int64_t count = array->shape.dim[0], all = count * s->sample;
    const int64_t wanted = chunk == 0 || all <= kept_max ? USUAL_BYTES : SMALL_BYTES;
    if (chunk > count) chunk = count;
    const int64_t unit = chunk > 0 ? chunk : 1, units = wanted / (unit * s->sample);
    s->rows = unit * (units > 0 ? units : 1);
    if (s->rows > count && count > 0) s->rows = count;
    const int64_t block = s->rows * s->sample, blocks = count / s->rows + (count % s->rows > 0);
    OCT_CHECK(block <= block_max, OCT_DATA,
              "%s: chunks of %" PRId64
              " samples take %s together, more than are read at once; write it with "
              "chunks=(1, ...)",
              array->name, s->rows, oct_text_size(block).text);
    s->slots = kept_max / block < blocks ? kept_max / block : blocks;
    if (oct_alloc(&s->bytes, (size_t)(s->slots * block), 1) != OCT_OK) {
        oct_fail_clear();
        s->slots = 1;
        OCT_TRY(oct_alloc(&s->bytes, (size_t)block, 1));
    }
    if (s->slots < blocks && s->rows > 1 && chunk > 1)
        oct_log(
            OCT_LOG_WARN,
            "%s: its chunks hold %" PRId64 " samples, and only %s of %s are kept unpacked: others "
            "are unpacked again for each sample; write it with "
            "chunks=(1, ...), or without compression",
            array->name, s->rows, oct_text_size(s->slots * block).text, oct_text_size(all).text);
    return oct_alloc(&s->block_of, (size_t)s->slots, sizeof *s->block_of);
}

/* Sets type and shape by the message of the HDF5 process, which is checked as untrusted; *sample: its bytes. */
static oct_status read_description(oct_array *array, const oct_h5_message *m, int64_t *sample)
{
    const bool width = m->bytes == 1 || m->bytes == 2 || m->bytes == 4 || m->bytes == 8;
    bool good = width && (m->type == 'u' || m->type == 'i' || (m->type == 'f' && m->bytes >= 4)) &&
                m->ndim >= 1 && m->ndim <= OCT_MAX_DIMS && m->rows >= 0;
    *sample = m->bytes;
    for (int i = 0; good && i < m->ndim; i++)
        good = m->dim[i] >= 0 && (i == 0 || !__builtin_mul_overflow(*sample, m->dim[i], sample));
    if (!good || *sample > INT64_MAX / 8)
        return oct_h5_child_nonsense(&(oct_h5_child){.name = array->name});
    array->kind = (char)m->type;
    array->bytes = (size_t)m->bytes;
    array->big = m->big != 0;
    array->shape = oct_shape_of((int)m->ndim, m->dim);
    const int64_t most = (array->span.size << 12) + ((int64_t)64 << 20);
    OCT_CHECK(*sample == 0 || m->dim[0] <= most / *sample, OCT_DATA,
              "%s: its shape %s is more than a file of %" PRId64 " bytes can hold", array->name,
              oct_text_shape(&array->shape).text, array->span.size);
    return OCT_OK;
}

/* Asks the HDF5 process for an array; one that lies in the file in one piece is then read without that process. */
static oct_status open_array(oct_array *array, store *s, const char *path)
{
    oct_h5_message m = {.kind = OCT_H5_ARRAY, .bytes = array->span.size};
    OCT_CHECK(strlen(path) < sizeof m.name, OCT_USAGE, "%s: the name is too long", array->name);
    memcpy(m.name, path, strlen(path));
    OCT_TRY(oct_h5_child_start(&s->child, &array->span, array->name));
    OCT_TRY(oct_h5_child_ask(&s->child, &m));
    OCT_TRY(oct_h5_child_answer(&s->child, OCT_H5_OBJECT, &m, NULL));
    OCT_TRY(read_description(array, &m, &s->sample));
    if (m.at < 0 || s->sample == 0 || m.dim[0] == 0) {
        array->read = read_samples;
        return s->sample == 0 ? OCT_OK : choose_blocks(array, s, m.rows);
    }
    oct_h5_child_end(&s->child);
    OCT_CHECK(m.at <= array->span.size && m.dim[0] * s->sample <= array->span.size - m.at, OCT_DATA,
              "%s: is damaged or cut short", array->name);
    array->span.begin = m.at;
    array->span.size = m.dim[0] * s->sample;
    return OCT_OK;
}

static oct_status open_path(oct_array *array, const char *path, const char *name)
{
    oct_span span;
    store *s = NULL;
    *array = (oct_array){.span = OCT_SPAN_NONE};
    OCT_TRY(oct_span_open(&span, path));
    oct_status status = oct_format(&array->name, "%s/%s", path, name);
    if (status == OCT_OK)
        array->span = span;
    else
        oct_span_close(&span);
    if (status == OCT_OK) status = oct_alloc(&s, 1, sizeof *s);
    if (status == OCT_OK) {
        *s = (store){.child = OCT_H5_NO_CHILD, .lock = PTHREAD_MUTEX_INITIALIZER};
        array->store = s;
        array->drop = close_store;
        status = open_array(array, s, name);
    }
    if (status != OCT_OK) oct_array_close(array);
    return status;
}

#define FILES                                                                                      \
    "expected: data.path=DATA.h5 with train/images, train/labels, test/images and test/labels, "   \
    "or a folder with train.h5 and test.h5 (or val.h5) of images and labels, or what "             \
    "data.images and data.labels name"

static const oct_array_kind kind = {
    .extension = ".h5",
    .images = {"{split}/images", "images"},
    .labels = {"{split}/labels", "labels"},
    .open = open_path,
};

const oct_dataset_format oct_dataset_hdf5 = {
    .name = "hdf5",
    .files = FILES,
    OCT_ARRAYS_MEMBERS,
    .arrays = &kind,
};
