/* What becomes of a sample between the file and the model: a list of transforms, as the recipe keys
 * data.train and data.test name them, with their random numbers.
 *
 * Every random number is a Philox draw of (seed, the sample's number in the run, place in the list), so a
 * transform is a pure function of the sample and its draw: neither rank nor thread nor order of reading
 * changes a bit. Arithmetic is in integers, or in floats and doubles by +, -, *, / and square root in a
 * fixed order; no function of the C library that rounds in its own way is called.
 *
 * Adding a transform: a file in this folder that defines oct_transform_<name>, and a line in
 * augment_list.def. `octet help recipe` and the check of the recipe follow from its struct.
 */
#pragma once

#include "core/base/text.h"
#include "core/base/registry.h"
#include "io/augment/dice.h"
#include "io/image/image.h"

enum {
    OCT_AUGMENT_MAX = 32,  /* transforms of a list */
    OCT_PARAMS_MAX = 4,    /* of a transform */
    OCT_AUGMENT_FLAW = 512 /* bytes of a sentence about a mistake */
};

typedef enum oct_param_kind {
    OCT_PARAM_COUNT, /* "9" */
    OCT_PARAM_REAL,  /* "0.4" */
    OCT_PARAM_RANGE, /* "0.08..1" */
    OCT_PARAM_SIZE,  /* "224" or, height first, "224x160"; left out: data.size */
} oct_param_kind;

typedef struct oct_transform_param {
    const char *name;
    oct_param_kind kind;
    const char *standard; /* as it would be written; NULL: must be given, of a SIZE: data.size */
    double min, max;      /* of each number */
} oct_transform_param;

/* Both numbers of a RANGE; height and width of a SIZE (0: not given); of the others the number twice. */
typedef struct oct_param_value {
    double from, to;
} oct_param_value;

/* What a transform works with, besides the image. */
typedef struct oct_transform_call {
    const oct_param_value *value; /* in the order of its parameters */
    oct_dice *dice;
    const oct_reals *mean; /* data.mean: what is outside of the image, which the model sees as 0 */
    oct_image *spare;      /* a second image, to write the result to and swap */
} oct_transform_call;

typedef struct oct_transform {
    const char *name, *help;
    oct_transform_param param[OCT_PARAMS_MAX + 1]; /* ends with name NULL */
    bool random;                                   /* for training only */
    bool bytes;                                    /* needs samples of bytes (OCT_U8) */
    /* Turns the size of the samples (h = w = 0: they differ) into that of the result, or fills the flaw
     * when such samples cannot be transformed; NULL: any can, and keep their size. */
    void (*fit)(const oct_param_value *value, oct_image *shape, char flaw[OCT_AUGMENT_FLAW]);
    /* In place. map: the classes of the pixels (OCT_S32, one channel), or NULL; geometric transforms move
     * it along and put OCT_MAP_OUTSIDE where the image does not reach. */
    oct_status (*run)(const oct_transform_call *call, oct_image *image, oct_image *map);
} oct_transform;

/* The class of a pixel that no image has: the loss ignores it. */
enum { OCT_MAP_OUTSIDE = -1 };

#define OCT_TRANSFORM(file) extern const oct_transform oct_transform_##file;
#include "io/augment/augment_list.def"
#undef OCT_TRANSFORM
extern const oct_registry oct_transform_table;

/* A list of transforms, ready to run: plain data, read by several threads at once. */
typedef struct oct_augment {
    int count;
    struct {
        const oct_transform *transform;
        oct_param_value value[OCT_PARAMS_MAX];
    } item[OCT_AUGMENT_MAX];
    oct_reals mean;
    int64_t h, w; /* data.size: what every sample has at the end; 0: what the list makes of it */
} oct_augment;

/* Reads a size, "224" or "224x160"; false when it is none. */
bool oct_augment_size(const char *text, int64_t *h, int64_t *w);
/* Adds what an item of data.train or data.test says: a name, then values in the order of its parameters or
 * as name=value. training: random transforms may stand there. The size must have been set before. On a
 * mistake the flaw says what and the remedy, and nothing is added; otherwise it is empty. */
void oct_augment_add(oct_augment *a, const char *text, bool training, char flaw[OCT_AUGMENT_FLAW]);
/* Is there nothing to do, whatever the samples are? */
bool oct_augment_is_empty(const oct_augment *a);
/* Turns type and size of the samples as they are read (h = w = 0: sizes differ) into those of the result.
 * OCT_USAGE where this list cannot, or where results would differ in size; `key` names the list. */
oct_status oct_augment_fit(const oct_augment *a, const char *key, oct_image *shape);
/* Transforms a sample, and its map (or NULL). draw: of (seed, sample); word 0 to 3 of sub 0 belong to
 * the loader's crop and flip. */
oct_status oct_augment_run(const oct_augment *a, const oct_draw *draw, oct_image *image,
                           oct_image *map);
/* Writes the lines of `octet help recipe` about the transforms. */
oct_status oct_augment_help(oct_text *out);

/* Mixup (H. Zhang et al., 2017) and cutmix (S. Yun et al., 2019): a sample gets a part of another one, and its
 * label the same part of that one's.
 *
 * The other one is of the same leaf, so a rank has it whatever the ranks are: as many samples further, in
 * a circle, as the leaf draws. How much of it, and where from, the sample draws. */
typedef struct oct_mixing {
    double mixup, cutmix; /* alpha of the beta distribution of the shares; 0: off */
} oct_mixing;

/* The samples of a leaf as the model gets them. */
typedef struct oct_mix_leaf {
    oct_draw first; /* of the first sample; the others follow */
    int64_t samples, h, w, c, classes;
    float *images; /* samples x h x w x c */
    float *values; /* samples x classes: probabilities of the classes, or other goals */
    float *spare;  /* room for h * w * c + classes */
} oct_mix_leaf;

/* Mixes the samples in place; one alone stays as it is. */
void oct_mix(const oct_mixing *mixing, const oct_mix_leaf *leaf);
