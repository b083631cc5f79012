/* `octet run` takes images, or samples of other kinds, from whatever file people have at hand. */
#pragma once

#include "io/augment/augment.h"

/* What the model takes, and how its evaluation makes that of samples (NULL: they have that size). */
typedef struct oct_image_wanted {
    int64_t h, w, c;
    const oct_augment *augment;
    bool raw; /* the file's bytes are images as they are, whatever they may look like */
} oct_image_wanted;

typedef struct oct_image_samples {
    oct_dtype dtype; /* U8; of arrays also S8 and F32 */
    void *data;      /* h x w x c each, one behind the other; oct_alloc'ed */
} oct_image_samples;

/* Reads images [first, first + count) of the file: an IDX image file or CIFAR-10 batch, NumPy's .npy of one sample
 * or several (plain or gzipped), one JPEG, PNG, binary PGM or PPM; raw bytes of whole images where they are asked for.
 * OCT_DATA when the file is none of these or not of that size; OCT_USAGE when the range is beyond its images. */
oct_status oct_image_file_read(const char *path, const oct_image_wanted *wanted, int64_t first,
                               int64_t count, oct_image_samples *samples) OCT_NODISCARD;
