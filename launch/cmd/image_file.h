/* `octet run` takes images from whatever file people have at hand. */
#pragma once

#include "core/base/status.h"

#include <stdint.h>

/* Reads images [first, first + count) of the file as bytes, h x w x c each: an IDX image file or
 * CIFAR-10 batch (plain or gzipped), one JPEG, PNG, binary PGM or PPM, or raw bytes of whole images. *bytes is
 * oct_alloc'ed. OCT_DATA when the file is not of that size; OCT_USAGE when the range is beyond its
 * images. */
oct_status oct_image_file_read(const char *path, int64_t h, int64_t w, int64_t c, int64_t first,
                               int64_t count, uint8_t **bytes) OCT_NODISCARD;
