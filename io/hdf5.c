/* HDF5 1.10 behind a narrow door.
 *
 * The library knows external files, plugins, links of several kinds, virtual and compressed data
 * sets and types within types. None of that is wanted from a file that somebody sent, so a path is
 * walked link by link and a data set is looked at from all sides before its bytes are read. The bytes
 * themselves must lie inside the image: what is not stored would be made up from a fill value.
 *
 * Equal contents give equal images: no times, groups made by hand (HDF5 would give those it makes by
 * itself a time), space allocated in the order of writing, and memory that HDF5 clears. The format is
 * that of HDF5 1.8: old enough for every reader, new enough to have checksums over its metadata.
 */
#include "io/hdf5.h"

#include "core/base/mem.h"
#include "io/file.h"

#include <hdf5.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { NAME_MAX_BYTES = 255, DEPTH_MAX = 32, NAMES_MAX = 100000 };

struct oct_h5 {
    hid_t file;
    hid_t group_options, dataset_options; /* for what is created; -1 when only read */
    size_t image_bytes;                   /* of a file that is read */
    char *name;
};

/* HDF5 names files, and two open files of one name are the same to it. This name is new each time and
 * cannot be on a disk. */
static void unique_name(char *text, size_t size)
{
    static atomic_ullong count;
    snprintf(text, size, "/dev/null/%llu", (unsigned long long)atomic_fetch_add(&count, 1));
}

/* The file access options of an image in memory, or -1. The switches are per thread or cheap, so they
 * are simply set each time. */
static hid_t memory_options(const void *image, size_t size)
{
    if (H5Eset_auto2(H5E_DEFAULT, NULL, NULL) < 0 || H5PLset_loading_state(0) < 0) return -1;
    hid_t options = H5Pcreate(H5P_FILE_ACCESS);
    if (options < 0) return -1;
    /* set_file_image copies and does not change what it is given. */
    union {
        const void *borrowed;
        void *passed;
    } bytes = {image};
    bool done = H5Pset_fapl_core(options, 1 << 20, 0) >= 0 &&
                H5Pset_fclose_degree(options, H5F_CLOSE_STRONG) >= 0 &&
                (image ? H5Pset_file_image(options, bytes.passed, size) >= 0
                       : H5Pset_libver_bounds(options, H5F_LIBVER_V18, H5F_LIBVER_V18) >= 0);
    if (done) return options;
    H5Pclose(options);
    return -1;
}

static oct_status new_handle(oct_h5 **file, const char *name, size_t image_bytes)
{
    OCT_TRY(oct_alloc(file, 1, sizeof **file));
    **file = (oct_h5){-1, -1, -1, image_bytes, NULL};
    oct_status status = oct_strdup(&(*file)->name, name);
    if (status != OCT_OK) oct_free(file);
    return status;
}

oct_status oct_h5_create(oct_h5 **file)
{
    char name[64];

    *file = NULL;
    OCT_TRY(new_handle(file, "HDF5 image", 0));
    oct_h5 *h5 = *file;
    unique_name(name, sizeof name);
    hid_t access = memory_options(NULL, 0);
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
    return oct_fail(OCT_RESOURCE, "an HDF5 image cannot be made: out of memory");
}

oct_status oct_h5_open(oct_h5 **file, const void *image, size_t size, const char *name)
{
    char unique[64];

    *file = NULL;
    OCT_CHECK(image && size > 0, OCT_DATA, "%s: is empty, not an HDF5 file", name);
    OCT_TRY(new_handle(file, name, size));
    unique_name(unique, sizeof unique);
    hid_t access = memory_options(image, size);
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
    oct_free(&h5->name);
    oct_free(file);
}

static uint32_t rotate(uint32_t x, int bits)
{
    return x << bits | x >> (32 - bits);
}

/* Bob Jenkins' lookup3 (2006) over the eleven words in front of a superblock's checksum, which is
 * what HDF5 prescribes for it. */
