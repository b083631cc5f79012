/* HDF5 1.10 behind a narrow door.
 *
 * The library knows external files, plugins, links of several kinds, virtual and compressed data
 * sets and types within types, and a crafted file can crash it. So an image is proven to hold nothing of
 * that before the library opens it (hdf5_walk.h). What the walk found answers what there is; the library
 * reads the numbers.
 *
 * Equal contents give equal images: no times, groups made by hand (HDF5 would give those it makes by
 * itself a time), space allocated in the order of writing, and memory that HDF5 clears. The format is
 * that of HDF5 1.8: old enough for every reader, new enough to have checksums over its metadata.
 */
#include "io/hdf5.h"

#include "core/base/mem.h"
#include "io/file.h"
#include "io/hdf5_memory.h"
#include "io/hdf5_walk.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The library takes less than this for a file, beside its image; it crashes when it gets none. */
enum { LIBRARY_ROOM = 8 << 20 };

/* An object of a file that is read. */
typedef struct entry {
    const oct_h5_object *object;
    bool read;
} entry;

struct oct_h5 {
    hid_t file;
    hid_t group_options, dataset_options; /* for what is created; -1 when only read */
    oct_h5_memory memory;                 /* of what is created */
    oct_h5_source source; /* of a file that stays on the disk; image NULL: of none */
    oct_h5_map map;
    entry *entries; /* all of the map but the root, by group and name */
    char *name;
};

/* HDF5 names files, and two open files of one name are the same to it. This name is new each time and
 * cannot be on a disk. */
static void unique_name(char *text, size_t size)
{
    static atomic_ullong count;
    snprintf(text, size, "/dev/null/%llu", (unsigned long long)atomic_fetch_add(&count, 1));
}

/* Makes file access options, or -1. The switches are per thread or cheap, so they are simply set each time. */
static hid_t access_options(void)
{
    if (H5Eset_auto2(H5E_DEFAULT, NULL, NULL) < 0 || H5PLset_loading_state(0) < 0) return -1;
    hid_t options = H5Pcreate(H5P_FILE_ACCESS);
    if (options >= 0 && H5Pset_fclose_degree(options, H5F_CLOSE_STRONG) >= 0) return options;
    if (options >= 0) H5Pclose(options);
    return -1;
}

/* The options of an image that is read, or -1. */
static hid_t image_options(const void *image, size_t size)
{
    /* set_file_image copies and does not change what it is given. */
    union {
        const void *borrowed;
        void *passed;
    } bytes = {image};
    hid_t options = access_options();
    if (options < 0 || (H5Pset_fapl_core(options, 1 << 20, 0) >= 0 &&
                        H5Pset_file_image(options, bytes.passed, size) >= 0))
        return options;
    H5Pclose(options);
    return -1;
}

/* The options of an image that is written, or -1. */
static hid_t memory_options(oct_h5_memory *memory)
{
    hid_t options = access_options();
    if (options < 0 || (H5Pset_libver_bounds(options, H5F_LIBVER_V18, H5F_LIBVER_V18) >= 0 &&
                        oct_h5_memory_set(options, memory)))
        return options;
    H5Pclose(options);
    return -1;
}

static oct_status new_handle(oct_h5 **file, const char *name)
{
    OCT_TRY(oct_alloc(file, 1, sizeof **file));
    **file = (oct_h5){.file = -1, .group_options = -1, .dataset_options = -1};
    oct_status status = oct_strdup(&(*file)->name, name);
    if (status != OCT_OK) oct_free(file);
    return status;
}

oct_status oct_h5_create(oct_h5 **file)
{
    return oct_h5_create_sized(file, 0);
}

