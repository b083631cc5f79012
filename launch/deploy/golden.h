/* Golden samples are written beside an exported file: inputs, and the outputs that Octet computes of them, in the file's own
 * shapes and order. */
#pragma once

#include "io/checkpoint/checkpoint.h"
#include "io/dataset/dataset.h"
#include "io/export/format.h"
#include "io/model/model_file.h"
#include "io/recipe/recipe.h"

typedef struct oct_golden {
    oct_npz_array array[OCT_PROGRAM_INPUTS + 1]; /* data are owned */
    int num_arrays;
    int64_t count;      /* samples */
    bool channels_last; /* is set before: planes are (H, W, C); otherwise (C, H, W) */
} oct_golden;
void oct_golden_free(oct_golden *golden);

/* Takes the golden inputs of an int8 model. pixels: input 0 is given as bytes of pixels; OCT_PREPARE for a model whose
 * inputs are no such pixels. codes: numbers that are made to codes and of codes are these, as TFLite's signed bytes. */
oct_status oct_golden_of_model(oct_golden *golden, const oct_model *model, bool pixels,
                               bool codes) OCT_NODISCARD;
/* Whether the golden inputs of an int8 model are what bytes of pixels become, as data of floats or signed bytes are
 * not. */
bool oct_golden_are_pixels(const oct_model *model);
#define OCT_NO_PIXELS                                                                              \
    "--pixels: the inputs of this model were no pixels of a byte; export it with normalised "      \
    "inputs"
/* Takes the first samples of a data set, and what a float model makes of them. */
oct_status oct_golden_of_network(oct_golden *golden, oct_module *root, const oct_recipe *recipe,
                                 const oct_dataset *data, bool pixels) OCT_NODISCARD;