static uint32_t superblock_checksum(const uint8_t *bytes)
{
    static const int turns[6] = {4, 6, 8, 16, 19, 4}, last_turns[7] = {14, 11, 25, 16, 4, 14, 24};
    enum { WORDS = 11 };
    uint32_t word[12] = {0}, x[3]; /* x: a, b, c; each turn of the loops moves on to the next one */
    for (int i = 0; i < 4 * WORDS; i++)
        word[i / 4] |= (uint32_t)bytes[i] << (8 * (i % 4));
    for (int i = 0; i < 3; i++)
        x[i] = 0xdeadbeef + 4 * WORDS;
    for (int block = 0; block < 4; block++) {
        for (int i = 0; i < 3; i++)
            x[i] += word[3 * block + i];
        for (int i = 0; i < 6 && block < 3; i++) {
            uint32_t *a = &x[i % 3], *b = &x[(i + 1) % 3], *c = &x[(i + 2) % 3];
            *a = (*a - *c) ^ rotate(*c, turns[i]);
            *c += *b;
        }
    }
    for (int i = 0; i < 7; i++) {
        uint32_t *c = &x[(i + 2) % 3], *b = &x[(i + 1) % 3];
        *c = (*c ^ *b) - rotate(*b, last_turns[i]);
    }
    return x[2];
}

/* H5Fget_file_image clears the flag "open for writing" in the superblock, but before HDF5 2.0 it
 * leaves the checksum of the block as it was (HDFGroup/hdf5 issue 1915). */
static void mend_superblock(uint8_t *image, size_t size)
{
    enum { VERSION_AT = 8, CHECKSUM_AT = 44, END = 48 };
    OCT_ASSERT(size >= END && image[VERSION_AT] == 2);
    uint32_t checksum = superblock_checksum(image);
    for (int i = 0; i < 4; i++)
        image[CHECKSUM_AT + i] = (uint8_t)(checksum >> (8 * i));
}

oct_status oct_h5_image(oct_h5 *file, void **bytes, size_t *size)
{
    *bytes = NULL;
    *size = 0;
    ssize_t length =
        H5Fflush(file->file, H5F_SCOPE_GLOBAL) < 0 ? -1 : H5Fget_file_image(file->file, NULL, 0);
    OCT_CHECK(length > 0, OCT_RESOURCE, "%s: cannot be finished: out of memory", file->name);
    OCT_TRY(oct_alloc(bytes, (size_t)length, 1));
    if (H5Fget_file_image(file->file, *bytes, (size_t)length) != length) {
        oct_free(bytes);
        return oct_fail(OCT_RESOURCE, "%s: cannot be finished: out of memory", file->name);
    }
    *size = (size_t)length;
    mend_superblock(*bytes, *size);
    return OCT_OK;
}

