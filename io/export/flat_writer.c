#include "io/export/flat_writer.h"

#include "core/base/mem.h"

#include <string.h>

enum { REFERENCE = 4, TABLE_ALIGN = 8 };

static const size_t most_bytes = INT32_MAX; /* references count in 31 bits */

/* Adds `bytes` zeros, and returns where they begin. */
static size_t add_zeros(oct_flat_writer *w, size_t bytes)
{
    const size_t at = w->size;
    if (w->status == OCT_OK && bytes > most_bytes - w->size)
        w->status = oct_fail(OCT_PREPARE, "the file would have more than 2 GiB, which its format "
                                          "cannot count");
    if (w->status == OCT_OK)
        w->status = oct_grow(&w->bytes, &w->capacity, w->size + bytes, sizeof *w->bytes);
    if (w->status != OCT_OK) return 0;
    memset(w->bytes + at, 0, bytes);
    w->size += bytes;
    return at;
}

static void put_number(oct_flat_writer *w, size_t at, uint64_t value, int width)
{
    for (int i = 0; i < width && w->status == OCT_OK; i++)
        w->bytes[at + (size_t)i] = (uint8_t)(value >> (8 * i));
}

/* Adds zeros so that what comes `ahead` bytes later is aligned. */
static void align(oct_flat_writer *w, size_t to, size_t ahead)
{
    const size_t beyond = (w->size + ahead) % to;
    if (beyond > 0) add_zeros(w, to - beyond);
}

/* Lets the reference at `place` point to what begins at `target`. */
static void set_reference(oct_flat_writer *w, size_t place, size_t target)
{
    if (w->status == OCT_OK) put_number(w, place, target - place, REFERENCE);
}

/* Places the fields after the table's own reference, wide ones first, so that each is aligned. */
static size_t place_fields(int n, const oct_flat_field *fields, size_t *offset)
{
    size_t size = REFERENCE;
    for (size_t width = 8; width > 0; width /= 2)
        for (int i = 0; i < n; i++) {
            if ((fields[i].width ? (size_t)fields[i].width : REFERENCE) != width) continue;
            size = (size + width - 1) / width * width;
            offset[i] = size;
            size += width;
        }
    return size;
}

void oct_flat_table(oct_flat_writer *w, size_t place, int n, oct_flat_field *fields)
{
    size_t offset[OCT_FLAT_FIELDS] = {0};
    int entries = 0;
    OCT_ASSERT(n <= OCT_FLAT_FIELDS);
    if (w->size == 0) { /* the file begins with the reference to its root, and its identifier */
        const size_t identifier = add_zeros(w, REFERENCE + 4) + REFERENCE;
        if (w->status == OCT_OK) memcpy(w->bytes + identifier, w->identifier, 4);
    }
    for (int i = 0; i < n; i++)
        entries = fields[i].number >= entries ? fields[i].number + 1 : entries;
    const size_t size = place_fields(n, fields, offset);
    align(w, 2, 0);
    const size_t vtable = add_zeros(w, 4 + 2 * (size_t)entries);
    align(w, TABLE_ALIGN, 0);
    const size_t at = add_zeros(w, size);
    put_number(w, vtable, 4 + 2 * (uint64_t)entries, 2);
    put_number(w, vtable + 2, size, 2);
    put_number(w, at, at - vtable, REFERENCE);
    for (int i = 0; i < n; i++) {
        fields[i].place = at + offset[i];
        put_number(w, vtable + 4 + 2 * (size_t)fields[i].number, offset[i], 2);
        put_number(w, fields[i].place, (uint64_t)fields[i].value, fields[i].width);
    }
    set_reference(w, place, at);
}

/* Begins a vector of n elements: writes n, aligns what follows to `to` bytes, and points the reference at `place` to it. */
static void begin_vector(oct_flat_writer *w, size_t place, size_t n, size_t to)
{
    align(w, to > REFERENCE ? to : REFERENCE, REFERENCE);
    const size_t at = add_zeros(w, REFERENCE);
    put_number(w, at, n, REFERENCE);
    set_reference(w, place, at);
}

void oct_flat_vector(oct_flat_writer *w, size_t place, size_t n, int width, int to,
                     const void *numbers)
{
    begin_vector(w, place, n, (size_t)to);
    const size_t at = add_zeros(w, n * (size_t)width);
    if (w->status == OCT_OK && n > 0) memcpy(w->bytes + at, numbers, n * (size_t)width);
}

size_t oct_flat_references(oct_flat_writer *w, size_t place, size_t n)
{
    begin_vector(w, place, n, REFERENCE);
    return add_zeros(w, n * REFERENCE);
}

void oct_flat_text(oct_flat_writer *w, size_t place, const char *text)
{
    const size_t length = strlen(text);
    begin_vector(w, place, length, REFERENCE);
    const size_t at = add_zeros(w, length + 1);
    if (w->status == OCT_OK) memcpy(w->bytes + at, text, length);
}
