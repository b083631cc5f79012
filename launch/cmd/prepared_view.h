/* The prepared model behind a file, shown as its graph or as its module tree. */
#pragma once

#include "launch/run/file_kind.h"

typedef enum oct_view { OCT_VIEW_GRAPH, OCT_VIEW_TREE } oct_view;

/* Prints to stdout. A recipe: what its model becomes, nothing observed yet. A checkpoint, or a run
 * folder's newest: with the values in it; one of the float phase is prepared first for the graph,
 * and is a float tree. data_path: where the data set lies, which says what the inputs are; NULL: as
 * the recipe says. */
oct_status oct_print_view(const char *path, oct_view view, const char *data_path,
                          bool json) OCT_NODISCARD;