oct_status oct_h5_create_sized(oct_h5 **file, size_t size)
{
    char name[64];

    *file = NULL;
    OCT_TRY(oct_mem_check_available(LIBRARY_ROOM));
    OCT_TRY(new_handle(file, "HDF5 image"));
    oct_h5 *h5 = *file;
    if (oct_grow(&h5->memory.bytes, &h5->memory.capacity, size, 1) != OCT_OK) {
        oct_h5_close(file);
        return oct_fail_code();
    }
    unique_name(name, sizeof name);
    hid_t access = memory_options(&h5->memory);
    const bool taken = access >= 0;
    hid_t creation = H5Pcreate(H5P_FILE_CREATE);
    h5->group_options = H5Pcreate(H5P_GROUP_CREATE);
    h5->dataset_options = H5Pcreate(H5P_DATASET_CREATE);
    if (access >= 0 && H5Pset_obj_track_times(creation, false) >= 0 &&
        H5Pset_obj_track_times(h5->group_options, false) >= 0 &&
        H5Pset_obj_track_times(h5->dataset_options, false) >= 0 &&
        H5Pset_layout(h5->dataset_options, H5D_CONTIGUOUS) >= 0 &&
        H5Pset_alloc_time(h5->dataset_options, H5D_ALLOC_TIME_EARLY) >= 0 &&
        H5Pset_fill_time(h5->dataset_options, H5D_FILL_TIME_NEVER) >= 0)
        h5->file = H5Fcreate(name, H5F_ACC_TRUNC, creation, access);
    if (creation >= 0) H5Pclose(creation);
    if (access >= 0) H5Pclose(access);
    if (h5->file >= 0) return OCT_OK;
    oct_h5_close(file);
    unsigned v[3] = {0};
    H5get_libversion(&v[0], &v[1], &v[2]);
    OCT_CHECK(taken, OCT_RESOURCE,
              "an HDF5 image cannot be made: HDF5 %u.%u.%u does not take the file driver of this "
              "program, which was built with %d.%d.%d; build Octet again on this machine",
              v[0], v[1], v[2], H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE);
    return oct_fail(OCT_RESOURCE, "an HDF5 image cannot be made: out of memory");
}

oct_status oct_h5_check_library(void)
{
    oct_h5 *file = NULL;
    uint8_t *image = NULL;
    size_t size;
    int64_t value;
    oct_status status = OCT_OK;
    OCT_TRY(oct_h5_create(&file));
    OCT_TRY_OUT(oct_h5_write_i64(file, "group/value", INT64_MAX));
    OCT_TRY_OUT(oct_h5_finish(&file, &image, &size));
    OCT_TRY_OUT(oct_h5_open(&file, image, size, "the HDF5 image of a trial"));
    OCT_TRY_OUT(oct_h5_read_i64(file, "group/value", INT64_MAX, INT64_MAX, &value));
out:
    oct_h5_close(&file);
    oct_free(&image);
    return status;
}

static int by_group_and_name(const void *a, const void *b)
{
    const oct_h5_object *x = ((const entry *)a)->object, *y = ((const entry *)b)->object;
    if (x->parent != y->parent) return x->parent < y->parent ? -1 : 1;
    return oct_h5_compare_names(x->name, x->name_bytes, y->name, y->name_bytes);
}

/* Remembers what the walk has found. */
static oct_status list_entries(oct_h5 *h5)
{
    const size_t count = h5->map.count - 1;
    OCT_TRY(oct_alloc(&h5->entries, count, sizeof *h5->entries));
    for (size_t i = 0; i < count; i++)
        h5->entries[i].object = &h5->map.objects[i + 1];
    if (count > 0) qsort(h5->entries, count, sizeof *h5->entries, by_group_and_name);
    return OCT_OK;
}

/* Proves the image, before HDF5 sees it. */
static oct_status prove(oct_h5 *h5, const void *image, size_t size)
{
    OCT_TRY(oct_h5_walk(&h5->map, image, size));
    return list_entries(h5);
}

