/* This file reads the parts of an image: checksum, cursor over bytes, claims, links. */
#include "io/hdf5_part.h"

#include "core/base/mem.h"
#include "io/file.h"

#include <stdlib.h>
#include <string.h>

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

/* The cursor. */

uint64_t oct_h5_take(oct_h5_cursor *c, size_t bytes)
{
    uint64_t value = 0;
    if ((size_t)(c->end - c->next) < bytes) {
        c->short_of = true;
        c->next = c->end;
        return 0;
    }
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)*c->next++ << (8 * i);
    return value;
}

bool oct_h5_take_word(oct_h5_cursor *c, const char *word)
{
    bool same = true;
    for (; *word; word++)
        same &= oct_h5_take(c, 1) == (unsigned char)*word;
    return same && !c->short_of;
}

bool oct_h5_take_zeros(oct_h5_cursor *c)
{
    bool zero = true;
    while (c->next < c->end)
        zero &= *c->next++ == 0;
    return zero;
}

bool oct_h5_take_checksum(oct_h5_cursor *c, const uint8_t *begin)
{
    const size_t bytes = (size_t)(c->next - begin);
    const uint64_t there = oct_h5_take(c, 4);
    return !c->short_of && there == oct_h5_checksum(begin, bytes);
}

/* Claims. */

oct_status oct_h5_refuse(uint64_t at, const char *what)
{
    return oct_fail(OCT_DATA,
                    "holds what Octet does not write (%s, at byte %llu); it is damaged or another "
                    "program made it",
                    what, (unsigned long long)at);
}

oct_status oct_h5_fetch(const oct_h5_claims *claims, uint64_t at, uint64_t bytes)
{
    const oct_h5_source *source = claims->source;
    if (!source) return OCT_OK;
    return oct_file_read_at(source->fd, at, source->image + at, (size_t)bytes);
}

static oct_status claim(oct_h5_claims *claims, oct_h5_extents *extents, uint64_t at, uint64_t bytes)
{
    OCT_H5_NEED(at <= claims->size && bytes <= claims->size - at, at,
                "something beyond the end of the file");
    OCT_H5_NEED(bytes <= claims->size - extents->bytes, at, "something that is reached twice");
    OCT_TRY(oct_grow(&extents->all, &extents->capacity, extents->count + 1, sizeof *extents->all));
    extents->all[extents->count++] = (oct_h5_extent){at, bytes};
    extents->bytes += bytes;
    return OCT_OK;
}

static oct_status look_at(const oct_h5_claims *claims, uint64_t at, uint64_t bytes,
                          oct_h5_cursor *c)
{
    OCT_TRY(oct_h5_fetch(claims, at, bytes));
    *c = (oct_h5_cursor){.next = claims->image + at, .end = claims->image + at + bytes};
    return OCT_OK;
}

oct_status oct_h5_claim_values(oct_h5_claims *claims, uint64_t at, uint64_t bytes)
{
    return claim(claims, &claims->parts, at, bytes);
}

oct_status oct_h5_claim(oct_h5_claims *claims, uint64_t at, uint64_t bytes, oct_h5_cursor *c)
{
    OCT_TRY(claim(claims, &claims->parts, at, bytes));
    return look_at(claims, at, bytes, c);
}

oct_status oct_h5_claim_entry(oct_h5_claims *claims, uint64_t at, uint64_t bytes, oct_h5_cursor *c)
{
    OCT_TRY(claim(claims, &claims->entries, at, bytes));
    return look_at(claims, at, bytes, c);
}

static int by_address(const void *a, const void *b)
{
    const oct_h5_extent *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

static oct_status check_disjoint(oct_h5_extents *extents)
{
    oct_h5_extent *all = extents->all;
    if (extents->count > 0) qsort(all, extents->count, sizeof *all, by_address);
    for (size_t i = 1; i < extents->count; i++)
        OCT_H5_NEED(all[i].at - all[i - 1].at >= all[i - 1].bytes, all[i].at,
                    "something that lies over something else");
    return OCT_OK;
}

oct_status oct_h5_claims_check(oct_h5_claims *claims)
{
    OCT_TRY(check_disjoint(&claims->parts));
    return check_disjoint(&claims->entries);
}

void oct_h5_claims_free(oct_h5_claims *claims)
{
    oct_free(&claims->parts.all);
    oct_free(&claims->entries.all);
    oct_free(&claims->block);
}

/* Links. */

int oct_h5_compare_names(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    const int differ = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    if (differ != 0) return differ;
    return a_bytes < b_bytes ? -1 : a_bytes > b_bytes;
}

bool oct_h5_is_name(const char *name, size_t bytes)
{
    if (bytes == 0 || bytes > OCT_H5_NAME_BYTES || (bytes == 1 && *name == '.')) return false;
    for (size_t i = 0; i < bytes; i++)
        if (name[i] < ' ' || name[i] > '~' || name[i] == '/') return false;
    return true;
}

oct_status oct_h5_take_link(oct_h5_cursor *c, uint64_t at, oct_h5_link *link)
{
    /* Version 1; flags 0: a hard link without creation order, its name's length in one byte. */
    const bool plain = oct_h5_take(c, 1) == 1 && oct_h5_take(c, 1) == 0;
    OCT_H5_NEED(plain, at, "a link of another kind");
    link->name_bytes = (size_t)oct_h5_take(c, 1);
    link->name = (const char *)c->next;
    OCT_H5_NEED((size_t)(c->end - c->next) == link->name_bytes + 8, at, "a link of another size");
    OCT_H5_NEED(oct_h5_is_name(link->name, link->name_bytes), at,
                "a name that is too long or holds more than printable letters");
    c->next += link->name_bytes;
    link->target = oct_h5_take(c, 8);
    return OCT_OK;
}
