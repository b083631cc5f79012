#include "io/dataset/npy_file.h"

#include "core/base/mem.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zip.h>
#include <zlib.h>

/* The header of a .npy file is a dictionary of Python's with three keys, in versions 1 to 3 of the format. */

enum { PREFIX = 8, HEADER_MAX = 1 << 16 };

/* A text that is read from its begin on. */
typedef struct cursor {
    const char *at, *end;
} cursor;

static void skip_space(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n'))
        c->at++;
}

static bool skip_word(cursor *c, const char *word)
{
    const size_t length = strlen(word);
    skip_space(c);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0) return false;
    c->at += length;
    return true;
}

/* Reads a Python string in quotes of either kind, of less than 16 bytes; escapes are not known. */
static bool read_text(cursor *c, char text[16])
{
    skip_space(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) return false;
    const char *begin = c->at + 1, *end = memchr(begin, *c->at, (size_t)(c->end - begin));
    if (!end || end - begin >= 16) return false;
    memcpy(text, begin, (size_t)(end - begin));
    text[end - begin] = '\0';
    c->at = end + 1;
    return true;
}

static bool read_number(cursor *c, int64_t *value)
{
    enum { DIGITS_MAX = 18 };
    const char *begin;
    skip_space(c);
    begin = c->at;
    *value = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9' && c->at - begin < DIGITS_MAX; c->at++)
        *value = *value * 10 + (*c->at - '0');
    const bool digits = c->at > begin;
    if (digits) skip_word(c, "L"); /* NumPy under Python 2 wrote such numbers */
    return digits;
}

/* What the header says. */
typedef struct header {
    char type[16];
    bool fortran,
        structures; /* structures: of several fields, which are not looked at, nor is the rest */
    int64_t dim[OCT_MAX_DIMS];
    int ndim;
    bool many; /* more dimensions than are read */
    unsigned seen;
} header;

/* Reads a tuple of whole numbers, such as (3,) or (3, 4), as the dimensions. */
static bool read_shape(cursor *c, header *h)
{
    if (!skip_word(c, "(")) return false;
    while (!skip_word(c, ")")) {
        int64_t dim;
        if (!read_number(c, &dim)) return false;
        h->many = h->ndim == OCT_MAX_DIMS;
        if (h->many) return true;
        h->dim[h->ndim++] = dim;
        if (!skip_word(c, ",") && (h->ndim < 2 || c->at == c->end || *c->at != ')')) return false;
    }
    return true;
}

/* Reads one key and value of the header; bits in h->seen note which keys were read. */
static bool read_entry(cursor *c, header *h)
{
    char key[16];
    if (!read_text(c, key) || !skip_word(c, ":")) return false;
    if (strcmp(key, "descr") == 0) {
        h->seen |= 1;
        h->structures = skip_word(c, "[");
        return h->structures || read_text(c, h->type);
    }
    if (strcmp(key, "fortran_order") == 0) {
        h->seen |= 2;
        h->fortran = skip_word(c, "True");
        return h->fortran || skip_word(c, "False");
    }
    h->seen |= 4;
    return strcmp(key, "shape") == 0 && read_shape(c, h);
}

/* Parses the header: a Python dictionary of descr, fortran_order and shape. */
static bool parse_header(cursor c, header *h)
{
    enum { ALL = 7 };
    if (!skip_word(&c, "{")) return false;
    while (!skip_word(&c, "}")) {
        if (!read_entry(&c, h)) return false;
        if (h->many || h->structures) return true;
        if (!skip_word(&c, ",") && (c.at == c.end || *c.at != '}')) return false;
    }
    skip_space(&c);
    return c.at == c.end && h->seen == ALL;
}

/* Sets type and shape of the array by the header; *other: see oct_npy_take. */
static oct_status describe_array(oct_array *a, const header *h, bool *other)
{
    const char *type = h->type;
    const bool known = strlen(type) == 3 && strchr("<|>=", type[0]) && strchr("uifb", type[1]) &&
                       strchr("1248", type[2]) && !(type[1] == 'f' && type[2] < '2') &&
                       !(type[1] == 'b' && type[2] != '1');
    if (other) *other = !known || h->many;
    if (other && *other) return OCT_OK;
    OCT_CHECK(!h->structures, OCT_DATA,
              "%s: holds structures of several fields; save each field as an array of its own: "
              "numpy.ascontiguousarray(array['FIELD'])",
              a->name);
    OCT_CHECK(
        known, OCT_DATA,
        "%s: holds elements of type %s; whole numbers and floats of at most 64 bits are read; "
        "convert them with numpy: array.astype('float32')",
        a->name, oct_show(type, strlen(type)).text);
    OCT_CHECK(!h->fortran || h->ndim < 2, OCT_DATA,
              "%s: is in Fortran's order; convert it with numpy: numpy.ascontiguousarray(array)",
              a->name);
    OCT_CHECK(!h->many, OCT_DATA, "%s: has too many dimensions; 1 to %d dimensions are read",
              a->name, OCT_MAX_DIMS);
    a->kind = type[1] == 'b' ? 'u' : type[1];
    a->bytes = (size_t)(type[2] - '0');
    a->big = type[0] == '>';
    a->shape = oct_shape_of(h->ndim, h->dim);
    return OCT_OK;
}

