/* HDF5 files of Octet, read: libhdf5 says in a program of its own (hdf5_child.h) what is in the file and where. Each
 * number of that is held against the file here; then values are read where they lie, and nothing that the library does
 * can change one. */
#include "core/base/mem.h"
#include "io/file/file.h"
#include "io/hdf5/hdf5_child.h"
#include "io/hdf5/hdf5_impl.h"

#include <stdlib.h>
#include <string.h>

bool oct_h5_next_name(oct_h5_names *names)
{
    if (!*names->rest) return false;
    const size_t length = strcspn(names->rest, "/");
    const bool last = names->rest[length] == '\0', dot = length == 1 && *names->rest == '.';
    names->bad = length == 0 || length >= sizeof names->name || dot ||
                 ++names->depth > OCT_H5_DEPTH || (!last && names->rest[length + 1] == '\0');
    for (size_t i = 0; i < length; i++)
        names->bad |= names->rest[i] < ' ' || names->rest[i] > '~';
    if (names->bad) return false;
    memcpy(names->name, names->rest, length);
    names->name[length] = '\0';
    names->rest += length + !last;
    return true;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(((const oct_h5_object *)a)->path, ((const oct_h5_object *)b)->path);
}

static int compare_offsets(const void *a, const void *b)
{
    const int64_t x = ((const oct_h5_object *)a)->offset, y = ((const oct_h5_object *)b)->offset;
    return (x > y) - (x < y);
}

static int64_t bytes_of(const oct_h5_object *object)
{
    return oct_shape_numel(&object->shape) * (int64_t)oct_dtype_bytes(object->dtype);
}

/* Takes type, shape and offset of a data set from what the child says of it; false unless it is of one of our types and
 * lies whole in the file. */
static bool describe_dataset(oct_h5_object *object, const oct_h5_message *m, int64_t file_size)
{
    static const struct {
        oct_dtype dtype;
        char type;
    } types[] = {{OCT_F32, 'f'}, {OCT_U8, 'u'},  {OCT_U16, 'u'}, {OCT_S8, 'i'},
                 {OCT_S16, 'i'}, {OCT_S32, 'i'}, {OCT_F64, 'f'}, {OCT_S64, 'i'}};
    int64_t bytes = m->bytes;
    size_t i = 0;
    while (i < OCT_COUNT(types) &&
           (types[i].type != m->type || (int64_t)oct_dtype_bytes(types[i].dtype) != m->bytes))
        i++;
    if (i == OCT_COUNT(types) || m->big || m->ndim < 0 || m->ndim > OCT_MAX_DIMS) return false;
    bool empty = false;
    for (int d = 0; d < m->ndim; d++) {
        if (m->dim[d] < 0 || m->dim[d] > INT64_MAX / 8) return false;
        empty |= m->dim[d] == 0;
    }
    for (int d = 0; d < m->ndim && !empty; d++)
        if (__builtin_mul_overflow(bytes, m->dim[d], &bytes)) return false;
    object->dtype = types[i].dtype;
    object->shape = oct_shape_of((int)m->ndim, m->dim);
    object->offset = empty ? -1 : m->at;
    return empty || (m->at >= 0 && m->at <= file_size && bytes <= file_size - m->at);
}

/* Adds an object that the child has found; *path_bytes: what the paths of further ones may take. */
static oct_status add_object(oct_h5 *h5, const oct_h5_message *m, int64_t *path_bytes)
{
    oct_h5_names names = {.rest = m->name};
    oct_h5_object object = {.group = m->type == 'g'};
    const size_t length = strnlen(m->name, sizeof m->name);
    if (length == sizeof m->name || length == 0)
        return oct_fail(OCT_DATA, "an object without a name");
    while (oct_h5_next_name(&names)) {
    }
    OCT_CHECK(!names.bad, OCT_DATA,
              "a name that is too long, nested too deep or holds more than printable letters");
    *path_bytes -= (int64_t)length + 64;
    OCT_CHECK(*path_bytes >= 0, OCT_DATA, "more objects than a file of its size can");
    OCT_CHECK(object.group || describe_dataset(&object, m, h5->span.size), OCT_DATA,
              "%s, which is of another type or is not in one piece in the file", m->name);
    OCT_TRY(oct_grow(&h5->objects, &h5->capacity, h5->count + 1, sizeof object));
    OCT_TRY(oct_strdup(&object.path, m->name));
    h5->objects[h5->count++] = object;
    return OCT_OK;
}

