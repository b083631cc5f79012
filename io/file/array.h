/* Arrays of numbers in files, one sample after another along the first axis.
 *
 * Files are untrusted: whoever opens an array has compared the size that it states with the bytes that are there. */
#pragma once

#include "core/tensor/tensor.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files hold numbers as memory does");

/* A stretch of bytes in an open file, or in memory. */
typedef struct oct_span {
    int fd;          /* owned; -1: memory */
    uint8_t *memory; /* owned */
    int64_t begin, size;
} oct_span;

#define OCT_SPAN_NONE ((oct_span){.fd = -1})
/* Opens a plain file as a whole. */
oct_status oct_span_open(oct_span *span, const char *path);
void oct_span_close(oct_span *span);
/* Reads `bytes` at an offset; OCT_DATA under `name` beyond the end. May be called by several threads. */
oct_status oct_span_read(const oct_span *span, int64_t at, void *to, size_t bytes,
                         const char *name);

typedef struct oct_array oct_array;
struct oct_array {
    char *name;      /* of file and array, for messages; owned */
    char kind;       /* of an element: 'u', 'i', 'f' */
    size_t bytes;    /* of an element: 1, 2, 4 or 8 */
    bool big;        /* the file has big-endian elements; what is read is little-endian */
    oct_shape shape; /* up to 4 dimensions, none negative */
    oct_span span;   /* of its elements, or of the whole file when it has its own way of reading */
    /* Reads samples [first, first + count); NULL: they lie one after another in span. Several
     * threads call it at once. */
    oct_status (*read)(const oct_array *array, int64_t first, int64_t count, void *to);
    void *store; /* read's own; released by drop */
    void (*drop)(oct_array *array);
};

/* Reads samples [first, first + count) as the array has its numbers, little-endian. */
oct_status oct_array_read(const oct_array *array, int64_t first, int64_t count, void *to);
/* Reads numbers as samples have them: bytes as bytes, all other numbers as floats. */
oct_status oct_array_read_samples(const oct_array *array, int64_t first, int64_t count, void *to);
/* How many numbers a sample has. */
int64_t oct_array_row(const oct_array *array);
/* An element that was read, as a whole number: false when it is none or beyond 64 bits. */
bool oct_array_whole(const oct_array *array, const uint8_t *element, int64_t *value);
/* An element that was read, as a real number: infinite for a whole one beyond 64 bits. */
double oct_array_real(const oct_array *array, const uint8_t *element);
void oct_array_close(oct_array *array);
