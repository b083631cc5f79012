/* The IDX format of MNIST and its successors: a big-endian header (magic number, one 32-bit size for
 * each dimension) and data, plain or gzipped. Images are bytes; labels may be wider, big-endian too.
 *
 * A file is read whole, so its real size is known before the header is believed. A plain file must
 * have exactly the declared size. A gzip stream cannot hold more than 1032 times its own size, which
 * bounds what a lying header can make us allocate; and one that is not small may not inflate to more than
 * 64 times its size. It is then inflated straight into its place. We
 * call inflate ourselves, since zlib's gzread passes over garbage after the stream.
 */
#include "io/dataset/dataset.h"

#include "core/base/mem.h"
#include "io/file/file.h"

#include <inttypes.h>
#include <string.h>
#include <zlib.h>

#define FILES                                                                                      \
    "expected files: train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte "    \
    "and t10k-labels-idx1-ubyte, each plain or .gz (Debian's package dataset-fashion-mnist has "   \
    "them)"

/* Types of elements, the third byte of the magic number. */
enum { UNSIGNED_8 = 0x08, SIGNED_8 = 0x09, SIGNED_16 = 0x0b, SIGNED_32 = 0x0c };
enum { MAX_SIDE = 4096, MAX_DIMS = 4, ANY_IMAGES = 0, DEFLATE_RATIO = 1032, GZIP_WINDOW = 15 + 16 };
/* Images deflate to far more than a 64th of their size; small files may claim more. */
enum { TRUSTED_RATIO = 64, SMALL_BYTES = 64 << 20 };

static const size_t file_limit = (size_t)1 << 34;
static const size_t chunk_limit = (size_t)1 << 30; /* zlib counts in 32 bits */

/* A file in memory, whose bytes are taken by take_bytes, whether gzip or plain. */
typedef struct idx_file {
    const char *path;
    void *bytes;
    size_t size, next; /* next: not yet copied, or not yet given to inflate */
    bool gzip, ended;  /* ended: the last gzip member has come to its good end */
    z_stream inflate;
} idx_file;

/* Finds FOLDER/NAME, or FOLDER/NAME.gz when only that is there; *found: is there one of them? */
static oct_status find_path(oct_path *path, const char *folder, const char *name, bool *found)
{
    OCT_TRY(oct_path_make(path, "%s/%s", folder, name));
    if (!oct_file_exists(path->text)) OCT_TRY(oct_path_make(path, "%s/%s.gz", folder, name));
    *found = oct_file_exists(path->text);
    return OCT_OK;
}

static uInt limit_chunk(size_t bytes)
{
    return (uInt)(bytes < chunk_limit ? bytes : chunk_limit);
}

static oct_status fail_inflate(const idx_file *s, int result)
{
    if (result == Z_MEM_ERROR)
        return oct_fail(OCT_RESOURCE, "%s: out of memory for inflating it", s->path);
    if (result == Z_BUF_ERROR)
        return oct_fail(OCT_DATA,
                        "%s: cut short: the gzip stream has no end within the %zu bytes of the "
                        "file; download it again",
                        s->path, s->size);
    return oct_fail(OCT_DATA, "%s: damaged gzip stream (%s); download it again", s->path,
                    s->inflate.msg ? s->inflate.msg : zError(result));
}

/* Inflates up to `want` bytes, of all gzip members. */
static oct_status inflate_bytes(idx_file *s, uint8_t *to, size_t want, size_t *got)
{
    z_stream *z = &s->inflate;
    for (*got = 0; *got < want && !s->ended;) {
        if (z->avail_in == 0) {
            z->avail_in = limit_chunk(s->size - s->next);
            z->next_in = (Bytef *)s->bytes + s->next;
            s->next += z->avail_in;
        }
        uInt room = limit_chunk(want - *got);
        z->next_out = to + *got;
        z->avail_out = room;
        int result = inflate(z, Z_NO_FLUSH);
        *got += room - z->avail_out;
        if (result != Z_OK && result != Z_STREAM_END) return fail_inflate(s, result);
        if (result == Z_OK) continue;
        /* A gzip file may have several members, as bgzip, pigz and `cat a.gz b.gz` make them: another one follows at once. */
        const uint8_t *next = z->next_in;
        const size_t left = s->size - s->next + z->avail_in;
        s->ended = left < 2 || next[0] != 0x1f || next[1] != 0x8b || inflateReset(z) != Z_OK;
    }
    return OCT_OK;
}

/* Takes up to `want` bytes, and fewer only where the data end. */
static oct_status take_bytes(idx_file *s, uint8_t *to, size_t want, size_t *got)
{
    if (s->gzip) return inflate_bytes(s, to, want, got);
    *got = want < s->size - s->next ? want : s->size - s->next;
    memcpy(to, (const uint8_t *)s->bytes + s->next, *got);
    s->next += *got;
    return OCT_OK;
}

