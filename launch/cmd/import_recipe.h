/* A recipe begins with what an ONNX file says of its network. */
#pragma once

#include "core/base/text.h"
#include "io/onnx/graph.h"

/* What is begun from the file or folder at a path is named after it, in letters that a path of a run folder may have. */
enum { OCT_BEGUN_NAME = 64 };
void oct_begun_name(const char *path, char name[OCT_BEGUN_NAME]);
/* Adds a word of the user's between quotes of YAML. */
oct_status oct_begun_quoted(oct_text *text, const char *word) OCT_NODISCARD;

/* Adds the recipe for a folded network of the file `path`. model: the file that it will name. untrained: its batch
 * norms have seen no data. */
oct_status oct_import_recipe(const oct_onnx_graph *graph, const char *path, const char *model,
                             bool untrained, oct_text *text) OCT_NODISCARD;