/* Sorts the objects; refuses data sets that overlap, and two objects of one name. */
static oct_status sort_objects(oct_h5 *h5)
{
    int64_t end = 0;
    if (h5->count == 0) return OCT_OK;
    qsort(h5->objects, h5->count, sizeof *h5->objects, compare_offsets);
    for (size_t i = 0; i < h5->count; i++) {
        const oct_h5_object *o = &h5->objects[i];
        if (o->group || o->offset < 0) continue;
        OCT_CHECK(o->offset >= end, OCT_DATA, "%s, which overlaps something else", o->path);
        end = o->offset + bytes_of(o);
    }
    qsort(h5->objects, h5->count, sizeof *h5->objects, compare_paths);
    for (size_t i = 1; i < h5->count; i++)
        OCT_CHECK(strcmp(h5->objects[i - 1].path, h5->objects[i].path) != 0, OCT_DATA,
                  "two objects of the name %s", h5->objects[i].path);
    return OCT_OK;
}

/* Asks the child what is in the file, and checks all of it. */
static oct_status list_objects(oct_h5 *h5, oct_h5_child *child)
{
    oct_h5_message m = {.kind = OCT_H5_LIST, .bytes = h5->span.size};
    int64_t path_bytes = ((int64_t)1 << 20) + 8 * h5->span.size; /* more paths no file can hold */
    bool done = false;
    OCT_TRY(oct_h5_child_start(child, &h5->span, h5->name));
    OCT_TRY(oct_h5_child_ask(child, &m));
    OCT_TRY(oct_h5_child_answer(child, OCT_H5_OBJECT, &m, &done));
    while (!done) {
        if (add_object(h5, &m, &path_bytes) != OCT_OK)
            return oct_fail_prefix("%s: holds what Octet does not write", h5->name);
        OCT_TRY(oct_h5_child_answer(child, OCT_H5_OBJECT, &m, &done));
    }
    if (sort_objects(h5) != OCT_OK)
        return oct_fail_prefix("%s: holds what Octet does not write", h5->name);
    return OCT_OK;
}

oct_status oct_h5_open(oct_h5 **file, int fd, const void *image, size_t size, const char *name)
{
    OCT_OWNED(oct_h5_child_end) oct_h5_child child = OCT_H5_NO_CHILD;
    oct_span span = {.fd = fd, .size = (int64_t)size};
    memcpy(&span.memory, &image, sizeof image); /* it is only read */
    *file = NULL;
    OCT_CHECK((fd >= 0 || image) && size > 0, OCT_DATA, "%s: is empty, not an HDF5 file", name);
    OCT_TRY(oct_alloc(file, 1, sizeof **file));
    (*file)->span = span;
    oct_status status = oct_strdup(&(*file)->name, name);
    if (status == OCT_OK) status = list_objects(*file, &child);
    if (status != OCT_OK) oct_h5_close(file);
    return status;
}

void oct_h5_close(oct_h5 **file)
{
    oct_h5 *h5 = *file;
    if (!h5) return;
    if (h5->end_writing) h5->end_writing(h5);
    for (size_t i = 0; i < h5->count; i++)
        oct_free(&h5->objects[i].path);
    OCT_FREE_ALL(&h5->objects, &h5->name, file);
}

oct_status oct_h5_write(oct_h5 *file, const char *path, oct_dtype dtype, oct_shape shape,
                        const void *data)
{
    return file->write(file, path, dtype, shape, data);
}

oct_status oct_h5_write_text(oct_h5 *file, const char *path, const char *text)
{
    return oct_h5_write(file, path, OCT_U8, OCT_SHAPE((int64_t)strlen(text)), text);
}

