/* HDF5 files are built as images in memory. They are read elsewhere (hdf5.c).
 *
 * Equal contents give equal images: no times, groups made by hand (HDF5 would give those it makes by
 * itself a time), space allocated in the order of writing, and memory that HDF5 clears. The format is
 * that of HDF5 1.8: old enough for every reader, new enough to have checksums over its metadata.
 */
#include "core/base/mem.h"
#include "io/file/file.h"
#include "io/hdf5/hdf5_impl.h"

#include <hdf5.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* HDF5 writes an image into one block of memory: a file driver of our own (H5FD_class_t), which knows reads, writes and
 * ends. The driver core that HDF5 has clears all of a file's memory and gives it away only as a copy. Here pages that
 * nothing is written to stay untouched, and the block is the image. So a file can be laid out with all its data sets
 * before there are values, which then go where they lie. */

/* The image that is being written; it lies still until the file is closed, but not its bytes. */
typedef struct image_memory {
    uint8_t *bytes; /* zeros where nothing was written */
    size_t capacity;
    haddr_t end, written; /* of what was allocated in the file, and written */
    bool taken;           /* the image is finished and gone; what still comes is dropped */
} image_memory;

typedef struct driver_file {
    H5FD_t base;
    image_memory *memory;
} driver_file;

/* Gives HDF5 a file over the memory that its access options name: they hold a pointer to it. */
static H5FD_t *driver_open(const char *name, unsigned flags, hid_t access, haddr_t most)
{
    image_memory *const *given = H5Pget_driver_info(access);
    driver_file *file = NULL;
    (void)name, (void)flags, (void)most;
    if (!given || oct_alloc(&file, 1, sizeof *file) != OCT_OK) return NULL;
    file->memory = *given;
    return &file->base;
}

static herr_t driver_close(H5FD_t *base)
{
    driver_file *file = (driver_file *)base;
    oct_free(&file);
    return 0;
}

static image_memory *memory_of(const H5FD_t *base)
{
    return ((const driver_file *)base)->memory;
}

/* Gives HDF5 the flags of its driver `core`, so that files are laid out as by that. */
static herr_t driver_query(const H5FD_t *base, unsigned long *flags)
{
    (void)base;
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
             H5FD_FEAT_AGGREGATE_SMALLDATA;
    return 0;
}

static haddr_t driver_get_end(const H5FD_t *base, H5FD_mem_t type)
{
    (void)type;
    return memory_of(base)->end;
}

/* Sets the end of what is allocated in the file, and makes memory for it, since HDF5 handles a failure of this call. */
static herr_t driver_set_end(H5FD_t *base, H5FD_mem_t type, haddr_t end)
{
    image_memory *memory = memory_of(base);
    (void)type;
    if (!memory->taken && oct_grow(&memory->bytes, &memory->capacity, (size_t)end, 1) != OCT_OK)
        return -1;
    memory->end = end;
    return 0;
}

static haddr_t driver_get_written(const H5FD_t *base, H5FD_mem_t type)
{
    (void)type;
    return memory_of(base)->written;
}

static bool is_inside(const image_memory *memory, haddr_t at, size_t size)
{
    return at <= memory->capacity && size <= memory->capacity - at;
}

static herr_t driver_read(H5FD_t *base, H5FD_mem_t type, hid_t options, haddr_t at, size_t size,
                          void *to)
{
    const image_memory *memory = memory_of(base);
    (void)type, (void)options;
    if (!is_inside(memory, at, size)) return -1;
    if (size > 0) memcpy(to, memory->bytes + at, size);
    return 0;
}

static herr_t driver_write(H5FD_t *base, H5FD_mem_t type, hid_t options, haddr_t at, size_t size,
                           const void *from)
{
    image_memory *memory = memory_of(base);
    (void)type, (void)options;
    if (memory->taken) return 0; /* the image is finished, and nothing more is kept */
    if (!is_inside(memory, at, size)) return -1;
    if (size > 0) memcpy(memory->bytes + at, from, size);
    if (at + size > memory->written) memory->written = at + size;
    return 0;
}