static oct_status fail_npy(const oct_array *a)
{
    return oct_fail(OCT_DATA, "%s: is no .npy file, or its header is damaged", a->name);
}

/* Reads the header's text, whose length is in 2 bytes, from version 2 on in 4. */
static oct_status read_header(oct_array *a, char **text, int64_t *begin, size_t *bytes)
{
    uint8_t prefix[PREFIX + 4];
    const size_t most =
        a->span.size < (int64_t)sizeof prefix ? (size_t)a->span.size : sizeof prefix;
    memset(prefix, 0, sizeof prefix);
    OCT_TRY(oct_span_read(&a->span, 0, prefix, most, a->name));
    if (memcmp(prefix, "\x93NUMPY", 6) != 0) return fail_npy(a);
    const bool wide = prefix[6] > 1;
    OCT_CHECK(prefix[6] >= 1 && prefix[6] <= 3 && prefix[7] == 0, OCT_DATA,
              "%s: is of version %d.%d of the .npy format; 1.0 to 3.0 are read", a->name, prefix[6],
              prefix[7]);
    *begin = PREFIX + (wide ? 4 : 2);
    *bytes = 0;
    memcpy(bytes, prefix + PREFIX, wide ? 4 : 2);
    if (*bytes > HEADER_MAX) return fail_npy(a);
    OCT_TRY(oct_alloc(text, *bytes, 1));
    return oct_span_read(&a->span, *begin, *text, *bytes, a->name);
}

/* Reads the header; the span is then that of the numbers, and holds what the header says, neither more nor less. */
static oct_status read_array_header(oct_array *a, bool *other)
{
    OCT_OWNED(oct_free) char *text = NULL;
    int64_t begin = 0;
    size_t bytes = 0;
    header h = {0};
    OCT_TRY(read_header(a, &text, &begin, &bytes));
    if (!parse_header((cursor){text, text + bytes}, &h)) return fail_npy(a);
    OCT_TRY(describe_array(a, &h, other));
    if (other && *other) return OCT_OK;
    a->span.begin += begin + (int64_t)bytes;
    a->span.size -= begin + (int64_t)bytes;
    const int64_t numel = oct_shape_numel(&a->shape);
    OCT_CHECK(numel >= 0 && numel <= INT64_MAX / 8 && numel * (int64_t)a->bytes == a->span.size,
              OCT_DATA,
              "%s: is damaged or cut short: %s numbers of %zu bytes are not the %" PRId64
              " bytes that are there",
              a->name, oct_text_shape(&a->shape).text, a->bytes, a->span.size);
    return OCT_OK;
}

oct_status oct_npy_take(oct_array *array, oct_span *span, const char *name, bool *other)
{
    *array = (oct_array){.span = *span};
    *span = OCT_SPAN_NONE;
    oct_status status = oct_strdup(&array->name, name);
    if (status != OCT_OK) {
        oct_span_close(&array->span);
        return status;
    }
    status = read_array_header(array, other);
    if (status != OCT_OK) oct_array_close(array);
    return status;
}

/* libzip finds members and inflates them. A stored one is read from the file itself, a sample at a time: it lies where
 * libzip stands after its first byte, and the checksum, which is compared over what will be read, proves that.
 *
 * A deflated member cannot hold more than 1032 times its own size, and one that is not small may not hold
 * more than 64 times that, which bounds what a lying directory can make us allocate. libzip's memory for a directory
 * is about six times the directory's size.
 */

enum { SHOWN = 8, DEFLATE_RATIO = 1032, TRUSTED_RATIO = 64, SMALL_BYTES = 64 << 20 };

struct oct_zip {
    const char *path;
    FILE *file; /* the archive's */
    int64_t size;
    zip_t *archive;
};

static oct_status fail_zip(const char *path, const char *why)
{
    return oct_fail(OCT_DATA, "%s: is no .npz file, or it is damaged or cut short (%s)", path, why);
}

static oct_status fail_archive(const oct_zip *z, zip_error_t *error)
{
    const oct_status status = fail_zip(z->path, zip_error_strerror(error));
    zip_error_fini(error);
    return status;
}

