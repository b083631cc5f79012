/* Images of HDF5 as inputs: changed where they are structured, with their checksums put right again, so
 * that a change is looked at by whoever reads it and not by the checksum alone. */
#pragma once

#include "tests/fuzz/fuzz.h"

size_t fuzz_mutate_image(uint8_t *data, size_t size, size_t max, uint64_t seed);
/* The image of a sealed file as a seed; the targets put the seal after it again. */
void fuzz_seed_image(const char *path);
/* The image with its seal in oct_alloc'ed bytes. */
uint8_t *fuzz_checksummed(const uint8_t *data, size_t size);
