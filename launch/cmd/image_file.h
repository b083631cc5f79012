/* `octet run` takes images, or samples of other kinds, from whatever people have at hand. */
#pragma once

#include "io/augment/augment.h"
#include "io/dataset/dataset.h"
#include "io/recipe/recipe.h"

/* What the model takes, where it is, and how the model's evaluation makes it of samples (NULL: they have that size).
 */
typedef struct oct_image_wanted {
    int64_t h, w, c;
    const char *images; /* name of their array; NULL: the usual one */
    const oct_augment *augment;
    bool raw; /* the file's bytes are images as they are, whatever they may look like */
} oct_image_wanted;

/* Opens samples, whose labels nobody reads: a data set's folder or file as recipes read it (the test part, or all
 * where it has none), or one file of images: IDX, a CIFAR-10 batch, NumPy's .npy of one sample or several (plain or
 * gzipped), one JPEG, PNG, binary PGM or PPM; raw bytes of whole images where they are asked for. recipe: the
 * model's. OCT_DATA when it is none of these or a file of images that the model cannot take; the data set is then
 * empty. */
oct_status oct_images_open(oct_dataset *data, const char *path, const oct_recipe *recipe,
                           const oct_image_wanted *wanted) OCT_NODISCARD;
/* What to call a sample: the path of its picture, else that of its file. The caller frees *name. */
oct_status oct_images_name(const oct_dataset *data, int64_t i, const char *path,
                           char **name) OCT_NODISCARD;
/* Reads a sample and makes it what the model takes. OCT_DATA with its name when that cannot be done. */
oct_status oct_images_read(const oct_dataset *data, int64_t i, const char *name,
                           const oct_image_wanted *wanted, oct_image *image) OCT_NODISCARD;
