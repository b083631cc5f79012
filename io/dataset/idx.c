/* The IDX format of MNIST and its successors: a big-endian header (magic number, one 32-bit size for
 * each dimension) and bytes, plain or gzipped.
 *
 * A file is read whole, so its real size is known before the header is believed. A plain file must
 * have exactly the declared size. A gzip stream cannot hold more than 1032 times its own size, which
 * bounds what a lying header can make us allocate; it is then inflated straight into its place. We
 * call inflate ourselves, since zlib's gzread passes over garbage behind the stream.
 */
#include "io/dataset/dataset.h"

#include "core/base/mem.h"
#include "io/file.h"

#include <inttypes.h>
#include <string.h>
#include <zlib.h>

#define FILES                                                                                      \
    "it is to hold train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "  \
    "t10k-labels-idx1-ubyte, each plain or .gz, as the Debian package dataset-fashion-mnist does"

enum { CLASSES = 10, MAX_SIDE = 4096, MAX_DIMS = 3, DEFLATE_RATIO = 1032, GZIP_WINDOW = 15 + 16 };

static const size_t file_limit = (size_t)1 << 34;
static const size_t chunk_limit = (size_t)1 << 30; /* zlib counts in 32 bits */

/* A file in memory, and a way to take the bytes in it that does not tell gzip from plain. */
typedef struct source {
    char *path;
    void *bytes;
    size_t size, next; /* next: not yet copied, or not yet given to inflate */
    bool gzip, ended;  /* ended: the gzip stream has come to its good end */
    z_stream inflate;
} source;

/* FOLDER/NAME, or FOLDER/NAME.gz when only that is there. */
static oct_status find_path(char **path, const char *folder, const char *name)
{
    OCT_TRY(oct_format(path, "%s/%s", folder, name));
    if (oct_file_exists(*path)) return OCT_OK;
    oct_free(path);
    OCT_TRY(oct_format(path, "%s/%s.gz", folder, name));
    if (oct_file_exists(*path)) return OCT_OK;
    oct_free(path);
    return oct_fail(OCT_DATA, "%s: neither %s nor %s.gz is there; " FILES, folder, name, name);
}

static oct_status source_open(source *s, const char *folder, const char *name)
{
    OCT_TRY(find_path(&s->path, folder, name));
    OCT_TRY(oct_file_read(s->path, file_limit, &s->bytes, &s->size));
    const uint8_t *bytes = s->bytes;
    if (s->size < 2 || bytes[0] != 0x1f || bytes[1] != 0x8b) return OCT_OK;
    OCT_CHECK(inflateInit2(&s->inflate, GZIP_WINDOW) == Z_OK, OCT_RESOURCE,
              "%s: out of memory for inflating it", s->path);
    s->gzip = true;
    return OCT_OK;
}

static void source_close(source *s)
{
    if (s->gzip) inflateEnd(&s->inflate);
    oct_free(&s->bytes);
    oct_free(&s->path);
}

static uInt chunk(size_t bytes)
{
    return (uInt)(bytes < chunk_limit ? bytes : chunk_limit);
}

static oct_status inflate_failed(const source *s, int result)
{
    if (result == Z_MEM_ERROR)
        return oct_fail(OCT_RESOURCE, "%s: out of memory for inflating it", s->path);
    if (result == Z_BUF_ERROR)
        return oct_fail(OCT_DATA,
                        "%s: cut short: the gzip stream has no end within the %zu bytes of the "
                        "file; fetch it again",
                        s->path, s->size);
    return oct_fail(OCT_DATA, "%s: damaged gzip stream (%s); fetch it again", s->path,
                    s->inflate.msg ? s->inflate.msg : zError(result));
}

static oct_status inflate_take(source *s, uint8_t *to, size_t want, size_t *got)
{
    z_stream *z = &s->inflate;
    for (*got = 0; *got < want && !s->ended;) {
        if (z->avail_in == 0) {
            z->avail_in = chunk(s->size - s->next);
            z->next_in = (Bytef *)s->bytes + s->next;
            s->next += z->avail_in;
        }
        uInt room = chunk(want - *got);
        z->next_out = to + *got;
        z->avail_out = room;
        int result = inflate(z, Z_NO_FLUSH);
        *got += room - z->avail_out;
        if (result != Z_OK && result != Z_STREAM_END) return inflate_failed(s, result);
        s->ended = result == Z_STREAM_END;
    }
    return OCT_OK;
}

/* Takes up to `want` bytes; fewer only where the data end. */
static oct_status source_take(source *s, uint8_t *to, size_t want, size_t *got)
{
    if (s->gzip) return inflate_take(s, to, want, got);
    *got = want < s->size - s->next ? want : s->size - s->next;
    memcpy(to, (const uint8_t *)s->bytes + s->next, *got);
    s->next += *got;
    return OCT_OK;
}

