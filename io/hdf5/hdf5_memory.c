/* The driver knows reads, writes and ends. */
#include "io/hdf5/hdf5_memory.h"

#include "core/base/mem.h"

#include <pthread.h>
#include <string.h>

typedef struct driver_file {
    H5FD_t base;
    oct_h5_memory *memory;
} driver_file;

typedef struct driver_access {
    oct_h5_memory *memory;
} driver_access;

static H5FD_t *driver_open(const char *name, unsigned flags, hid_t access, haddr_t most)
{
    const driver_access *given = H5Pget_driver_info(access);
    driver_file *file = NULL;
    (void)name, (void)flags, (void)most;
    if (!given || oct_alloc(&file, 1, sizeof *file) != OCT_OK) return NULL;
    file->memory = given->memory;
    return &file->base;
}

static herr_t driver_close(H5FD_t *base)
{
    driver_file *file = (driver_file *)base;
    oct_free(&file);
    return 0;
}

static oct_h5_memory *memory_of(const H5FD_t *base)
{
    return ((const driver_file *)base)->memory;
}

/* As the driver core says, so that files are laid out as there. */
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

/* Memory is taken here, where HDF5 handles a failure. */
static herr_t driver_set_end(H5FD_t *base, H5FD_mem_t type, haddr_t end)
{
    oct_h5_memory *memory = memory_of(base);
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

static bool is_inside(const oct_h5_memory *memory, haddr_t at, size_t size)
{
    return at <= memory->capacity && size <= memory->capacity - at;
}

static herr_t driver_read(H5FD_t *base, H5FD_mem_t type, hid_t options, haddr_t at, size_t size,
                          void *to)
{
    const oct_h5_memory *memory = memory_of(base);
    (void)type, (void)options;
    if (!is_inside(memory, at, size)) return -1;
    if (size > 0) memcpy(to, memory->bytes + at, size);
    return 0;
}

static herr_t driver_write(H5FD_t *base, H5FD_mem_t type, hid_t options, haddr_t at, size_t size,
                           const void *from)
{
    oct_h5_memory *memory = memory_of(base);
    (void)type, (void)options;
    if (memory->taken) return 0;
    if (!is_inside(memory, at, size)) return -1;
    if (size > 0) memcpy(memory->bytes + at, from, size);
    if (at + size > memory->written) memory->written = at + size;
    return 0;
}

static herr_t driver_truncate(H5FD_t *base, hid_t options, hbool_t closing)
{
    oct_h5_memory *memory = memory_of(base);
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
    .fapl_size = sizeof(driver_access),
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

bool oct_h5_memory_set(hid_t access, oct_h5_memory *memory)
{
    const driver_access given = {memory};
    pthread_once(&once, register_driver);
    return driver >= 0 && H5Pset_driver(access, driver, &given) >= 0;
}
