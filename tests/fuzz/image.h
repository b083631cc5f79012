/* Images of HDF5 as inputs: changed where they have structure, with their checksums computed again, so
 * that a change reaches the reader and is not refused for its checksum alone. */
#pragma once

#include "tests/fuzz/fuzz.h"

size_t fuzz_mutate_image(uint8_t *data, size_t size, size_t max, uint64_t seed);
/* The image of a file as a seed, without the checksum at its end; the targets append that again. */
void fuzz_seed_image(const char *path);
/* The image with its checksum in oct_alloc'ed bytes. */
uint8_t *fuzz_checksummed(const uint8_t *data, size_t size);
