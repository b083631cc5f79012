/* Where the checksums of an image are: sections of the "HDF5 File Format Specification Version 3.0". What
 * is not of the form that Octet writes keeps its wrong checksum. */
#include "tests/fuzz/image.h"

#include "core/base/mem.h"
#include "core/base/rng.h"
#include "io/file/file.h"
#include "io/hdf5/hdf5.h"

#include <string.h>

enum { CHECKSUM = 4 };

static uint64_t number(const uint8_t *data, size_t at, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)data[at + i] << (8 * i);
    return value;
}

static bool within(size_t size, size_t at, uint64_t bytes)
{
    return at <= size && bytes <= size - at;
}

/* Computes the checksum after `bytes` bytes from `at` on again. */
static void repair(uint8_t *data, size_t size, size_t at, uint64_t bytes)
{
    if (!within(size, at, bytes) || !within(size, at, bytes + CHECKSUM)) return;
    uint32_t sum = oct_h5_checksum(data + at, (size_t)bytes);
    memcpy(data + at + bytes, &sum, CHECKSUM);
}

/* IV.A.1.b: the size of the first chunk follows flags, times and attribute limits. */
static void repair_header(uint8_t *data, size_t size, size_t at)
{
    if (!within(size, at, 32)) return;
    unsigned flags = data[at + 5];
    size_t head = 6 + (flags & 0x20 ? 16U : 0U) + (flags & 0x10 ? 4U : 0U),
           width = (size_t)1 << (flags & 3);
    if (!within(size, at, head + width)) return;
    uint64_t chunk = number(data, at + head, width);
    if (chunk < size) repair(data, size, at, head + width + chunk);
}

/* IV.A.2.q: its length is known to the message that leads to it alone. */
static void repair_continuation(uint8_t *data, size_t size, size_t at)
{
    const uint64_t address = at;
    const uint8_t *found = data;
    while ((found = memmem(found, size - (size_t)(found - data), &address, sizeof address))) {
        const size_t message = (size_t)(found - data);
        found++;
        if (!within(size, message, 16)) return;
        const uint64_t length = number(data, message + 8, 8);
        if (length > CHECKSUM && length < size) repair(data, size, at, length - CHECKSUM);
    }
}

/* III.G: the header, and its first block when it has no other; that one's sum is taken with zeros in
 * its own place. */
static void repair_heap(uint8_t *data, size_t size, size_t at)
{
    enum { HEADER = 142, START = 112, BITS = 128, ROOT = 132, ROWS = 140 };
    if (!within(size, at, HEADER + CHECKSUM)) return;
    uint64_t block = number(data, at + ROOT, 8), bytes = number(data, at + START, 8);
    size_t sum_at = 13 + (size_t)(number(data, at + BITS, 2) + 7) / 8;
    if (number(data, at + ROWS, 2) == 0 && block < size && bytes < size &&
        within(size, (size_t)block, bytes) && sum_at + CHECKSUM <= bytes) {
        memset(data + block + sum_at, 0, CHECKSUM);
        uint32_t sum = oct_h5_checksum(data + block, (size_t)bytes);
        memcpy(data + block + sum_at, &sum, CHECKSUM);
    }
    repair(data, size, at, HEADER);
}

/* III.A.2: the header, and its root when that is a leaf. */
static void repair_tree(uint8_t *data, size_t size, size_t at)
{
    enum { HEADER = 34, RECORD = 10, ROOT = 16, COUNT = 24 };
    if (!within(size, at, HEADER + CHECKSUM)) return;
    uint64_t leaf = number(data, at + ROOT, 8);
    uint64_t bytes = 6 + number(data, at + RECORD, 2) * number(data, at + COUNT, 2);
    if (leaf < size && bytes < size) repair(data, size, (size_t)leaf, bytes);
    repair(data, size, at, HEADER);
}

static const char signatures[][5] = {"OHDR", "OCHK", "FRHP", "FHDB", "BTHD", "BTLF"};

/* Which signature is at a place, or -1. */
static int signature_at(const uint8_t *data, size_t at)
{
    if (data[at] != 'O' && data[at] != 'F' && data[at] != 'B') return -1;
    for (size_t i = 0; i < OCT_COUNT(signatures); i++)
        if (memcmp(data + at, signatures[i], 4) == 0) return (int)i;
    return -1;
}

static void repair_all(uint8_t *data, size_t size)
{
    static void (*const repairs[])(uint8_t *, size_t, size_t) = {
        repair_header, repair_continuation, repair_heap, NULL, repair_tree, NULL};
    enum { SUPERBLOCK = 44 };
    for (size_t at = 0; at + 4 <= size; at++) {
        const int kind = signature_at(data, at);
        if (kind >= 0 && repairs[kind]) repairs[kind](data, size, at);
    }
    repair(data, size, 0, SUPERBLOCK);
}

/* A place that a structure begins at, one of them by the draw; 0 when there is none. */
static size_t structure(const uint8_t *data, size_t size, uint32_t draw)
{
    size_t places[512], count = 0;
    for (size_t at = 0; at + 4 <= size && count < OCT_COUNT(places); at++)
        if (signature_at(data, at) >= 0) places[count++] = at;
    return count > 0 ? places[draw % count] : 0;
}

size_t fuzz_mutate_image(uint8_t *data, size_t size, size_t max, uint64_t seed)
{
    enum { NEAR = 96 };
    uint32_t word[4];
    oct_philox(seed, OCT_STREAM_TEST, 0, 7, word);
    size_t at = word[0] % 8 < 5 ? structure(data, size, word[1]) : word[1] % (size + 1);
    size_t end = size - at < NEAR ? size : at + NEAR, changed;
    if (word[0] % 64 == 63) {
        changed = fuzz_mutate(data, size, max, seed);
    } else { /* in place: what would make it longer or shorter has no room */
        uint8_t before[NEAR];
        memcpy(before, data + at, end - at);
        changed = fuzz_mutate(data + at, end - at, end - at, seed);
        if (changed < end - at) memcpy(data + at + changed, before + changed, end - at - changed);
        changed = size;
    }
    if (word[2] % 8 > 0) repair_all(data, changed);
    return changed;
}

void fuzz_seed_image(const char *path)
{
    void *bytes = NULL;
    size_t size;
    FUZZ_REQUIRE(oct_file_read(path, (size_t)1 << 24, &bytes, &size) == OCT_OK, "%s",
                 oct_error_message(0));
    FUZZ_REQUIRE(oct_h5_checksum_fits(bytes, size), "%s has no checksum", path);
    fuzz_seed(bytes, size - OCT_CHECKSUM_BYTES);
    oct_free(&bytes);
}

uint8_t *fuzz_checksummed(const uint8_t *data, size_t size)
{
    uint8_t *bytes = NULL;
    FUZZ_REQUIRE(oct_alloc(&bytes, size + OCT_CHECKSUM_BYTES, 1) == OCT_OK, "no memory");
    if (size > 0) memcpy(bytes, data, size);
    oct_sha256(data, size, bytes + size);
    return bytes;
}