static oct_status prove_file(oct_h5 *h5, int fd, size_t size)
{
    OCT_TRY(oct_alloc(&h5->source.image, size, 1));
    h5->source.fd = fd;
    OCT_TRY(oct_h5_walk_file(&h5->map, &h5->source, size));
    return list_entries(h5);
}

oct_status oct_h5_open_file(oct_h5 **file, int fd, size_t size, const char *name)
{
    *file = NULL;
    OCT_TRY(new_handle(file, name));
    if (prove_file(*file, fd, size) == OCT_OK) return OCT_OK;
    oct_h5_close(file);
    return oct_fail_prefix("%s", name);
}

oct_status oct_h5_open(oct_h5 **file, const void *image, size_t size, const char *name)
{
    char unique[64];

    *file = NULL;
    OCT_CHECK(image && size > 0, OCT_DATA, "%s: is empty, not an HDF5 file", name);
    OCT_TRY(new_handle(file, name));
    if (prove(*file, image, size) != OCT_OK ||
        oct_mem_check_available(LIBRARY_ROOM + size) != OCT_OK) {
        oct_h5_close(file);
        return oct_fail_prefix("%s", name);
    }
    unique_name(unique, sizeof unique);
    hid_t access = image_options(image, size);
    if (access >= 0) {
        (*file)->file = H5Fopen(unique, H5F_ACC_RDONLY, access);
        H5Pclose(access);
    }
    if ((*file)->file >= 0) return OCT_OK;
    oct_h5_close(file);
    return oct_fail(OCT_DATA, "%s: is not an HDF5 file that can be opened", name);
}

void oct_h5_close(oct_h5 **file)
{
    oct_h5 *h5 = *file;
    if (!h5) return;
    if (h5->group_options >= 0) H5Pclose(h5->group_options);
    if (h5->dataset_options >= 0) H5Pclose(h5->dataset_options);
    if (h5->file >= 0) H5Fclose(h5->file);
    oct_free(&h5->memory.bytes);
    oct_free(&h5->source.image);
    oct_h5_map_free(&h5->map);
    oct_free(&h5->entries);
    oct_free(&h5->name);
    oct_free(file);
}

/* H5Fget_file_image clears the flag "open for writing" in the superblock, but before HDF5 2.0 it
 * leaves the checksum of the block as it was (HDFGroup/hdf5 issue 1915). */
static void mend_superblock(uint8_t *image, size_t size)
{
    enum { VERSION_AT = 8, CHECKSUM_AT = 44, END = 48 };
    OCT_ASSERT(size >= END && image[VERSION_AT] == 2);
    uint32_t checksum = oct_h5_checksum(image, CHECKSUM_AT);
    for (int i = 0; i < 4; i++)
        image[CHECKSUM_AT + i] = (uint8_t)(checksum >> (8 * i));
}

/* Copies the image into a block with room for more behind it. */
static oct_status take_image(oct_h5 *file, size_t room, void **bytes, size_t *size)
{
    *bytes = NULL;
    *size = 0;
    ssize_t length =
        H5Fflush(file->file, H5F_SCOPE_GLOBAL) < 0 ? -1 : H5Fget_file_image(file->file, NULL, 0);
    OCT_CHECK(length > 0, OCT_RESOURCE, "%s: cannot be finished: out of memory", file->name);
    OCT_TRY(oct_alloc(bytes, (size_t)length + room, 1));
    if (H5Fget_file_image(file->file, *bytes, (size_t)length) != length) {
        oct_free(bytes);
        return oct_fail(OCT_RESOURCE, "%s: cannot be finished: out of memory", file->name);
    }
    *size = (size_t)length;
    mend_superblock(*bytes, *size);
    return OCT_OK;
}

oct_status oct_h5_image(oct_h5 *file, void **bytes, size_t *size)
{
    return take_image(file, 0, bytes, size);
}