oct_status oct_h5_seal(oct_h5 *file, void **bytes, size_t *size)
{
    void *image = NULL;
    size_t length = 0;

    *bytes = NULL;
    *size = 0;
    OCT_TRY(oct_h5_image(file, &image, &length));
    oct_status status = oct_alloc(bytes, length + OCT_SEAL_BYTES, 1);
    if (status == OCT_OK) {
        memcpy(*bytes, image, length);
        oct_sha256(image, length, (uint8_t *)*bytes + length);
        *size = length + OCT_SEAL_BYTES;
    }
    oct_free(&image);
    return status;
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

static hid_t file_type(oct_dtype dtype)
{
    switch (dtype) {
    case OCT_F32:
        return H5T_IEEE_F32LE;
    case OCT_U8:
        return H5T_STD_U8LE;
    case OCT_U16:
        return H5T_STD_U16LE;
    case OCT_S8:
        return H5T_STD_I8LE;
    case OCT_S16:
        return H5T_STD_I16LE;
    case OCT_S32:
        return H5T_STD_I32LE;
    case OCT_F64:
        return H5T_IEEE_F64LE;
    case OCT_S64:
        return H5T_STD_I64LE;
    }
    OCT_ASSERT(!"a data type");
}

static hid_t memory_type(oct_dtype dtype)
{
    switch (dtype) {
    case OCT_F32:
        return H5T_NATIVE_FLOAT;
    case OCT_U8:
        return H5T_NATIVE_UINT8;
    case OCT_U16:
        return H5T_NATIVE_UINT16;
    case OCT_S8:
        return H5T_NATIVE_INT8;
    case OCT_S16:
        return H5T_NATIVE_INT16;
    case OCT_S32:
        return H5T_NATIVE_INT32;
    case OCT_F64:
        return H5T_NATIVE_DOUBLE;
    case OCT_S64:
        return H5T_NATIVE_INT64;
    }
    OCT_ASSERT(!"a data type");
}

/* Cuts the next name off a path: false at its end. A bad name or one too many gives *bad. */
typedef struct path_walk {
    const char *rest;
    int depth;
    bool bad;
    char name[NAME_MAX_BYTES + 1];
} path_walk;

static bool next_name(path_walk *walk)
{
    if (!*walk->rest) return false;
    size_t length = strcspn(walk->rest, "/");
    bool last = walk->rest[length] == '\0';
    walk->bad = length == 0 || length > NAME_MAX_BYTES || ++walk->depth > DEPTH_MAX ||
                (!last && walk->rest[length + 1] == '\0') || (length == 1 && walk->rest[0] == '.');
    if (walk->bad) return false;
    memcpy(walk->name, walk->rest, length);
    walk->name[length] = '\0';
    walk->rest += length + !last;
    return true;
}

/* Opens the group or data set at path over hard links; -1 and *why when that does not go. */
static hid_t find(oct_h5 *file, const char *path, H5I_type_t wanted, const char **why)
{
    path_walk walk = {.rest = path};
    hid_t at = H5Gopen2(file->file, "/", H5P_DEFAULT);

    *why = "is missing";
    while (at >= 0 && next_name(&walk)) {
        H5L_info_t link;
        hid_t next = -1;
        if (H5Iget_type(at) == H5I_GROUP && H5Lexists(at, walk.name, H5P_DEFAULT) > 0 &&
            H5Lget_info(at, walk.name, &link, H5P_DEFAULT) >= 0) {
            *why = link.type == H5L_TYPE_HARD ? "cannot be opened"
                                              : "is a link to elsewhere, which is not followed";
            if (link.type == H5L_TYPE_HARD) next = H5Oopen(at, walk.name, H5P_DEFAULT);
        }
        H5Oclose(at);
        at = next;
        if (at >= 0) *why = "is missing";
    }
    if (walk.bad) *why = "is not a path that can be in a file";
    if (at >= 0 && H5Iget_type(at) != wanted)
        *why = wanted == H5I_GROUP ? "is not a group" : "is not a data set";
    else if (at >= 0 && !walk.bad)
        return at;
    if (at >= 0) H5Oclose(at);
    return -1;
}

static oct_status find_dataset(oct_h5 *file, const char *path, hid_t *dataset)
{
    const char *why;
    *dataset = find(file, path, H5I_DATASET, &why);
    OCT_CHECK(*dataset >= 0, OCT_DATA, "%s: %s %s", file->name, path, why);
    return OCT_OK;
}

static bool is_there(oct_h5 *file, const char *path, H5I_type_t wanted)
{
    const char *why;
    hid_t found = find(file, path, wanted, &why);
    if (found >= 0) H5Oclose(found);
    return found >= 0;
}

bool oct_h5_has(oct_h5 *file, const char *path)
{
    return is_there(file, path, H5I_DATASET) || is_there(file, path, H5I_GROUP);
}

bool oct_h5_is_group(oct_h5 *file, const char *path)
{
    return is_there(file, path, H5I_GROUP);
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

oct_status oct_h5_write(oct_h5 *file, const char *path, oct_dtype dtype, oct_shape shape,
                        const void *data)
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
        dataset = H5Dcreate2(parent, walk.name, file_type(dtype), space, H5P_DEFAULT,
                             file->dataset_options, H5P_DEFAULT);
    bool written = dataset >= 0 && (numel == 0 || H5Dwrite(dataset, memory_type(dtype), H5S_ALL,
                                                           H5S_ALL, H5P_DEFAULT, data) >= 0);
    if (dataset >= 0 && H5Dclose(dataset) < 0) written = false;
    if (space >= 0) H5Sclose(space);
    if (parent >= 0) H5Gclose(parent);
    OCT_CHECK(written, OCT_RESOURCE,
              "%s: %s cannot be written: the name is taken or no name, or memory is out",
              file->name, path);
    return OCT_OK;
}

/* The one of our types that a data set has. */
static bool dtype_of(hid_t dataset, oct_dtype *dtype)
{
    static const oct_dtype all[] = {
#define X(name, type) OCT_##name,
        OCT_DTYPE_LIST(X)
#undef X
    };
    hid_t type = H5Dget_type(dataset);
    bool known = false;
    for (size_t i = 0; type >= 0 && i < OCT_COUNT(all) && !known; i++) {
        known = H5Tequal(type, file_type(all[i])) > 0;
        *dtype = all[i];
    }
    if (type >= 0) H5Tclose(type);
    return known;
}

static bool shape_of(hid_t dataset, oct_shape *shape)
{
    hsize_t dims[OCT_MAX_DIMS] = {0};
    hid_t space = H5Dget_space(dataset);
    int ndim = -1;
    if (space >= 0) {
        H5S_class_t kind = H5Sget_simple_extent_type(space);
        if (kind == H5S_SCALAR || kind == H5S_SIMPLE) ndim = H5Sget_simple_extent_ndims(space);
        if (ndim > OCT_MAX_DIMS ||
            (ndim > 0 && H5Sget_simple_extent_dims(space, dims, NULL) != ndim))
            ndim = -1;
        H5Sclose(space);
    }
    if (ndim < 0) return false;
    *shape = (oct_shape){.ndim = ndim};
    for (int i = 0; i < ndim; i++) {
        if (dims[i] > INT64_MAX) return false;
        shape->dim[i] = (int64_t)dims[i];
    }
    return oct_shape_numel(shape) >= 0;
}

/* Plain storage inside this file: contiguous or compact, no filters, no other files. */
static bool stored_plainly(hid_t dataset)
{
    hid_t options = H5Dget_create_plist(dataset);
    if (options < 0) return false;
    H5D_layout_t layout = H5Pget_layout(options);
    bool plain = (layout == H5D_CONTIGUOUS || layout == H5D_COMPACT) &&
                 H5Pget_nfilters(options) == 0 &&
                 (layout == H5D_COMPACT || H5Pget_external_count(options) == 0);
    H5Pclose(options);
    return plain;
}

/* Are all the bytes there that the shape promises? */
static bool stored_fully(const oct_h5 *file, hid_t dataset, uint64_t bytes)
{
    if (bytes == 0) return true;
    if (bytes > file->image_bytes || H5Dget_storage_size(dataset) < bytes) return false;
    hid_t options = H5Dget_create_plist(dataset);
    if (options < 0) return false;
    bool compact = H5Pget_layout(options) == H5D_COMPACT;
    H5Pclose(options);
    if (compact) return true;
    haddr_t offset = H5Dget_offset(dataset);
    return offset != HADDR_UNDEF && offset <= file->image_bytes - bytes;
}

/* Looks at an open data set from all sides. */
static oct_status inspect(const oct_h5 *file, const char *path, hid_t dataset, oct_dtype *dtype,
                          oct_shape *shape)
{
    uint64_t bytes;
    OCT_CHECK(dtype_of(dataset, dtype), OCT_DATA,
              "%s: %s has a data type that Octet does not write", file->name, path);
    OCT_CHECK(shape_of(dataset, shape), OCT_DATA, "%s: %s has a shape that no tensor has",
              file->name, path);
    OCT_CHECK(stored_plainly(dataset), OCT_DATA,
              "%s: %s is stored in chunks, compressed or in other files; store it contiguously",
              file->name, path);
    bool overflow =
        __builtin_mul_overflow((uint64_t)oct_shape_numel(shape), oct_dtype_bytes(*dtype), &bytes);
    OCT_CHECK(!overflow && stored_fully(file, dataset, bytes), OCT_DATA,
              "%s: %s is larger than what is stored of it; the file is damaged", file->name, path);
    return OCT_OK;
}

oct_status oct_h5_look(oct_h5 *file, const char *path, oct_dtype *dtype, oct_shape *shape)
{
    hid_t dataset;
    OCT_TRY(find_dataset(file, path, &dataset));
    oct_status status = inspect(file, path, dataset, dtype, shape);
    H5Dclose(dataset);
    return status;
}

static oct_status check_equal(const oct_h5 *file, const char *path, hid_t dataset, oct_dtype dtype,
                              oct_shape shape)
{
    oct_dtype there;
    oct_shape extent;
    char got[96], wanted[96];
    OCT_TRY(inspect(file, path, dataset, &there, &extent));
    OCT_CHECK(there == dtype && oct_shape_equal(&extent, &shape), OCT_DATA,
              "%s: %s is %s %s, not %s %s", file->name, path, oct_dtype_name(there),
              oct_shape_text(&extent, got), oct_dtype_name(dtype), oct_shape_text(&shape, wanted));
    return OCT_OK;
}

/* block: NULL, or T ** to allocate what is read into. */
static oct_status read_dataset(oct_h5 *file, const char *path, oct_dtype dtype, oct_shape shape,
                               void *data, void *block)
{
    oct_status status = OCT_OK;
    hid_t dataset;

    OCT_TRY(find_dataset(file, path, &dataset));
    OCT_TRY_OUT(check_equal(file, path, dataset, dtype, shape));
    size_t numel = (size_t)oct_shape_numel(&shape);
    if (block) {
        OCT_TRY_OUT(oct_alloc(block, numel, oct_dtype_bytes(dtype)));
        memcpy(&data, block, sizeof data);
    }
    if (numel > 0 &&
        H5Dread(dataset, memory_type(dtype), H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0) {
        if (block) oct_free(block);
        status = oct_fail(OCT_DATA, "%s: %s cannot be read; the file is damaged", file->name, path);
    }
out:
    H5Dclose(dataset);
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

/* Names collected while HDF5 iterates; nothing else is done inside the iteration. */
typedef struct name_list {
    char (*names)[NAME_MAX_BYTES + 1];
    size_t count, capacity;
    const char *why;
    oct_status status;
} name_list;

static herr_t collect_name(hid_t group, const char *name, const H5L_info_t *link, void *user)
{
    name_list *list = user;
    (void)group;
    if (link->type != H5L_TYPE_HARD)
        list->why = "holds a link to elsewhere, which is not followed";
    else if (strlen(name) > NAME_MAX_BYTES)
        list->why = "holds a name of more than 255 bytes";
    else if (list->count == NAMES_MAX)
        list->why = "holds more than 100000 names";
    if (list->why) return -1;
    list->status = oct_grow(&list->names, &list->capacity, list->count + 1, sizeof *list->names);
    if (list->status != OCT_OK) return -1;
    snprintf(list->names[list->count++], sizeof *list->names, "%s", name);
    return 0;
}

oct_status oct_h5_list(oct_h5 *file, const char *group,
                       oct_status (*visit)(void *user, const char *name), void *user)
{
    oct_status status = OCT_OK;
    name_list list = {0};
    hsize_t index = 0;
    const char *why;

    hid_t id = find(file, group, H5I_GROUP, &why);
    OCT_CHECK(id >= 0, OCT_DATA, "%s: %s %s", file->name, *group ? group : "/", why);
    if (H5Literate(id, H5_INDEX_NAME, H5_ITER_INC, &index, collect_name, &list) < 0) {
        status = list.status != OCT_OK
                     ? list.status
                     : oct_fail(OCT_DATA, "%s: %s %s", file->name, *group ? group : "/",
                                list.why ? list.why : "cannot be listed; the file is damaged");
        goto out;
    }
    for (size_t i = 0; i < list.count; i++)
        OCT_TRY_OUT(visit(user, list.names[i]));
out:
    H5Gclose(id);
    oct_free(&list.names);
    return status;
}
