/* What a model says of one sample, for people and as JSON. Which kind of answer that is follows from the task that it
 * learned: data.goal and loss.kind of the recipe in it. */
#pragma once

#include "io/image/image.h"
#include "io/recipe/recipe.h"
#include "quant/program/program.h"

struct json_t;

typedef struct oct_answer {
    const oct_value *in, *out; /* of the program */
    const char *names;         /* of classes or labels, or NULL */
    int64_t index;             /* of the image in its file */
    const float *x;            /* what the model was given */
    const void *y;             /* what it returned */
} oct_answer;

typedef struct oct_answer_kind {
    oct_status (*print)(
        const oct_answer *answer); /* what follows "image 3: ", without the end of line */
    oct_status (*add)(const oct_answer *answer,
                      struct json_t *object); /* members of the image's object */
} oct_answer_kind;

extern const oct_answer_kind oct_answer_map; /* a class for each pixel */

/* A number as JSON, which has no infinity and no NaN: null in their place. */
struct json_t *oct_answer_number(double value);
/* Finds the kind. A model whose output has not the shape of its goal says only numbers. */
const oct_answer_kind *oct_answer_kind_of(const oct_recipe *recipe, const oct_value *in,
                                          const oct_value *out);
/* Makes the picture of a map: each grey pixel is a class number, as in data sets of maps. The caller frees its
 * data. */
oct_status oct_answer_picture(const oct_answer *answer, oct_image *picture) OCT_NODISCARD;