oct_status oct_h5_finish(oct_h5 **file, uint8_t **image, size_t *size)
{
    enum { FLAGS_AT = 11 }; /* as H5Fget_file_image leaves it: no longer open for writing */
    oct_h5_memory *memory = &(*file)->memory;
    oct_status status = OCT_OK;
    *image = NULL;
    ssize_t length = H5Fflush((*file)->file, H5F_SCOPE_GLOBAL) < 0
                         ? -1
                         : H5Fget_file_image((*file)->file, NULL, 0);
    if (length > 0) {
        *image = memory->bytes;
        *size = (size_t)length;
        *memory = (oct_h5_memory){.end = memory->end, .written = memory->written, .taken = true};
        (*image)[FLAGS_AT] = 0;
        mend_superblock(*image, *size);
    } else {
        status = oct_fail(OCT_RESOURCE, "%s: cannot be finished: out of memory", (*file)->name);
    }
    oct_h5_close(file);
    return status;
}

oct_status oct_h5_seal(oct_h5 *file, void **bytes, size_t *size)
{
    OCT_TRY(take_image(file, OCT_SEAL_BYTES, bytes, size));
    oct_sha256(*bytes, *size, (uint8_t *)*bytes + *size);
    *size += OCT_SEAL_BYTES;
    return OCT_OK;
}

bool oct_h5_sealed(const void *bytes, size_t size)
{
    uint8_t digest[OCT_SEAL_BYTES];
    if (size <= OCT_SEAL_BYTES) return false;
    oct_sha256(bytes, size - OCT_SEAL_BYTES, digest);
    return memcmp(digest, (const uint8_t *)bytes + size - OCT_SEAL_BYTES, sizeof digest) == 0;
}

oct_status oct_h5_open_sealed(oct_h5 **file, const void *bytes, size_t size, const char *name)
{
    *file = NULL;
    OCT_CHECK(oct_h5_sealed(bytes, size), OCT_DATA, "%s: is damaged: its SHA-256 differs", name);
    return oct_h5_open(file, bytes, size - OCT_SEAL_BYTES, name);
}

/* Types are known to HDF5 only when it has started, so this is no static table. */
static hid_t type_of(oct_dtype dtype, bool in_memory)
{
    const hid_t types[][2] = {
        [OCT_F32] = {H5T_IEEE_F32LE, H5T_NATIVE_FLOAT},
        [OCT_U8] = {H5T_STD_U8LE, H5T_NATIVE_UINT8},
        [OCT_U16] = {H5T_STD_U16LE, H5T_NATIVE_UINT16},
        [OCT_S8] = {H5T_STD_I8LE, H5T_NATIVE_INT8},
        [OCT_S16] = {H5T_STD_I16LE, H5T_NATIVE_INT16},
        [OCT_S32] = {H5T_STD_I32LE, H5T_NATIVE_INT32},
        [OCT_F64] = {H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE},
        [OCT_S64] = {H5T_STD_I64LE, H5T_NATIVE_INT64},
    };
    return types[dtype][in_memory];
}

/* Cuts the next name off a path: false at its end. A bad name or one too many gives *bad. */
typedef struct path_walk {
    const char *rest;
    int depth;
    bool bad;
    char name[OCT_H5_NAME_BYTES + 1];
} path_walk;

static bool next_name(path_walk *walk)
{
    if (!*walk->rest) return false;
    size_t length = strcspn(walk->rest, "/");
    bool last = walk->rest[length] == '\0';
    walk->bad = !oct_h5_is_name(walk->rest, length) || ++walk->depth > OCT_H5_DEPTH ||
                (!last && walk->rest[length + 1] == '\0');
    if (walk->bad) return false;
    memcpy(walk->name, walk->rest, length);
    walk->name[length] = '\0';
    walk->rest += length + !last;
    return true;
}

