/* All memory of Octet comes from here.
 *
 * A block comes from calloc with room in front for alignment and a header that holds its true
 * address and size. calloc leaves the pages of a big block untouched until they are used, which
 * zeroing by hand would not.
 */
#include "core/base/mem.h"

#include "core/base/c_locale.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

enum { LARGE_PAGE = 2 << 20 };

static const size_t ADDRESS_SPACE = (size_t)1 << 47; /* 128 TiB */

typedef struct header {
    void *base;
    size_t bytes;
} header;

static _Atomic size_t live_bytes, peak_bytes;
static _Atomic int64_t fail_countdown;
static _Thread_local struct {
    size_t left; /* bytes that new blocks may take; SIZE_MAX: any number */
    bool refused;
} guard = {.left = SIZE_MAX};

/* Handles are T ** of any T; copying the bytes keeps the aliasing rules. */
static void *load_pointer(const void *handle)
{
    void *block;
    memcpy(&block, handle, sizeof block);
    return block;
}

static void store_pointer(void *handle, void *block)
{
    memcpy(handle, &block, sizeof block);
}

static header *header_of(void *block)
{
    return (header *)block - 1;
}

static void count_bytes(size_t bytes)
{
    size_t live = atomic_fetch_add(&live_bytes, bytes) + bytes;
    size_t peak = atomic_load(&peak_bytes);
    while (live > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, live)) {
    }
}

/* Counts down to the allocation that a test wants to fail (oct_mem_fail_after). */
static bool must_fail_for_test(void)
{
    int64_t left = atomic_load(&fail_countdown);
    while (left > 0) {
        if (atomic_compare_exchange_weak(&fail_countdown, &left, left - 1)) return left == 1;
    }
    return false;
}

bool oct_mem_guard(size_t bytes)
{
    const bool refused = guard.refused;
    guard.left = bytes;
    guard.refused = false;
    return refused;
}

/* Counts a request against the guard of this thread, and refuses it where too little is left. */
static bool guard_refuses(size_t count, size_t size)
{
    size_t bytes;
    if (guard.left == SIZE_MAX) return false;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > guard.left)
        guard.refused = true;
    else
        guard.left -= bytes;
    return guard.refused;
}

oct_status oct_mem_fail(size_t bytes, const char *which)
{
    return oct_fail(
        OCT_RESOURCE, "out of memory: %s asked%s, %s in use; use a smaller batch or more memory",
        oct_text_size((int64_t)bytes).text, which, oct_text_size((int64_t)oct_mem_live()).text);
}

oct_status oct_alloc(void *block, size_t count, size_t size)
{
    store_pointer(block, NULL);
    OCT_CHECK(!guard_refuses(count, size), OCT_RESOURCE,
              "%zu elements of %zu bytes are more memory than is allowed here", count, size);
    size_t bytes, total;
    bool fits = !__builtin_mul_overflow(count, size, &bytes) &&
                !__builtin_add_overflow(bytes, sizeof(header) + OCT_CACHE_LINE, &total) &&
                total <= ADDRESS_SPACE;
    OCT_CHECK(fits, OCT_RESOURCE,
              "out of memory: %zu elements of %zu bytes are more than any machine has", count,
              size);
    char *base = must_fail_for_test() ? NULL : calloc(1, total);
    if (!base) return oct_mem_fail(bytes, "");
    uintptr_t first = (uintptr_t)base + sizeof(header);
    void *aligned = base + sizeof(header) + (oct_cache_aligned(first) - first);
    *header_of(aligned) = (header){.base = base, .bytes = bytes};
    count_bytes(bytes);
    store_pointer(block, aligned);
    return OCT_OK;
}

oct_status oct_mem_check_available(size_t bytes)
{
    void *room = must_fail_for_test() ? MAP_FAILED
                                      : mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) return oct_mem_fail(bytes, "");
    munmap(room, bytes);
    return OCT_OK;
}

void oct_mem_trim(void)
{
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}

