/* Recipes that a command begins: for data that a command line names in place of a recipe, and for an ONNX network. */
#pragma once

#include "core/base/text.h"
#include "io/onnx/graph.h"

/* Where samples are, as the keys data.* say it. */
typedef struct oct_data_found {
    char format[16], path[4200];
    char images[256], labels[256]; /* arrays, where their names are not the format's own; else "" */
    bool
        unlabelled; /* samples alone, as far as names show: a plain folder of pictures, one array */
} oct_data_found;

/* Finds the format of the data at an existing path, by names of files and arrays. labels: the user names the array
 * of labels. */
oct_status oct_data_look(const char *path, bool labels, oct_data_found *found);

/* Adds the keys below `data:` that say so. */
oct_status oct_data_found_write(const oct_data_found *found, oct_text *text);

/* Whether a path is a data set: a folder, or a file with the ending of a data format, that Octet has not written. */
bool oct_data_is(const char *path);

/* Writes a recipe for the data at a path: task, size and network follow from what they hold. */
oct_status oct_data_recipe(const char *path, oct_text *text);

/* Adds the recipe for a folded network of the file `path`. model: the file that it will name. untrained: its batch
 * norms have seen no data. */
oct_status oct_import_recipe(const oct_onnx_graph *graph, const char *path, const char *model,
                             bool untrained, oct_text *text);