/* Looks up a path in a file that is read: true when something is there. The root is NULL. */
static bool look_up(const oct_h5 *file, const char *path, entry **found)
{
    path_walk walk = {.rest = path};
    oct_h5_object key = {.parent = 0};

    *found = NULL;
    while (next_name(&walk)) {
        key.name = walk.name;
        key.name_bytes = strlen(walk.name);
        *found = file->entries
                     ? bsearch(&(entry){.object = &key}, file->entries, file->map.count - 1,
                               sizeof *file->entries, by_group_and_name)
                     : NULL;
        if (!*found) return false;
        key.parent = (size_t)((*found)->object - file->map.objects);
    }
    return !walk.bad;
}

static oct_status find_dataset(const oct_h5 *file, const char *path, entry **found)
{
    OCT_CHECK(look_up(file, path, found), OCT_DATA, "%s: %s is missing", file->name, path);
    OCT_CHECK(*found && !(*found)->object->group, OCT_DATA, "%s: %s is not a data set", file->name,
              path);
    return OCT_OK;
}

bool oct_h5_has(oct_h5 *file, const char *path)
{
    entry *found;
    return look_up(file, path, &found);
}

bool oct_h5_is_group(oct_h5 *file, const char *path)
{
    entry *found;
    return look_up(file, path, &found) && (!found || found->object->group);
}

/* Opens the group in which `path` will be, making what is missing; walk->name is the last name. */
static hid_t make_parents(oct_h5 *file, path_walk *walk)
{
    hid_t at = H5Gopen2(file->file, "/", H5P_DEFAULT);
    while (at >= 0 && next_name(walk) && *walk->rest) {
        hid_t next =
            H5Lexists(at, walk->name, H5P_DEFAULT) > 0
                ? H5Gopen2(at, walk->name, H5P_DEFAULT)
                : H5Gcreate2(at, walk->name, H5P_DEFAULT, file->group_options, H5P_DEFAULT);
        H5Gclose(at);
        at = next;
    }
    if (at >= 0 && (walk->bad || walk->depth == 0)) {
        H5Gclose(at);
        at = -1;
    }
    return at;
}

/* Makes a data set with these values; data NULL: without, and *at (may be NULL) is where they will lie. */
static oct_status make_dataset(oct_h5 *file, const char *path, oct_dtype dtype, oct_shape shape,
                               const void *data, size_t *at)
{
    hsize_t dims[OCT_MAX_DIMS] = {0};
    hid_t parent = -1, space = -1, dataset = -1;
    path_walk walk = {.rest = path};
    int64_t numel = oct_shape_numel(&shape);

    OCT_CHECK(numel >= 0 && numel <= INT64_MAX / 8, OCT_RESOURCE, "%s: %s is too large to write",
              file->name, path);
    for (int i = 0; i < shape.ndim; i++)
        dims[i] = (hsize_t)shape.dim[i];
    space = shape.ndim ? H5Screate_simple(shape.ndim, dims, NULL) : H5Screate(H5S_SCALAR);
    parent = make_parents(file, &walk);
    if (parent >= 0 && space >= 0)
        dataset = H5Dcreate2(parent, walk.name, type_of(dtype, false), space, H5P_DEFAULT,
                             file->dataset_options, H5P_DEFAULT);
    bool written = dataset >= 0 && (numel == 0 || !data ||
                                    H5Dwrite(dataset, type_of(dtype, true), H5S_ALL, H5S_ALL,
                                             H5P_DEFAULT, data) >= 0);
    const haddr_t begin = written && at && numel > 0 ? H5Dget_offset(dataset) : 0;
    if (begin == HADDR_UNDEF) written = false;
    if (at) *at = (size_t)begin;
    if (dataset >= 0 && H5Dclose(dataset) < 0) written = false;
    if (space >= 0) H5Sclose(space);
    if (parent >= 0) H5Gclose(parent);
    OCT_CHECK(written, OCT_RESOURCE,
              "%s: %s cannot be written: the name is taken or no name, or memory is out",
              file->name, path);
    return OCT_OK;
}