static uint32_t big_endian(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Returns the bytes of a label of this type; 0 for types that labels cannot have. */
static int label_bytes(int type)
{
    if (type == UNSIGNED_8 || type == SIGNED_8) return 1;
    if (type == SIGNED_16) return 2;
    return type == SIGNED_32 ? 4 : 0;
}

/* Reads magic number, type and sides. ndim: 1 for labels, 3 or 4 for images; ANY_IMAGES becomes what the file has. */
static oct_status read_header(idx_file *s, int *ndim, int *type, uint32_t dims[MAX_DIMS])
{
    uint8_t header[4 + 4 * MAX_DIMS] = {0};
    size_t got, more = 0;
    const uint32_t most = *ndim == ANY_IMAGES ? OCT_IMAGE_SIDE_MAX : MAX_SIDE;
    OCT_TRY(take_bytes(s, header, 4, &got));
    if (*ndim == ANY_IMAGES) *ndim = header[3] == 4 ? 4 : 3;
    const size_t size = 4 + 4 * (size_t)*ndim;
    if (got == 4) OCT_TRY(take_bytes(s, header + 4, size - 4, &more));
    OCT_CHECK(got + more == size, OCT_DATA,
              "%s: %zu bytes are too short for an IDX header of %zu bytes", s->path, got + more,
              size);
    const uint32_t magic = big_endian(header), wanted = (uint32_t)UNSIGNED_8 << 8 | (uint32_t)*ndim;
    const bool labels = *ndim == 1;
    const bool good =
        labels ? (magic & 0xffff00ffu) == 1 && label_bytes((int)(magic >> 8)) > 0 : magic == wanted;
    OCT_CHECK(good, OCT_DATA,
              "%s: not an IDX file of %d dimension%s: magic number 0x%08" PRIx32
              " where 0x%08" PRIx32 "%s is expected",
              s->path, *ndim, labels ? "" : "s", magic, wanted,
              labels ? ", or 0x09, 0x0b or 0x0c in place of 0x08," : "");
    *type = header[2];
    for (int i = 0; i < *ndim; i++)
        dims[i] = big_endian(header + 4 + 4 * i);
    OCT_CHECK(dims[0] > 0, OCT_DATA, "%s: declares 0 samples", s->path);
    for (int i = 1; i < *ndim; i++)
        OCT_CHECK(dims[i] >= 1 && dims[i] <= most, OCT_DATA,
                  "%s: declares images of %" PRIu32 " x %" PRIu32 "; allowed sides: 1 to %" PRIu32,
                  s->path, dims[1], dims[2], most);
    return OCT_OK;
}

/* Reads `declared` bytes of data, after checking that the file can hold so much; nothing may follow them. */
static oct_status read_data(idx_file *s, uint64_t declared, uint8_t **data)
{
    size_t size = (size_t)declared, got, after;
    uint8_t one;
    /* Can the file hold `declared` bytes of data? */
    if (!s->gzip)
        OCT_CHECK(declared == s->size - s->next, OCT_DATA,
                  "%s: declares %" PRIu64 " bytes of data, but holds %zu", s->path, declared,
                  s->size - s->next);
    OCT_CHECK(declared <= (uint64_t)s->size * DEFLATE_RATIO, OCT_DATA,
              "%s: declares %" PRIu64 " bytes of data, but its %zu bytes of gzip cannot hold more "
              "than %zu",
              s->path, declared, s->size, s->size * DEFLATE_RATIO);
    const uint64_t trusted = SMALL_BYTES + (uint64_t)s->size * TRUSTED_RATIO;
    OCT_CHECK(!s->gzip || declared <= trusted, OCT_DATA,
              "%s: %zu bytes of gzip would inflate to %" PRIu64 ", more than %d times as many; if "
              "that is right, gunzip it",
              s->path, s->size, declared, TRUSTED_RATIO);
    OCT_TRY(oct_alloc(data, size, 1));
    OCT_TRY(take_bytes(s, *data, size, &got));
    OCT_CHECK(got == size, OCT_DATA, "%s: declares %zu bytes of data, but holds %zu", s->path, size,
              got);
    OCT_TRY(take_bytes(s, &one, 1, &after));
    OCT_CHECK(after == 0, OCT_DATA, "%s: declares %zu bytes of data, but holds more than %zu",
              s->path, size, size);
    size_t garbage = s->gzip ? s->inflate.avail_in + (s->size - s->next) : 0;
    OCT_CHECK(garbage == 0, OCT_DATA, "%s: %zu bytes of something else follow the gzip stream",
              s->path, garbage);
    return OCT_OK;
}

/* Reads an IDX file, plain or gzipped, into type, dims and data (oct_alloc'ed). */
static oct_status read_idx(const char *path, int ndim, int *type, uint32_t dims[MAX_DIMS],
                           uint8_t **data)
{
    idx_file s = {.path = path};
    oct_status status = OCT_OK;
    OCT_TRY_OUT(oct_file_read(path, file_limit, &s.bytes, &s.size));
    const uint8_t *magic = s.bytes;
    if (s.size >= 2 && magic[0] == 0x1f && magic[1] == 0x8b) {
        s.gzip = inflateInit2(&s.inflate, GZIP_WINDOW) == Z_OK;
        OCT_CHECK_OUT(s.gzip, OCT_RESOURCE, "%s: out of memory for inflating it", path);
    }
    OCT_TRY_OUT(read_header(&s, &ndim, type, dims));
    uint64_t declared = (uint64_t)label_bytes(*type);
    for (int i = 0; i < ndim; i++)
        if (__builtin_mul_overflow(declared, dims[i], &declared)) declared = UINT64_MAX / 2;
    OCT_TRY_OUT(read_data(&s, declared, data));
out:
    if (s.gzip) inflateEnd(&s.inflate);
    oct_free(&s.bytes);
    return status;
}

static oct_status read_in_folder(const char *folder, const char *name, int ndim, int *type,
                                 uint32_t dims[MAX_DIMS], uint8_t **data)
{
    oct_path path;
    bool found;
    OCT_TRY(find_path(&path, folder, name, &found));
    OCT_CHECK(found, OCT_DATA, "%s: neither %s nor %s.gz exists; " FILES, folder, name, name);
    return read_idx(path.text, ndim, type, dims, data);
}

oct_status oct_idx_open_images(oct_dataset *data, const char *path)
{
    uint32_t dims[MAX_DIMS] = {[3] = 1}; /* channels, where the file does not say */
    OCT_OWNED(oct_free) uint8_t *bytes = NULL;
    int type = 0;
    OCT_TRY(read_idx(path, ANY_IMAGES, &type, dims, &bytes));
    const oct_image sample = {.dtype = OCT_U8, .h = dims[1], .w = dims[2], .c = dims[3]};
    OCT_TRY(oct_memory_make(data, 0, &sample, 1));
    oct_free(&data->store);
    data->store = bytes;
    data->count = dims[0];
    bytes = NULL;
    return OCT_OK;
}

static const char *const image_file[] = {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte"};

static oct_status read_label_file(int32_t **labels, int64_t *count, const char *folder,
                                  const char *name)
{
    uint32_t dims[MAX_DIMS] = {0};
    OCT_OWNED(oct_free) uint8_t *bytes = NULL;
    int type = 0;
    OCT_TRY(read_in_folder(folder, name, 1, &type, dims, &bytes));
    OCT_TRY(oct_alloc(labels, dims[0], sizeof **labels));
    const size_t size = (size_t)label_bytes(type);
    for (size_t i = 0; i < dims[0]; i++) { /* big-endian; the first byte has the sign */
        const uint8_t *byte = bytes + i * size;
        (*labels)[i] = type == UNSIGNED_8 ? byte[0] : (int8_t)byte[0];
        for (size_t k = 1; k < size; k++)
            (*labels)[i] = (*labels)[i] * 256 + byte[k];
    }
    *count = dims[0];
    return OCT_OK;
}

static oct_status open_idx(oct_dataset *data, const oct_dataset_source *source, oct_split split)
{
    const char *images = image_file[split], *labels = data->format->label_file[split];
    uint32_t dims[MAX_DIMS] = {0};
    uint8_t *bytes = NULL;
    int type = 0;
    if (source->labels_only) {
        oct_path path;
        bool found;
        OCT_TRY(find_path(&path, source->folder, labels, &found));
        return found ? read_label_file(&data->labels, &data->count, source->folder, labels)
                     : OCT_OK;
    }
    const oct_status status = read_in_folder(source->folder, images, 3, &type, dims, &bytes);
    data->store = bytes;
    OCT_TRY(status);
    OCT_TRY(read_label_file(&data->labels, &data->count, source->folder, labels));
    OCT_CHECK(dims[0] == data->count, OCT_DATA,
              "%s: %s declares %" PRIu32 " images, but %s %" PRId64 " labels; they do not belong "
              "together",
              source->folder, images, dims[0], labels, data->count);
    data->dtype = OCT_U8;
    data->h = dims[1];
    data->w = dims[2];
    data->c = 1;
    return OCT_OK;
}

const oct_dataset_format oct_dataset_idx = {
    .name = "idx",
    .default_path = "/usr/share/datasets/fashion-mnist",
    .files = FILES,
    .label_file = {"train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"},
    .open = open_idx,
    OCT_MEMORY_MEMBERS,
};
