/* All memory comes from here. Blocks are aligned to cache lines of 64 bytes and zeroed; live and peak bytes are
 * counted. */
#pragma once

#include "core/base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Sets *block to count * size bytes, zeroed; OCT_RESOURCE with a sentence on overflow or
 * exhaustion. count * size == 0 gives a valid block. */
oct_status oct_alloc(void *block, size_t count, size_t size); /* block: T ** */
/* Frees *block and sets it to NULL; NULL is fine. */
void oct_free(void *block); /* block: T ** */
/* Frees each of these, in order, as oct_free does. */
#define OCT_FREE_ALL(...)                                                                          \
    oct_free_all((void *[]){__VA_ARGS__}, sizeof((void *[]){__VA_ARGS__}) / sizeof(void *))
void oct_free_all(void *const *blocks, size_t count);
/* Returns OCT_RESOURCE unless `bytes` bytes could be had at this moment; takes none. Serves calls
 * of libraries that crash where memory runs out. */
oct_status oct_mem_check_available(size_t bytes);
/* OCT_RESOURCE: `bytes` bytes, `which` ("", " for ..."), could not be had. */
oct_status oct_mem_fail(size_t bytes, const char *which);
/* Gives memory that is free back to the system, where the allocator would rather keep it: after much was
 * freed that will not be asked for again. */
void oct_mem_trim(void);
/* Advises the system that all of a fresh block of `bytes` bytes will be used, often. Where the
 * system has larger pages, it may take them. */
void oct_mem_advise_huge_pages(void *block, size_t bytes); /* block: T * */
oct_status oct_strdup(char **copy, const char *text);
oct_status oct_format(char **text, const char *format, ...) OCT_PRINTF(2, 3);

/* Grows *block (of *capacity elements of `size` bytes) to hold at least `need`; keeps contents. */
oct_status oct_grow(void *block, size_t *capacity, size_t need, size_t size);

/* From now on this thread's new blocks may take `bytes` bytes in all, SIZE_MAX: any number; more is refused as
 * exhaustion is. For requests that come from an untrusted file. Says whether the guard before has refused something. */
bool oct_mem_guard(size_t bytes);

/* Counts memory that oct_alloc did not give, such as mapped files, as live; negative: it is given back. */
void oct_mem_count(int64_t bytes);
size_t oct_mem_live(void);
size_t oct_mem_peak(void);
void oct_mem_peak_reset(void);
/* Serves tests: the n-th allocation from now fails (0 = never). */
void oct_mem_fail_after(int64_t n);

enum { OCT_CACHE_LINE = 64 };

/* Rounds up to whole cache lines, so that no two threads or arrays share one. */
static inline size_t oct_cache_aligned(size_t bytes)
{
    return (bytes + OCT_CACHE_LINE - 1) / OCT_CACHE_LINE * OCT_CACHE_LINE;
}

/* Takes the next `bytes` of memory after the *used taken ones, in whole cache lines. memory NULL only
 * counts, and returns NULL. */
static inline void *oct_carve(void *memory, size_t *used, size_t bytes)
{
    void *taken = memory ? (char *)memory + *used : NULL;
    *used += oct_cache_aligned(bytes);
    return taken;
}

/* A digest shows whether two runs of memory are the same: if they differ in one word only, their digests always
 * differ. It is quick, and no proof against an attacker; files have SHA-256 (io/file/file.h). */
uint64_t oct_digest(const void *data, size_t bytes);
