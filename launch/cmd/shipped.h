/* The shipped recipes lie beside the sources, or beside an installed program. */
#pragma once

#include "io/recipe/recipe.h"
#include "launch/base/args.h"

enum { OCT_SHIPPED_MAX = 128, OCT_SHIPPED_NAME = 64 };

typedef struct oct_shipped {
    char folder[4200];
    char file[OCT_SHIPPED_MAX][OCT_SHIPPED_NAME]; /* "fashion-mnist.yaml", sorted */
    size_t count;
} oct_shipped;

oct_status oct_shipped_list(oct_shipped *list) OCT_NODISCARD;
/* Writes "fashion-mnist" for the i-th. */
void oct_shipped_stem(const oct_shipped *list, size_t i, char stem[OCT_SHIPPED_NAME]);

/* Says how to get a shipped recipe when there is no such file, but a recipe of this name or nearly:
 * OCT_DATA. OCT_OK otherwise, also when neither is there. */
oct_status oct_shipped_hint(const char *path) OCT_NODISCARD;

/* Reads the recipe that the first word of a command line names, with the overrides behind it. */
oct_status oct_recipe_of_args(oct_recipe *recipe, const oct_args *args) OCT_NODISCARD;
/* The same of a recipe and of overrides. */
oct_status oct_recipe_of_words(oct_recipe *recipe, const char *path, const char *const *overrides,
                               size_t count) OCT_NODISCARD;
