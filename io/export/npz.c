/* Layout of a stored archive: for each member a local header and its bytes, then the directory, then its end (PKWARE's
 * APPNOTE 6.3, without the extensions for large files). */
#include "io/export/format.h"

#include "core/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

enum {
    LOCAL = 30,
    CENTRAL = 46,
    END = 22,
    VERSION = 20,
    FIRST_DAY = 33, /* 1 January 1980, the first that there is */
    NAME_MAX_BYTES = 60,
    HEADER = 128, /* of a .npy member, with its magic */
};

/* A file of the archive. */
typedef struct member {
    char name[NAME_MAX_BYTES + 8];
    uint8_t header[HEADER];
    const oct_npz_array *array;
    uint32_t crc, size, offset; /* offset: of its local header in the archive */
} member;

static void put_u16(uint8_t *to, uint32_t value)
{
    to[0] = (uint8_t)value;
    to[1] = (uint8_t)(value >> 8);
}

static void put_u32(uint8_t *to, uint32_t value)
{
    put_u16(to, value);
    put_u16(to + 2, value >> 16);
}

static size_t array_bytes(const oct_npz_array *array)
{
    return (size_t)oct_shape_numel(&array->shape) * oct_dtype_bytes(array->dtype);
}

/* Writes the header of NumPy's format 1.0: a dictionary of Python's, filled up with spaces. */
static void write_npy_header(member *m)
{
    static const char *const types[] = {
        [OCT_F32] = "<f4", [OCT_U8] = "|u1",  [OCT_U16] = "<u2", [OCT_S8] = "|i1",
        [OCT_S16] = "<i2", [OCT_S32] = "<i4", [OCT_F64] = "<f8", [OCT_S64] = "<i8"};
    const oct_shape *shape = &m->array->shape;
    char *text = (char *)m->header;
    memcpy(text, "\x93NUMPY\x01\x00", 8);
    put_u16(m->header + 8, HEADER - 10);
    int at =
        10 + snprintf(text + 10, HEADER - 10, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                      types[m->array->dtype]);
    for (int i = 0; i < shape->ndim; i++)
        at += snprintf(text + at, (size_t)(HEADER - at), "%" PRId64 ",", shape->dim[i]);
    at += snprintf(text + at, (size_t)(HEADER - at), "), }");
    memset(text + at, ' ', (size_t)(HEADER - at));
    text[HEADER - 1] = '\n';
}

/* Writes the fields that local headers and the directory share: version, date, CRC, sizes and length of the name. */
static void write_shared_fields(uint8_t *to, const member *m)
{
    put_u16(to, VERSION);
    put_u16(to + 8, FIRST_DAY);
    put_u32(to + 10, m->crc);
    put_u32(to + 14, m->size);
    put_u32(to + 18, m->size);
    put_u16(to + 22, (uint32_t)strlen(m->name));
}

oct_status oct_npz_make(const oct_npz_array *arrays, int count, void **bytes, size_t *size)
{
    OCT_OWNED(oct_free) member *members = NULL;
    size_t total = END;
    OCT_TRY(oct_alloc(&members, (size_t)count, sizeof *members));
    for (int i = 0; i < count; i++) {
        total += array_bytes(&arrays[i]);
        OCT_CHECK(total < UINT32_MAX - 4096 * (size_t)count, OCT_PREPARE,
                  "%s: an .npz holds at most 4 GiB", arrays[i].name);
        member *m = &members[i];
        const size_t numbers = array_bytes(&arrays[i]);
        m->array = &arrays[i];
        snprintf(m->name, sizeof m->name, "%.*s.npy", NAME_MAX_BYTES, arrays[i].name);
        write_npy_header(m);
        m->size = (uint32_t)(HEADER + numbers);
        m->crc = (uint32_t)crc32_z(crc32_z(0, m->header, HEADER), arrays[i].data, numbers);
        total += LOCAL + CENTRAL + HEADER + 2 * strlen(m->name);
    }
    OCT_TRY(oct_alloc(bytes, total, 1));
    uint8_t *begin = *bytes, *to = begin;
    for (int i = 0; i < count; i++) {
        member *m = &members[i];
        const size_t name = strlen(m->name);
        m->offset = (uint32_t)(to - begin);
        put_u32(to, 0x04034b50); /* signature of a local header */
        write_shared_fields(to + 4, m);
        memcpy(to + LOCAL, m->name, name);
        to += LOCAL + name;
        memcpy(to, m->header, HEADER);
        memcpy(to + HEADER, m->array->data, array_bytes(m->array));
        to += m->size;
    }
    uint8_t *directory = to;
    for (int i = 0; i < count; i++) {
        const member *m = &members[i];
        const size_t name = strlen(m->name);
        put_u32(to, 0x02014b50); /* of an entry of the directory */
        put_u16(to + 4, VERSION);
        write_shared_fields(to + 6, m);
        put_u32(to + 42, m->offset);
        memcpy(to + CENTRAL, m->name, name);
        to += CENTRAL + name;
    }
    put_u32(to, 0x06054b50); /* of the end of the directory */
    put_u16(to + 8, (uint32_t)count);
    put_u16(to + 10, (uint32_t)count);
    put_u32(to + 12, (uint32_t)(to - directory));
    put_u32(to + 16, (uint32_t)(directory - begin));
    *size = total;
    return OCT_OK;
}