const char *oct_zip_name(const oct_zip *zip, int64_t i)
{
    return zip_get_name(zip->archive, (zip_uint64_t)i, 0);
}

static oct_status open_archive(oct_zip *z)
{
    oct_span span;
    zip_error_t error;
    zip_error_init(&error);
    OCT_TRY(oct_span_open(&span, z->path));
    z->size = span.size;
    z->file = fdopen(span.fd, "rb");
    if (!z->file) {
        oct_span_close(&span);
        return oct_fail(OCT_RESOURCE, "%s: out of memory for reading it", z->path);
    }
    zip_source_t *source = zip_source_filep_create(z->file, 0, 0, &error); /* owns the file */
    if (!source) {
        fclose(z->file);
        return fail_archive(z, &error);
    }
    z->archive = zip_open_from_source(source, ZIP_RDONLY, &error);
    if (!z->archive) {
        zip_source_free(source);
        return fail_archive(z, &error);
    }
    const int64_t count = zip_get_num_entries(z->archive, 0);
    for (int64_t i = 0; i < count; i++) {
        const char *name = oct_zip_name(z, i);
        if (!name) return fail_zip(z->path, "a member has no name that can be read");
        OCT_CHECK(zip_name_locate(z->archive, name, 0) == i, OCT_DATA,
                  "%s: holds %s twice, and programs differ in which of them they take; write the "
                  "file again with each array once",
                  z->path, oct_show(name, strlen(name)).text);
    }
    return OCT_OK;
}

oct_status oct_zip_open(oct_zip **zip, const char *path)
{
    OCT_TRY(oct_alloc(zip, 1, sizeof **zip));
    (*zip)->path = path;
    const oct_status status = open_archive(*zip);
    if (status != OCT_OK) oct_zip_close(zip);
    return status;
}

void oct_zip_close(oct_zip **zip)
{
    if (*zip && (*zip)->archive) zip_discard((*zip)->archive);
    oct_free(zip);
}

static oct_status report_missing(const oct_zip *z, const char *member)
{
    OCT_OWNED(oct_text_free) oct_text names = {0};
    const char *name;
    for (int64_t i = 0; i < SHOWN && (name = oct_zip_name(z, i)); i++)
        OCT_TRY(
            oct_text_add(&names, "%s%s", i ? ", " : ", but ", oct_show(name, strlen(name)).text));
    return oct_fail(OCT_DATA,
                    "%s: holds no %s%s; data.images and data.labels say what the arrays are called "
                    "(octet run: --images)",
                    z->path, oct_show(member, strlen(member)).text, names.length ? names.data : "");
}

static oct_status check_entry(const oct_zip *z, const char *member, const zip_stat_t *e)
{
    const oct_shown name = oct_show(member, strlen(member));
    const zip_uint64_t all = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD |
                             ZIP_STAT_CRC | ZIP_STAT_ENCRYPTION_METHOD;
    if ((e->valid & all) != all) return fail_zip(z->path, name.text);
    OCT_CHECK(e->encryption_method == ZIP_EM_NONE, OCT_DATA, "%s: %s is encrypted", z->path,
              name.text);
    OCT_CHECK(e->comp_method == ZIP_CM_STORE || e->comp_method == ZIP_CM_DEFLATE, OCT_DATA,
              "%s: %s is packed in a way (%d) that is not read; write it with numpy.savez", z->path,
              name.text, e->comp_method);
    const bool stored = e->comp_method == ZIP_CM_STORE;
    if (e->comp_size > (zip_uint64_t)z->size || (stored && e->comp_size != e->size))
        return fail_zip(z->path, name.text);
    OCT_CHECK(e->size / DEFLATE_RATIO <= e->comp_size &&
                  (stored || e->size <= SMALL_BYTES || e->size / TRUSTED_RATIO <= e->comp_size),
              OCT_DATA,
              "%s: %s says that its %" PRIu64 " bytes hold %" PRIu64
              "; write it with numpy.savez if that is so",
              z->path, name.text, (uint64_t)e->comp_size, (uint64_t)e->size);
    return OCT_OK;
}

/* Finds the bytes of a stored member in the file. */
static oct_status locate_stored_member(const oct_zip *z, zip_file_t *in, oct_span *span)
{
    uint8_t first;
    const zip_int64_t got = zip_fread(in, &first, 1);
    if (got < 0) return fail_zip(z->path, zip_file_strerror(in));
    span->begin = (int64_t)ftello(z->file) - got;
    span->fd = fcntl(fileno(z->file), F_DUPFD_CLOEXEC, 0);
    OCT_CHECK(span->fd >= 0, OCT_RESOURCE, "%s: too many open files", z->path);
    return OCT_OK;
}