oct_status oct_h5_write(oct_h5 *file, const char *path, oct_dtype dtype, oct_shape shape,
                        const void *data)
{
    return make_dataset(file, path, dtype, shape, data, NULL);
}

oct_status oct_h5_reserve(oct_h5 *file, const char *path, oct_dtype dtype, oct_shape shape,
                          size_t *at)
{
    return make_dataset(file, path, dtype, shape, NULL, at);
}

/* Does HDF5 see the shape in a data set that the walk saw? It reads as many bytes as that has. */
static bool has_shape(hid_t dataset, const oct_shape *shape)
{
    hsize_t dims[OCT_MAX_DIMS] = {0};
    hid_t space = H5Dget_space(dataset);
    if (space < 0) return false;
    bool same = H5Sget_simple_extent_ndims(space) == shape->ndim &&
                (shape->ndim == 0 || H5Sget_simple_extent_dims(space, dims, NULL) == shape->ndim);
    for (int i = 0; same && i < shape->ndim; i++)
        same = dims[i] == (hsize_t)shape->dim[i];
    H5Sclose(space);
    return same;
}

static bool has_type(hid_t dataset, oct_dtype dtype)
{
    hid_t type = H5Dget_type(dataset);
    if (type < 0) return false;
    bool same = H5Tequal(type, type_of(dtype, false)) > 0;
    H5Tclose(type);
    return same;
}

oct_status oct_h5_look(oct_h5 *file, const char *path, oct_dtype *dtype, oct_shape *shape)
{
    entry *found;
    OCT_TRY(find_dataset(file, path, &found));
    *dtype = found->object->dtype;
    *shape = found->object->shape;
    return OCT_OK;
}

