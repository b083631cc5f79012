/* The recipe that a command line names, and its run. The shipped ones are in a folder beside the sources, or of an
 * installed program. */
#pragma once

#include "io/recipe/recipe.h"
#include "launch/session/session.h"

#include <jansson.h>

enum { OCT_SHIPPED_MAX = 128, OCT_SHIPPED_NAME = 64, OCT_SHARED_PATH = 4200 };

/* The folder of this name that comes with Octet: of an installed program share/octet/NAME beside its bin, else launch/NAME
 * of the sources that it was built from. Returns folder. */
const char *oct_shared_folder(const char *name, char folder[OCT_SHARED_PATH]);

typedef struct oct_shipped {
    char folder[OCT_SHARED_PATH];
    char name[OCT_SHIPPED_MAX]
             [OCT_SHIPPED_NAME]; /* "fashion-mnist" of "fashion-mnist.yaml", sorted */
    size_t count;
} oct_shipped;

/* Lists the shipped recipes. */
oct_status oct_shipped_list(oct_shipped *list);
/* The name that is nearest to a word (oct_nearest), which may end in .yaml; NULL when none is. */
const char *oct_shipped_nearest(const oct_shipped *list, const char *word);

/* OCT_DATA when there is no such file, with the shipped recipe of this name or nearly. */
oct_status oct_shipped_hint(const char *path);

/* Reads the recipe that the first word of a command line names, with the overrides after it. */
oct_status oct_recipe_of_args(oct_recipe *recipe, const oct_args *args);
/* Reads the recipe at a path, or makes one for the data there, with these overrides. */
oct_status oct_recipe_of_words(oct_recipe *recipe, const char *path, const char *const *overrides,
                               size_t count);
/* The recipe of a calibration: of what the first word names, a recipe or NET.onnx; a second word without `=` is where
 * the data are, the others are overrides. */
oct_status oct_calibrate_recipe(oct_recipe *recipe, const oct_args *args);
/* Whether the recipe of an ONNX file had to guess how images are normalised. */
bool oct_calibrate_guesses(const oct_args *args);

/* Collective: the recipe's run in its folder, as oct_train, with the files that it names and the report of the run.
 * *result: on rank 0 the result record (new reference); NULL elsewhere. */
oct_status oct_run_recipe(oct_session *session, const oct_args *args, oct_recipe *recipe,
                          json_t **result);