static uint32_t big_endian(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static oct_status read_header(source *s, int ndim, uint32_t dims[MAX_DIMS])
{
    uint8_t header[4 + 4 * MAX_DIMS];
    size_t size = 4 + 4 * (size_t)ndim, got;
    uint32_t magic = 0x00000800u + (uint32_t)ndim;
    OCT_TRY(source_take(s, header, size, &got));
    OCT_CHECK(got == size, OCT_DATA, "%s: %zu bytes are too short for an IDX header of %zu bytes",
              s->path, got, size);
    OCT_CHECK(big_endian(header) == magic, OCT_DATA,
              "%s: not an IDX file of %d dimensions: magic number 0x%08" PRIx32
              " where 0x%08" PRIx32 " is expected",
              s->path, ndim, big_endian(header), magic);
    for (int i = 0; i < ndim; i++)
        dims[i] = big_endian(header + 4 + 4 * i);
    OCT_CHECK(dims[0] > 0, OCT_DATA, "%s: declares 0 samples", s->path);
    for (int i = 1; i < ndim; i++)
        OCT_CHECK(dims[i] >= 1 && dims[i] <= MAX_SIDE, OCT_DATA,
                  "%s: declares images of %" PRIu32 " x %" PRIu32 "; allowed are sides of 1 to %d",
                  s->path, dims[1], dims[2], MAX_SIDE);
    return OCT_OK;
}

/* Can the file hold `declared` bytes of data? */
static oct_status check_declared(const source *s, uint64_t declared)
{
    if (!s->gzip)
        OCT_CHECK(declared == s->size - s->next, OCT_DATA,
                  "%s: declares %" PRIu64 " bytes of data, but holds %zu", s->path, declared,
                  s->size - s->next);
    OCT_CHECK(declared <= (uint64_t)s->size * DEFLATE_RATIO, OCT_DATA,
              "%s: declares %" PRIu64 " bytes of data, but its %zu bytes of gzip cannot hold more "
              "than %zu",
              s->path, declared, s->size, s->size * DEFLATE_RATIO);
    return OCT_OK;
}

static oct_status read_data(source *s, uint64_t declared, uint8_t **data)
{
    size_t size = (size_t)declared, got, behind;
    uint8_t one;
    OCT_TRY(check_declared(s, declared));
    OCT_TRY(oct_alloc(data, size, 1));
    OCT_TRY(source_take(s, *data, size, &got));
    OCT_CHECK(got == size, OCT_DATA, "%s: declares %zu bytes of data, but holds %zu", s->path, size,
              got);
    OCT_TRY(source_take(s, &one, 1, &behind));
    OCT_CHECK(behind == 0, OCT_DATA, "%s: declares %zu bytes of data, but holds more than %zu",
              s->path, size, size);
    size_t garbage = s->gzip ? s->inflate.avail_in + (s->size - s->next) : 0;
    OCT_CHECK(garbage == 0, OCT_DATA, "%s: %zu bytes of something else follow the gzip stream",
              s->path, garbage);
    return OCT_OK;
}

static oct_status read_idx(const char *folder, const char *name, int ndim, uint32_t dims[MAX_DIMS],
                           uint8_t **data)
{
    source s = {0};
    uint64_t declared = 1; /* at most 2^32 * 2^12 * 2^12 */
    oct_status status = OCT_OK;
    OCT_TRY_OUT(source_open(&s, folder, name));
    OCT_TRY_OUT(read_header(&s, ndim, dims));
    for (int i = 0; i < ndim; i++)
        declared *= dims[i];
    OCT_TRY_OUT(read_data(&s, declared, data));
out:
    source_close(&s);
    return status;
}

static oct_status load(oct_dataset *data, const char *folder, oct_split split)
{
    const char *images = split == OCT_TRAIN ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte";
    const char *labels = split == OCT_TRAIN ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte";
    uint32_t image_dims[MAX_DIMS], label_dims[MAX_DIMS];
    OCT_TRY(read_idx(folder, images, 3, image_dims, &data->images));
    OCT_TRY(read_idx(folder, labels, 1, label_dims, &data->labels));
    OCT_CHECK(image_dims[0] == label_dims[0], OCT_DATA,
              "%s: %s declares %" PRIu32 " images, but %s %" PRIu32 " labels; they do not belong "
              "together",
              folder, images, image_dims[0], labels, label_dims[0]);
    for (uint32_t i = 0; i < label_dims[0]; i++)
        OCT_CHECK(data->labels[i] < CLASSES, OCT_DATA,
                  "%s/%s: label %d at index %" PRIu32 " is out of range 0..%d", folder, labels,
                  data->labels[i], i, CLASSES - 1);
    data->count = image_dims[0];
    data->h = image_dims[1];
    data->w = image_dims[2];
    data->c = 1;
    data->classes = CLASSES;
    return OCT_OK;
}

const oct_dataset_format oct_dataset_idx = {
    .name = "idx",
    .default_path = "/usr/share/datasets/fashion-mnist",
    .files = FILES,
    .load = load,
};
