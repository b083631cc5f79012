/* `octet inspect --graph` and `--tree` show the prepared model. */
#pragma once

#include "launch/base/args.h"

typedef enum oct_view { OCT_VIEW_GRAPH, OCT_VIEW_DOT, OCT_VIEW_TREE } oct_view;

/* Prints a view of a model, the first word. Of a recipe: its prepared model, nothing observed yet. Of a checkpoint, or a
 * run folder's newest: the same with the values in it; one of the float phase is prepared first for the
 * graph, and is a float tree. DOT is the graph in the language of
 * Graphviz; of an int8 model, its program. data_path: where the data set is, which says what the inputs are; NULL: as
 * the recipe says. */
oct_status oct_print_view(const oct_args *args, oct_view view, const char *data_path);
