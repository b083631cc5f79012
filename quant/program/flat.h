/* A flat file holds an integer program and how to feed it: what a deployed program reads, by one mmap, linked with
 * libc, libm and the compiler's OpenMP alone. `octet export --format flat` writes it; flat_layout.h says how it lies.
 *
 * Everything is checked before use, as of any file that others may have made: places and counts, then the program
 * itself (oct_program_check). The digest shows damage; it is no signature. The file must not change while it is open. */
#pragma once

#include "quant/program/program.h"

typedef struct oct_flat oct_flat;

/* Opens a file, or bytes that lie somewhere from a multiple of 64 on, borrowed. OCT_DATA with a sentence for whatever
 * is wrong with it. */
oct_status oct_flat_open(oct_flat **flat, const char *path) OCT_NODISCARD;
oct_status oct_flat_take(oct_flat **flat, const void *bytes, size_t size) OCT_NODISCARD;
void oct_flat_close(oct_flat **flat);

/* The program, until the file is closed: for oct_runtime_create. Its arrays are the file's own. */
const oct_program *oct_flat_program(const oct_flat *flat);
/* Numbers in the output; of class numbers, how many there are. */
int oct_flat_classes(const oct_flat *flat);
/* Names of classes, a line each, not ended by a NUL; *bytes is 0 where there are none. */
const char *oct_flat_class_names(const oct_flat *flat, size_t *bytes);
/* Makes the normalised values of a sample's pixels, bytes from 0 to 255: rows of columns of channels. */
void oct_flat_normalise(const oct_flat *flat, const uint8_t *pixels, float *values);
/* Computes the golden inputs; OCT_MISMATCH with a sentence when an output has other bits than the one in the file. */
oct_status oct_flat_verify(const oct_flat *flat) OCT_NODISCARD;

/* For writers: the digest of a file's bytes, for its header. */
uint64_t oct_flat_digest(const void *bytes, size_t size);
