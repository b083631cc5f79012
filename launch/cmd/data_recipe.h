/* Data that a command line names in place of a recipe: what they are, and a recipe to begin with. */
#pragma once

#include "core/base/text.h"

/* Where samples lie, as the keys data.* say it. */
typedef struct oct_data_found {
    char format[16], path[4200];
    char images[256], labels[256]; /* arrays, where their names are not the format's own; else "" */
    bool
        unlabelled; /* samples alone, as far as names show: a plain folder of pictures, one array */
} oct_data_found;

/* Finds the format of the data at a path that is there, by names of files and arrays. labels: the user names the array
 * of labels. */
oct_status oct_data_look(const char *path, bool labels, oct_data_found *found) OCT_NODISCARD;

/* Whether a path is such data and not a recipe: a folder that is no run, or a file by its ending. */
bool oct_data_is(const char *path);

/* Writes a recipe for the data at a path: task, size and network follow from what they hold. */
oct_status oct_data_recipe(const char *path, oct_text *text) OCT_NODISCARD;
