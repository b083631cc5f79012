/* Golden samples are written beside an exported file: inputs, and the outputs that Octet computes of them, in the file's own
 * shapes and order. */
#pragma once

#include "io/checkpoint/checkpoint.h"
#include "io/dataset/dataset.h"
#include "io/export/format.h"
#include "io/model/model_file.h"
#include "io/recipe/recipe.h"

/* What they are samples of, and how they are written. */
typedef struct oct_golden_source {
    /* Its golden inputs; NULL: the first samples of `data`, and what the float model `root` makes of them. */
    const oct_model *model;
    oct_module *root;
    const oct_recipe *recipe;
    const oct_dataset *data;
    /* Input 0 is given as bytes of pixels; OCT_PREPARE where inputs are no such pixels. */
    bool pixels;
    /* Numbers that are made to codes and of codes are these, as TFLite's signed bytes. */
    bool codes;
    bool channels_last; /* planes are (H, W, C); otherwise (C, H, W) */
} oct_golden_source;

/* Writes a .npz file, and sets the count of samples in it. */
oct_status oct_golden_write(const oct_golden_source *source, const char *path, int64_t *count);
/* Whether the golden inputs of an int8 model are what bytes of pixels become, as data of floats or signed bytes are
 * not. */
bool oct_golden_are_pixels(const oct_model *model);
/* Moves golden inputs that are the normalised value of a byte but for the rounding of a program's own arithmetic onto it. */
void oct_golden_round_to_pixels(oct_model *model);
#define OCT_NO_PIXELS                                                                              \
    "--pixels: the inputs of this model were no pixels of a byte; export it with normalised "      \
    "inputs"
