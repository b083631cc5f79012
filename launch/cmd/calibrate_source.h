/* The recipe of a calibration: one that is given, or that of an ONNX file and its data. */
#pragma once

#include "io/recipe/recipe.h"
#include "launch/base/args.h"

/* Reads what the first word names, a recipe or NET.onnx; a second word without `=` is where the data are, the others
 * are overrides. */
oct_status oct_calibrate_recipe(oct_recipe *recipe, const oct_args *args) OCT_NODISCARD;
/* Whether the recipe of an ONNX file had to guess how images are normalised. */
bool oct_calibrate_guesses(const oct_args *args);
