/* Opening a model: by its first bytes it is a flat file or an HDF5 one. A flat file is mapped, copied or borrowed. */
#include "core/base/mem.h"
#include "core/base/cpu.h"
#include "quant/program/flat.h"
#include "quant/program/net_model.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t bytes_max = UINT64_C(1) << 34;

/* A flat file that nets run. */
typedef struct flat_file {
    oct_flat *flat;
    void *bytes; /* mapped or copied; NULL: the caller's */
    size_t mapped;
} flat_file;

static void close_file(void *owner)
{
    flat_file *f = owner;
    oct_flat_close(&f->flat);
    if (f->mapped)
        munmap(f->bytes, f->mapped);
    else
        oct_free(&f->bytes);
    oct_free(&f);
}

static bool is_golden(const void *owner, int64_t n, const void *output)
{
    const oct_flat *flat = ((const flat_file *)owner)->flat;
    const oct_program *p = oct_flat_program(flat);
    const size_t bytes = oct_value_bytes(&p->values[p->output]);
    uint64_t count;
    const uint8_t *outputs = oct_flat_items(flat, OCT_FLAT_GOLDEN_OUTPUT, &count);
    return memcmp(outputs + (size_t)n * bytes, output, bytes) == 0;
}

/* Makes a net of the bytes of a flat file. Takes f over: the net closes it, or this call where it fails. */
static oct_status open_flat(oct_net **net, flat_file *f, const void *bytes, size_t size,
                            const oct_net_options *options)
{
    uint64_t names, pixels, golden, unused;
    oct_net_source s = {.is_golden = is_golden, .owner = f, .release = close_file};
    fenv_t rounding;
    oct_status status;
    oct_round_to_nearest(&rounding);
    OCT_TRY_OUT(oct_flat_take(&f->flat, bytes, size));
    s.program = oct_flat_program(f->flat);
    s.classes =
        (int)((const oct_flat_model *)oct_flat_items(f->flat, OCT_FLAT_MODEL, &unused))->classes;
    s.class_names = oct_flat_items(f->flat, OCT_FLAT_CLASS_NAMES, &names);
    s.class_names_bytes = (size_t)names;
    s.port_names = oct_flat_items(f->flat, OCT_FLAT_TEXTS, &unused);
    for (int i = 0; i < OCT_FLAT_PORT_NAMES; i++)
        s.port_names += strlen(s.port_names) + 1;
    s.port_names_bytes = strlen(s.port_names);
    s.pixels = oct_flat_items(f->flat, OCT_FLAT_PIXELS, &pixels);
    s.pixel_tables = (int64_t)pixels / OCT_PIXEL_VALUES;
    s.golden_input = oct_flat_items(f->flat, OCT_FLAT_GOLDEN_INPUT, &golden);
    s.golden_count = (int64_t)golden / oct_inputs_numel(s.program);
    status = oct_net_create(net, &s, options);
    f = NULL;
out:
    if (f) close_file(f);
    oct_round_as_before(&rounding);
    return status;
}

static bool is_hdf5(const void *first_8_bytes)
{
    return memcmp(first_8_bytes, "\211HDF\r\n\032\n", 8) == 0;
}

/* Maps a file that may be a model. */
static oct_status map_file(const char *path, flat_file *f)
{
    struct stat found;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* waits for no pipe */
    OCT_CHECK(file >= 0, OCT_DATA, "cannot be opened: %s", strerror(errno));
    const bool known = fstat(file, &found) == 0 && S_ISREG(found.st_mode);
    const uint64_t size = known && found.st_size > 0 ? (uint64_t)found.st_size : 0;
    if (size >= sizeof OCT_FLAT_MAGIC && size <= bytes_max) {
        f->bytes = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, file, 0);
        f->mapped = f->bytes == MAP_FAILED ? 0 : (size_t)size;
        if (!f->mapped) f->bytes = NULL;
    }
    close(file);
    OCT_CHECK(size >= sizeof OCT_FLAT_MAGIC && size <= bytes_max, OCT_DATA, "is not an int8 model");
    OCT_CHECK(f->mapped, OCT_RESOURCE, "cannot be mapped into memory: %s", strerror(errno));
    OCT_CHECK(is_hdf5(f->bytes) || memcmp(f->bytes, OCT_FLAT_MAGIC, sizeof OCT_FLAT_MAGIC) == 0,
              OCT_DATA, "is not an int8 model");
    return OCT_OK;
}

/* What every way to a net begins with. */
static oct_status begin(oct_net **net, const void *from, const char *function)
{
    OCT_CHECK(net, OCT_USAGE, "%s has no place for the net: NULL", function);
    *net = NULL;
    OCT_CHECK(from, OCT_USAGE, "%s has no model: NULL", function);
    return OCT_OK;
}

oct_status oct_net_open(oct_net **net, const char *path, const oct_net_options *options)
{
    flat_file *f = NULL;
    OCT_TRY(begin(net, path, "oct_net_open"));
    OCT_TRY(oct_alloc(&f, 1, sizeof *f));
    oct_status status = map_file(path, f);
    const bool hdf5 = status == OCT_OK && is_hdf5(f->bytes);
    if (status == OCT_OK && !hdf5)
        status = open_flat(net, f, f->bytes, f->mapped, options);
    else
        close_file(f);
    if (hdf5)
        status = oct_this_library.open_hdf5
                     ? oct_this_library.open_hdf5(net, path, options)
                     : oct_fail(OCT_USAGE,
                                "%s: is an HDF5 model, which liboctet-flat does not read; link "
                                "octet-runtime, or export it with --format flat",
                                path);
    return status == OCT_OK || hdf5 ? status : oct_fail_prefix("%s", path);
}

oct_status oct_net_open_bytes(oct_net **net, const void *bytes, size_t size,
                              const oct_net_options *options)
{
    flat_file *f = NULL;
    OCT_TRY(begin(net, bytes, "oct_net_open_bytes"));
    OCT_CHECK(
        size < sizeof OCT_FLAT_MAGIC || !is_hdf5(bytes), OCT_USAGE,
        "these bytes are an HDF5 model; open it by its path, or export it with --format flat");
    OCT_TRY(oct_alloc(&f, 1, sizeof *f));
    oct_status status = OCT_OK;
    if ((uintptr_t)bytes % OCT_FLAT_ALIGN != 0) {
        status = oct_alloc(&f->bytes, size, 1);
        if (status == OCT_OK) bytes = memcpy(f->bytes, bytes, size);
    }
    if (status == OCT_OK)
        status = open_flat(net, f, bytes, size, options);
    else
        close_file(f);
    return status;
}
