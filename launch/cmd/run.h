/* What `octet run` reads and what it says.
 *
 * Images, or samples of other kinds, come from whatever people have at hand (image_file.c). What a model says of one,
 * for people and as JSON, follows from the task that it learned: data.goal and loss.kind of the recipe in it
 * (answer.c). */
#pragma once

#include "io/augment/augment.h"
#include "io/dataset/dataset.h"
#include "io/image/image.h"
#include "io/recipe/recipe.h"
#include "quant/program/program.h"

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
                           const oct_image_wanted *wanted);
/* Reads a sample and makes it what the model takes. OCT_DATA with its name when that cannot be done. */
oct_status oct_images_read(const oct_dataset *data, int64_t i, const char *name,
                           const oct_image_wanted *wanted, oct_image *image);

struct json_t;

typedef struct oct_answer {
    const oct_value *in, *out; /* of the program */
    const char *names;         /* of classes or labels, or NULL */
    int64_t index;             /* of the image in its file */
    const float *x;            /* what the model was given */
    const void *y;             /* what it returned */
} oct_answer;

typedef struct oct_answer_kind {
    /* What follows "image 3: ", without the end of line. */
    oct_status (*print)(const oct_answer *answer);
    /* Adds members to the image's object. */
    oct_status (*add)(const oct_answer *answer, struct json_t *object);
    /* Of a map of classes: a picture whose grey pixels are class numbers, as in data sets of maps, to be freed by the
     * caller. NULL: of other kinds. */
    oct_status (*draw)(const oct_answer *answer, oct_image *picture);
} oct_answer_kind;

/* Finds how an output is shown: by the recipe's goal, or as plain numbers where its shape is not that of the goal. */
const oct_answer_kind *oct_answer_kind_of(const oct_recipe *recipe, const oct_value *in,
                                          const oct_value *out);