static oct_status inflate_member(const oct_zip *z, zip_file_t *in, oct_span *span)
{
    OCT_TRY(oct_mem_check_available(SMALL_BYTES / 64)); /* libzip's buffers and zlib's window */
    OCT_TRY(oct_alloc(&span->memory, (size_t)span->size, 1));
    const zip_int64_t got = zip_fread(in, span->memory, (zip_uint64_t)span->size);
    return got == span->size ? OCT_OK : fail_zip(z->path, zip_file_strerror(in));
}

static oct_status check_checksum(const oct_zip *z, const char *member, const oct_span *span,
                                 uint32_t wanted)
{
    uint8_t block[1 << 14];
    uLong sum = crc32(0, NULL, 0);
    for (int64_t at = 0; at < span->size;) {
        const int64_t left = span->size - at,
                      n = left < (int64_t)sizeof block ? left : (int64_t)sizeof block;
        OCT_TRY(oct_span_read(span, at, block, (size_t)n, z->path));
        sum = crc32(sum, block, (uInt)n);
        at += n;
    }
    OCT_CHECK(sum == wanted, OCT_DATA,
              "%s: %s is damaged: its checksum (CRC-32) is not the one of the archive; copy the "
              "file again",
              z->path, oct_show(member, strlen(member)).text);
    return OCT_OK;
}

oct_status oct_zip_member(oct_zip *zip, const char *member, oct_span *span)
{
    zip_stat_t e;
    *span = OCT_SPAN_NONE;
    const zip_int64_t at = zip_name_locate(zip->archive, member, 0);
    if (at < 0) return report_missing(zip, member);
    if (zip_stat_index(zip->archive, (zip_uint64_t)at, 0, &e) != 0)
        return fail_zip(zip->path, zip_strerror(zip->archive));
    OCT_TRY(check_entry(zip, member, &e));
    zip_file_t *in = zip_fopen_index(zip->archive, (zip_uint64_t)at, 0);
    if (!in) return fail_zip(zip->path, zip_strerror(zip->archive));
    span->size = (int64_t)e.size;
    oct_status status = e.comp_method == ZIP_CM_STORE ? locate_stored_member(zip, in, span)
                                                      : inflate_member(zip, in, span);
    zip_fclose(in);
    if (status == OCT_OK) status = check_checksum(zip, member, span, e.crc);
    if (status != OCT_OK) oct_span_close(span);
    return status;
}

/* NumPy's .npy files, one for each array. */

static oct_status open_file(oct_array *array, const char *path, const char *name)
{
    oct_span span;
    (void)name;
    OCT_TRY(oct_span_open(&span, path));
    return oct_npy_take(array, &span, path, NULL);
}

static const oct_array_kind npy_kind = {
    .extension = ".npy",
    .one_each = true,
    .images = {"{split}_images", "{split}_images"},
    .labels = {"{split}_labels", "{split}_labels"},
    .open = open_file,
};

const oct_dataset_format oct_dataset_npy = {
    .name = "npy",
    .files = "expected: train_images.npy, train_labels.npy, test_images.npy and test_labels.npy, "
             "or what data.images and data.labels name",
    OCT_ARRAYS_MEMBERS,
    .arrays = &npy_kind,
};

/* NumPy's .npz: arrays in a zip archive. Those of numpy.savez are read a sample at a time, those of
 * numpy.savez_compressed whole. */

static oct_status open_member(oct_array *array, const char *path, const char *name)
{
    oct_path member, shown;
    OCT_OWNED(oct_zip_close) oct_zip *zip = NULL;
    oct_span span;
    OCT_TRY(oct_path_make(&member, "%s.npy", name));
    OCT_TRY(oct_path_make(&shown, "%s/%s", path, name));
    OCT_TRY(oct_zip_open(&zip, path));
    OCT_TRY(oct_zip_member(zip, member.text, &span));
    return oct_npy_take(array, &span, shown.text, NULL);
}

static const oct_array_kind npz_kind = {
    .extension = ".npz",
    .images = {"{split}_images", "images"},
    .labels = {"{split}_labels", "labels"},
    .open = open_member,
};

const oct_dataset_format oct_dataset_npz = {
    .name = "npz",
    .files = "expected: data.path=DATA.npz with train_images, train_labels, test_images and "
             "test_labels, or a folder with train.npz and test.npz (or val.npz) of images and "
             "labels, or what "
             "data.images and data.labels name",
    OCT_ARRAYS_MEMBERS,
    .arrays = &npz_kind,
};