/* Lets all up to the end of the file count as written: zeros where nothing was. */
static herr_t driver_truncate(H5FD_t *base, hid_t options, hbool_t closing)
{
    image_memory *memory = memory_of(base);
    (void)options, (void)closing;
    memory->written = memory->end;
    return 0;
}

static const H5FD_class_t driver_class = {
#ifdef H5FD_CLASS_VERSION /* since HDF5 1.13, which takes no driver without it */
    .version = H5FD_CLASS_VERSION,
    .value = 511, /* 256 to 511 are for drivers that HDF5 has not given a number */
#endif
    .name = "octet",
    .maxaddr = (haddr_t)1 << 46,
    .fc_degree = H5F_CLOSE_STRONG,
    .fapl_size = sizeof(image_memory *),
    .open = driver_open,
    .close = driver_close,
    .query = driver_query,
    .get_eoa = driver_get_end,
    .set_eoa = driver_set_end,
    .get_eof = driver_get_written,
    .read = driver_read,
    .write = driver_write,
    .truncate = driver_truncate,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

/* It stays registered: HDF5 1.10 asks a driver to close a file after it has let go of the driver. */
static hid_t driver = -1;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void register_driver(void)
{
    driver = H5FDregister(&driver_class);
}

/* The library takes less than this for a file, beside its image; it crashes when it gets none. */
enum { LIBRARY_ROOM = 8 << 20 };

typedef struct writer {
    oct_h5 base;
    hid_t file, group_options, dataset_options; /* -1: none */
    image_memory memory;
} writer;

/* What HDF5 does with its errors, which is to print them unless the program wants otherwise. The program may use HDF5 as
 * well, so each call from outside ends with what it had. */
typedef struct error_report {
    H5E_auto2_t print;
    void *data;
} error_report;

static error_report stop_reports(void)
{
    error_report before = {NULL, NULL};
    H5Eget_auto2(H5E_DEFAULT, &before.print, &before.data);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    return before;
}

static void report_as_before(error_report before)
{
    H5Eset_auto2(H5E_DEFAULT, before.print, before.data);
}

static void end_writing(oct_h5 *h5)
{
    writer *w = (writer *)h5;
    const error_report before = stop_reports();
    if (w->group_options >= 0) H5Pclose(w->group_options);
    if (w->dataset_options >= 0) H5Pclose(w->dataset_options);
    if (w->file >= 0) H5Fclose(w->file);
    report_as_before(before);
    oct_free(&w->memory.bytes);
}

/* Makes the property list of access to an image that is written into memory; -1: HDF5 refuses. */
static hid_t make_access_options(image_memory *memory)
{
    pthread_once(&once, register_driver);
    if (driver < 0) return -1;
    hid_t options = H5Pcreate(H5P_FILE_ACCESS);
    if (options < 0 || (H5Pset_fclose_degree(options, H5F_CLOSE_STRONG) >= 0 &&
                        H5Pset_libver_bounds(options, H5F_LIBVER_V18, H5F_LIBVER_V18) >= 0 &&
                        H5Pset_driver(options, driver, &memory) >= 0))
        return options;
    H5Pclose(options);
    return -1;
}

static uint32_t rotate(uint32_t x, int bits)
{
    return x << bits | x >> (32 - bits);
}

uint32_t oct_h5_checksum(const void *bytes, size_t size)
{
    static const int shifts[6] = {4, 6, 8, 16, 19, 4}, last_shifts[7] = {14, 11, 25, 16, 4, 14, 24};
    const uint8_t *next = bytes;
    uint32_t x[3]; /* a, b, c; each round of the loops moves on to the next one */
    for (int i = 0; i < 3; i++)
        x[i] = 0xdeadbeef + (uint32_t)size;
    while (size > 0) {
        const size_t now = size < 12 ? size : 12;
        for (size_t i = 0; i < now; i++)
            x[i / 4] += (uint32_t)next[i] << (8 * (i % 4));
        next += now;
        size -= now;
        for (int i = 0; i < 6 && size > 0; i++) {
            uint32_t *a = &x[i % 3], *b = &x[(i + 1) % 3], *c = &x[(i + 2) % 3];
            *a = (*a - *c) ^ rotate(*c, shifts[i]);
            *c += *b;
        }
        for (int i = 0; i < 7 && size == 0; i++) {
            uint32_t *c = &x[(i + 2) % 3], *b = &x[(i + 1) % 3];
            *c = (*c ^ *b) - rotate(*b, last_shifts[i]);
        }
    }
    return x[2];
}

/* Says in the superblock that nobody has the file open for writing. */
static void close_superblock(uint8_t *image, size_t size)
{
    enum { VERSION_AT = 8, FLAGS_AT = 11, CHECKSUM_AT = 44, END = 48 };
    OCT_ASSERT(size >= END && image[VERSION_AT] == 2);
    image[FLAGS_AT] = 0;
    const uint32_t checksum = oct_h5_checksum(image, CHECKSUM_AT);
    memcpy(image + CHECKSUM_AT, &checksum, sizeof checksum);
}

oct_status oct_h5_finish(oct_h5 **file, bool checksum, void *image, size_t *size)
{
    const writer *w = (const writer *)*file;
    image_memory *memory = &((writer *)*file)->memory;
    uint8_t *bytes = NULL;
    oct_status status = OCT_OK;
    const error_report before = stop_reports();
    const ssize_t length =
        H5Fflush(w->file, H5F_SCOPE_GLOBAL) < 0 ? -1 : H5Fget_file_image(w->file, NULL, 0);
    const size_t room = (size_t)length + (checksum ? OCT_CHECKSUM_BYTES : 0);
    OCT_CHECK_OUT(length > 0, OCT_RESOURCE, "HDF5 image: cannot be finished: out of memory");
    OCT_TRY_OUT(oct_grow(&memory->bytes, &memory->capacity, room, 1));
    bytes = memory->bytes;
    *memory = (image_memory){.end = memory->end, .written = memory->written, .taken = true};
    close_superblock(bytes, (size_t)length);
    if (checksum) oct_sha256(bytes, (size_t)length, bytes + length);
    *size = room;
out:
    memcpy(image, &bytes, sizeof bytes);
    oct_h5_close(file);
    report_as_before(before);
    return status;
}

/* HDF5's type for numbers in memory or in a file. They exist only when HDF5 has started, so this is no static table. */
static hid_t hdf5_type(oct_dtype dtype, bool in_memory)
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

/* Opens the group in which the path leads, and makes what is missing of it; path->name is the last name then. -1: the
 * path is bad, or HDF5 refuses. */
static hid_t make_parents(const writer *w, oct_h5_names *path)
{
    hid_t group = H5Gopen2(w->file, "/", H5P_DEFAULT);
    while (group >= 0 && oct_h5_next_name(path) && *path->rest) {
        hid_t next =
            H5Lexists(group, path->name, H5P_DEFAULT) > 0
                ? H5Gopen2(group, path->name, H5P_DEFAULT)
                : H5Gcreate2(group, path->name, H5P_DEFAULT, w->group_options, H5P_DEFAULT);
        H5Gclose(group);
        group = next;
    }
    if (group >= 0 && (path->bad || path->depth == 0)) {
        H5Gclose(group);
        group = -1;
    }
    return group;
}

/* Makes a data set with these values; data NULL: without, and *at (may be NULL) is where they will lie. */
static oct_status make_dataset(oct_h5 *h5, const char *path, oct_dtype dtype, oct_shape shape,
                               const void *data, size_t *at)
{
    const writer *w = (const writer *)h5;
    hsize_t dims[OCT_MAX_DIMS] = {0};
    hid_t parent = -1, space = -1, dataset = -1;
    oct_h5_names names = {.rest = path};
    int64_t numel = oct_shape_numel(&shape);

    OCT_CHECK(numel >= 0 && numel <= INT64_MAX / 8, OCT_RESOURCE,
              "HDF5 image: %s is too large to write", path);
    for (int i = 0; i < shape.ndim; i++)
        dims[i] = (hsize_t)shape.dim[i];
    const error_report before = stop_reports();
    space = shape.ndim ? H5Screate_simple(shape.ndim, dims, NULL) : H5Screate(H5S_SCALAR);
    parent = make_parents(w, &names);
    if (parent >= 0 && space >= 0)
        dataset = H5Dcreate2(parent, names.name, hdf5_type(dtype, false), space, H5P_DEFAULT,
                             w->dataset_options, H5P_DEFAULT);
    bool written = dataset >= 0 && (numel == 0 || !data ||
                                    H5Dwrite(dataset, hdf5_type(dtype, true), H5S_ALL, H5S_ALL,
                                             H5P_DEFAULT, data) >= 0);
    const haddr_t begin = written && at && numel > 0 ? H5Dget_offset(dataset) : 0;
    if (begin == HADDR_UNDEF) written = false;
    if (at) *at = (size_t)begin;
    if (dataset >= 0 && H5Dclose(dataset) < 0) written = false;
    if (space >= 0) H5Sclose(space);
    if (parent >= 0) H5Gclose(parent);
    report_as_before(before);
    OCT_CHECK(written, OCT_RESOURCE,
              "HDF5 image: %s cannot be written: the name is taken or no name, or memory is out",
              path);
    return OCT_OK;
}

static oct_status write_dataset(oct_h5 *file, const char *path, oct_dtype dtype, oct_shape shape,
                                const void *data)
{
    return make_dataset(file, path, dtype, shape, data, NULL);
}

oct_status oct_h5_create(oct_h5 **file, size_t size)
{
    static atomic_ullong count;
    char name[64];
    *file = NULL;
    OCT_TRY(oct_mem_check_available(LIBRARY_ROOM));
    writer *w = NULL;
    OCT_TRY(oct_alloc(&w, 1, sizeof *w));
    *w = (writer){{.write = write_dataset, .end_writing = end_writing}, -1, -1, -1, {0}};
    *file = &w->base;
    if (oct_grow(&w->memory.bytes, &w->memory.capacity, size, 1) != OCT_OK) {
        oct_h5_close(file);
        return oct_fail_code();
    }
    /* HDF5 names files, and two open files of one name are the same to it. This name is new each time and cannot be on
     * a disk. */
    snprintf(name, sizeof name, "/dev/null/%llu", (unsigned long long)atomic_fetch_add(&count, 1));
    const error_report before = stop_reports();
    hid_t access = make_access_options(&w->memory);
    const bool accessible = access >= 0;
    hid_t creation = H5Pcreate(H5P_FILE_CREATE);
    w->group_options = H5Pcreate(H5P_GROUP_CREATE);
    w->dataset_options = H5Pcreate(H5P_DATASET_CREATE);
    if (access >= 0 && H5Pset_obj_track_times(creation, false) >= 0 &&
        H5Pset_obj_track_times(w->group_options, false) >= 0 &&
        H5Pset_obj_track_times(w->dataset_options, false) >= 0 &&
        H5Pset_layout(w->dataset_options, H5D_CONTIGUOUS) >= 0 &&
        H5Pset_alloc_time(w->dataset_options, H5D_ALLOC_TIME_EARLY) >= 0 &&
        H5Pset_fill_time(w->dataset_options, H5D_FILL_TIME_NEVER) >= 0)
        w->file = H5Fcreate(name, H5F_ACC_TRUNC, creation, access);
    if (creation >= 0) H5Pclose(creation);
    if (access >= 0) H5Pclose(access);
    report_as_before(before);
    if (w->file >= 0) return OCT_OK;
    oct_h5_close(file);
    unsigned v[3] = {0};
    H5get_libversion(&v[0], &v[1], &v[2]);
    OCT_CHECK(accessible, OCT_RESOURCE,
              "an HDF5 image cannot be made: HDF5 %u.%u.%u does not take the file driver of this "
              "program, which was built with %d.%d.%d; build Octet again on this machine",
              v[0], v[1], v[2], H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE);
    return oct_fail(OCT_RESOURCE, "an HDF5 image cannot be made: out of memory");
}

oct_status oct_h5_reserve(oct_h5 *file, const char *path, oct_dtype dtype, oct_shape shape,
                          size_t *at)
{
    return make_dataset(file, path, dtype, shape, NULL, at);
}