/* Advises on whole large pages alone, since the pages at the ends may hold other memory. */
void oct_mem_advise_huge_pages(void *block, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    const uintptr_t first = ((uintptr_t)block + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    const uintptr_t end = ((uintptr_t)block + bytes) / LARGE_PAGE * LARGE_PAGE;
    if (first < end)
        (void)madvise((char *)block + (first - (uintptr_t)block), end - first, MADV_HUGEPAGE);
#else
    (void)block, (void)bytes;
#endif
}

void oct_free(void *block)
{
    void *aligned = load_pointer(block);
    if (!aligned) return;
    atomic_fetch_sub(&live_bytes, header_of(aligned)->bytes);
    free(header_of(aligned)->base);
    store_pointer(block, NULL);
}

void oct_free_all(void *const *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        oct_free(blocks[i]);
}

oct_status oct_strdup(char **copy, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *block;
    *copy = NULL;
    OCT_TRY(oct_alloc(&block, bytes, 1));
    memcpy(block, text, bytes);
    *copy = block;
    return OCT_OK;
}

oct_status oct_format(char **text, const char *format, ...)
{
    *text = NULL;
    va_list args;
    va_start(args, format);
    int length = oct_vsnprintf(NULL, 0, format, args);
    va_end(args);
    OCT_CHECK(length >= 0, OCT_DEFECT, "a text could not be formatted from \"%s\"", format);
    char *block;
    OCT_TRY(oct_alloc(&block, (size_t)length + 1, 1));
    va_start(args, format);
    oct_vsnprintf(block, (size_t)length + 1, format, args);
    va_end(args);
    *text = block;
    return OCT_OK;
}

oct_status oct_grow(void *block, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity) return OCT_OK;
    size_t wanted = *capacity < SIZE_MAX / 2 ? 2 * *capacity : need;
    if (wanted < need) wanted = need;
    if (wanted < 8) wanted = 8;
    void *old = load_pointer(block), *grown;
    OCT_TRY(oct_alloc(&grown, wanted, size));
    if (old) memcpy(grown, old, *capacity * size);
    oct_free(&old);
    store_pointer(block, grown);
    *capacity = wanted;
    return OCT_OK;
}

void oct_mem_count(int64_t bytes)
{
    if (bytes > 0)
        count_bytes((size_t)bytes);
    else
        atomic_fetch_sub(&live_bytes, (size_t)-bytes);
}

size_t oct_mem_live(void)
{
    return atomic_load(&live_bytes);
}

size_t oct_mem_peak(void)
{
    return atomic_load(&peak_bytes);
}

void oct_mem_peak_reset(void)
{
    atomic_store(&peak_bytes, atomic_load(&live_bytes));
}

void oct_mem_fail_after(int64_t n)
{
    atomic_store(&fail_countdown, n);
}

/* Eight digests by FNV-1a over 64-bit words are made side by side, so that their multiplications overlap; what they
 * end with, and the words left, are the words of a ninth. Each step is a bijection of the digest, and so is what
 * mixes the bits of the last, as splitmix64 ends: a multiplication carries upwards only. */
enum { LANES = 8 };

static const uint64_t basis = 0xcbf29ce484222325u, prime = 0x100000001b3u;

uint64_t oct_digest(const void *data, size_t bytes)
{
    const char *at = data, *end = at + bytes;
    uint64_t lane[LANES], word[LANES], digest = basis ^ (uint64_t)bytes;
    for (int i = 0; i < LANES; i++)
        lane[i] = basis + (uint64_t)i;
    for (; (size_t)(end - at) >= sizeof word; at += sizeof word) {
        memcpy(word, at, sizeof word);
        for (int i = 0; i < LANES; i++)
            lane[i] = (lane[i] ^ word[i]) * prime;
    }
    for (int i = 0; i < LANES; i++)
        digest = (digest ^ lane[i]) * prime;
    for (; at < end; at += sizeof *word) {
        const size_t left = (size_t)(end - at);
        uint64_t last = 0;
        memcpy(&last, at, left < sizeof last ? left : sizeof last);
        digest = (digest ^ last) * prime;
        if (left < sizeof last) break;
    }
    digest = (digest ^ digest >> 30) * 0xbf58476d1ce4e5b9u;
    digest = (digest ^ digest >> 27) * 0x94d049bb133111ebu;
    return digest ^ digest >> 31;
}