static oct_status check_equal(const oct_h5 *file, const char *path, const oct_h5_object *object,
                              oct_dtype dtype, const oct_shape *shape)
{
    char got[96], wanted[96];
    OCT_CHECK(object->dtype == dtype && oct_shape_equal(&object->shape, shape), OCT_DATA,
              "%s: %s is %s %s, not %s %s", file->name, path, oct_dtype_name(object->dtype),
              oct_shape_text(&object->shape, got), oct_dtype_name(dtype),
              oct_shape_text(shape, wanted));
    return OCT_OK;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values lie in files as in memory");

static bool read_data(const oct_h5 *file, const char *path, const oct_h5_object *object, void *data)
{
    const oct_dtype dtype = object->dtype;
    const oct_shape *shape = &object->shape;
    if (oct_shape_numel(shape) == 0) return true;
    if (file->source.image)
        return oct_file_read_at(file->source.fd, object->at, data,
                                (size_t)oct_shape_numel(shape) * oct_dtype_bytes(dtype)) == OCT_OK;
    hid_t dataset = H5Dopen2(file->file, path, H5P_DEFAULT);
    bool done = dataset >= 0 && has_shape(dataset, shape) && has_type(dataset, dtype) &&
                H5Dread(dataset, type_of(dtype, true), H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
    if (dataset >= 0) H5Dclose(dataset);
    return done;
}

oct_status oct_h5_check(oct_h5 *file, const char *path, oct_dtype dtype, oct_shape shape)
{
    entry *found;
    OCT_TRY(find_dataset(file, path, &found));
    return check_equal(file, path, found->object, dtype, &shape);
}

/* Reads a data set into data or, with block (a T **), into memory that it allocates. */
static oct_status read_dataset(oct_h5 *file, const char *path, oct_dtype dtype, oct_shape shape,
                               void *data, void *block)
{
    entry *found;

    OCT_TRY(find_dataset(file, path, &found));
    OCT_TRY(check_equal(file, path, found->object, dtype, &shape));
    if (block) {
        OCT_TRY(oct_alloc(block, (size_t)oct_shape_numel(&shape), oct_dtype_bytes(dtype)));
        memcpy(&data, block, sizeof data);
    }
    if (!read_data(file, path, found->object, data)) {
        if (block) oct_free(block);
        return oct_fail(OCT_DATA, "%s: %s cannot be read; the file is damaged", file->name, path);
    }
    found->read = true;
    return OCT_OK;
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

oct_status oct_h5_write_text(oct_h5 *file, const char *path, const char *text)
{
    return oct_h5_write(file, path, OCT_U8, OCT_SHAPE((int64_t)strlen(text)), text);
}

oct_status oct_h5_read_text(oct_h5 *file, const char *path, size_t limit, char **text)
{
    oct_dtype dtype;
    oct_shape shape;

    *text = NULL;
    OCT_TRY(oct_h5_look(file, path, &dtype, &shape));
    OCT_CHECK(dtype == OCT_U8 && shape.ndim == 1, OCT_DATA, "%s: %s is not a text", file->name,
              path);
    OCT_CHECK((uint64_t)shape.dim[0] <= limit, OCT_DATA,
              "%s: %s has %lld bytes, more than the %zu allowed", file->name, path,
              (long long)shape.dim[0], limit);
    OCT_TRY(oct_alloc(text, (size_t)shape.dim[0] + 1, 1));
    oct_status status = oct_h5_read(file, path, dtype, shape, *text);
    if (status == OCT_OK && strlen(*text) != (size_t)shape.dim[0])
        status =
            oct_fail(OCT_DATA, "%s: %s holds a NUL byte, which no text does", file->name, path);
    if (status != OCT_OK) oct_free(text);
    return status;
}

oct_status oct_h5_write_i64(oct_h5 *file, const char *path, int64_t value)
{
    return oct_h5_write(file, path, OCT_S64, (oct_shape){.ndim = 0}, &value);
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

oct_status oct_h5_list(oct_h5 *file, const char *group,
                       oct_status (*visit)(void *user, const char *name), void *user)
{
    entry *found;
    OCT_CHECK(look_up(file, group, &found), OCT_DATA, "%s: %s is missing", file->name, group);
    OCT_CHECK(!found || found->object->group, OCT_DATA, "%s: %s is not a group", file->name, group);
    const size_t number = found ? (size_t)(found->object - file->map.objects) : 0;
    size_t low = 0, high = file->map.count > 0 ? file->map.count - 1 : 0; /* of the first in it */
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (file->entries[middle].object->parent < number)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t i = low; i + 1 < file->map.count; i++) {
        const oct_h5_object *object = file->entries[i].object;
        char name[OCT_H5_NAME_BYTES + 1];
        if (object->parent != number) break;
        snprintf(name, sizeof name, "%.*s", (int)object->name_bytes, object->name);
        OCT_TRY(visit(user, name));
    }
    return OCT_OK;
}

/* Writes the path of an object, or its end when it is longer than there is room. */
static const char *path_of(const oct_h5 *file, const oct_h5_object *object, char *text, size_t size)
{
    size_t at = size - 1;
    text[at] = '\0';
    for (; object->name && at > object->name_bytes; object = &file->map.objects[object->parent]) {
        if (text[at] != '\0') text[--at] = '/';
        at -= object->name_bytes;
        memcpy(text + at, object->name, object->name_bytes);
    }
    return text + at;
}

oct_status oct_h5_check_all_read(oct_h5 *file)
{
    char text[1024];
    size_t surplus = 0;
    const oct_h5_object *first = NULL;
    for (size_t i = 0; i + 1 < file->map.count; i++) {
        const entry *e = &file->entries[i];
        if (e->object->group || e->read) continue;
        if (surplus++ == 0) first = e->object;
    }
    OCT_CHECK(surplus == 0, OCT_DATA,
              "%s: holds %zu data set%s that this Octet does not know there, such as %s; use the "
              "Octet that wrote it",
              file->name, surplus, surplus == 1 ? "" : "s",
              path_of(file, first, text, sizeof text));
    return OCT_OK;
}