oct_status oct_h5_write_i64(oct_h5 *file, const char *path, int64_t value)
{
    return oct_h5_write(file, path, OCT_S64, (oct_shape){.ndim = 0}, &value);
}

bool oct_h5_checksum_fits(const void *bytes, size_t size)
{
    uint8_t digest[OCT_CHECKSUM_BYTES];
    if (size <= OCT_CHECKSUM_BYTES) return false;
    oct_sha256(bytes, size - OCT_CHECKSUM_BYTES, digest);
    return memcmp(digest, (const uint8_t *)bytes + size - OCT_CHECKSUM_BYTES, sizeof digest) == 0;
}

bool oct_h5_begins(const void *bytes, size_t size)
{
    static const uint8_t signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    return size >= sizeof signature && memcmp(bytes, signature, sizeof signature) == 0;
}

oct_status oct_h5_check_checksum(const void *bytes, size_t size)
{
    /* The superblock says where a file of HDF5 ends; one of Octet goes on with its SHA-256. */
    enum { VERSION = 8, END_OF_OLD = 40, END_OF_NEW = 28, HEAD = 48 };
    const uint8_t *head = bytes;
    uint64_t end = 0;
    if (oct_h5_checksum_fits(bytes, size)) return OCT_OK;
    if (size >= HEAD) memcpy(&end, head + (head[VERSION] < 2 ? END_OF_OLD : END_OF_NEW), 8);
    OCT_CHECK(end != size || !oct_h5_begins(bytes, size), OCT_DATA,
              "is an HDF5 file without the SHA-256 that ends each int8 model and checkpoint of "
              "Octet: it is of another program, or another program (h5py, h5repack) has written it "
              "again; take the file that Octet wrote. `octet data` and data.path take arrays in "
              "HDF5, the recipe key init takes weights as .safetensors, .npz or .onnx");
    return oct_fail(OCT_DATA, "is damaged: its SHA-256 differs");
}

oct_status oct_h5_open_checked(oct_h5 **file, const void *bytes, size_t size, const char *name)
{
    *file = NULL;
    if (oct_h5_check_checksum(bytes, size) != OCT_OK) return oct_fail_prefix("%s", name);
    return oct_h5_open(file, -1, bytes, size - OCT_CHECKSUM_BYTES, name);
}

/* Finds a data set or a group; NULL: there is none. */
static oct_h5_object *find_object(const oct_h5 *file, const char *path)
{
    char *text = NULL;
    memcpy(&text, &path, sizeof text); /* it is only compared */
    const oct_h5_object key = {.path = text};
    return file->count > 0
               ? bsearch(&key, file->objects, file->count, sizeof *file->objects, compare_paths)
               : NULL;
}

static oct_status find_dataset(const oct_h5 *file, const char *path, oct_h5_object **found)
{
    *found = find_object(file, path);
    OCT_CHECK(*found, OCT_DATA, "%s: %s is missing", file->name, path);
    OCT_CHECK(!(*found)->group, OCT_DATA, "%s: %s is not a data set", file->name, path);
    return OCT_OK;
}

bool oct_h5_has(oct_h5 *file, const char *path)
{
    return find_object(file, path) != NULL;
}

bool oct_h5_is_group(oct_h5 *file, const char *path)
{
    const oct_h5_object *found = find_object(file, path);
    return *path == '\0' || (found && found->group);
}

const char *oct_h5_next_dataset(const oct_h5 *file, const char *prefix, size_t *next)
{
    while (*next < file->count) {
        const oct_h5_object *object = &file->objects[(*next)++];
        if (!object->group && strncmp(object->path, prefix, strlen(prefix)) == 0)
            return object->path;
    }
    return NULL;
}

oct_status oct_h5_describe(oct_h5 *file, const char *path, oct_dtype *dtype, oct_shape *shape)
{
    oct_h5_object *found;
    OCT_TRY(find_dataset(file, path, &found));
    *dtype = found->dtype;
    *shape = found->shape;
    return OCT_OK;
}

/* Reads a data set into `data` (NULL: nowhere) or, with block (a T **), into memory that it allocates. */
static oct_status read_dataset(oct_h5 *file, const char *path, oct_dtype dtype, oct_shape shape,
                               void *data, void *block)
{
    oct_h5_object *found;
    oct_status status = OCT_OK;

    OCT_TRY(find_dataset(file, path, &found));
    OCT_CHECK(found->dtype == dtype && oct_shape_equal(&found->shape, &shape), OCT_DATA,
              "%s: %s is %s %s, not %s %s", file->name, path, oct_dtype_name(found->dtype),
              oct_text_shape(&found->shape).text, oct_dtype_name(dtype),
              oct_text_shape(&shape).text);
    if (block) {
        OCT_TRY(oct_alloc(block, (size_t)oct_shape_numel(&shape), oct_dtype_bytes(dtype)));
        memcpy(&data, block, sizeof data);
    }
    if (data && bytes_of(found) > 0)
        status =
            oct_span_read(&file->span, found->offset, data, (size_t)bytes_of(found), file->name);
    if (status != OCT_OK && block) oct_free(block);
    found->read = status == OCT_OK && (data || bytes_of(found) == 0);
    return status;
}

oct_status oct_h5_read(oct_h5 *file, const char *path, oct_dtype dtype, oct_shape shape, void *data)
{
    return read_dataset(file, path, dtype, shape, data, NULL);
}

oct_status oct_h5_read_new(oct_h5 *file, const char *path, oct_dtype dtype, oct_shape shape,
                           void *data)
{
    memcpy(data, &(void *){NULL}, sizeof(void *));
    return read_dataset(file, path, dtype, shape, NULL, data);
}

oct_status oct_h5_read_text(oct_h5 *file, const char *path, size_t limit, char **text)
{
    oct_dtype dtype;
    oct_shape shape;
    *text = NULL;
    OCT_TRY(oct_h5_describe(file, path, &dtype, &shape));
    OCT_CHECK(dtype == OCT_U8 && shape.ndim == 1, OCT_DATA, "%s: %s is not a text", file->name,
              path);
    OCT_CHECK((uint64_t)shape.dim[0] <= limit, OCT_DATA, "%s: %s has %s, more than the %s allowed",
              file->name, path, oct_text_size(shape.dim[0]).text,
              oct_text_size((int64_t)limit).text);
    OCT_TRY(oct_alloc(text, (size_t)shape.dim[0] + 1, 1));
    OCT_ASSERT(*text);
    oct_status status = oct_h5_read(file, path, dtype, shape, *text);
    if (status == OCT_OK && strlen(*text) != (size_t)shape.dim[0])
        status =
            oct_fail(OCT_DATA, "%s: %s holds a NUL byte, which no text does", file->name, path);
    if (status != OCT_OK) oct_free(text);
    return status;
}

oct_status oct_h5_read_i64(oct_h5 *file, const char *path, int64_t min, int64_t max, int64_t *value)
{
    int64_t got = 0;
    OCT_TRY(oct_h5_read(file, path, OCT_S64, (oct_shape){.ndim = 0}, &got));
    OCT_CHECK(got >= min && got <= max, OCT_DATA, "%s: %s is %lld, outside %lld to %lld",
              file->name, path, (long long)got, (long long)min, (long long)max);
    *value = got;
    return OCT_OK;
}

oct_status oct_h5_check_all_read(oct_h5 *file)
{
    size_t surplus = 0;
    const char *first = NULL;
    for (size_t i = 0; i < file->count; i++) {
        const oct_h5_object *object = &file->objects[i];
        if (object->group || object->read) continue;
        if (surplus++ == 0) first = object->path;
    }
    OCT_CHECK(surplus == 0, OCT_DATA,
              "%s: holds %zu data set%s that this Octet does not know there, such as %s; use the "
              "Octet that wrote it",
              file->name, surplus, surplus == 1 ? "" : "s", first);
    return OCT_OK;
}
