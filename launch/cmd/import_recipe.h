/* A recipe begins with what an ONNX file says of its network. */
#pragma once

#include "core/base/text.h"
#include "io/onnx/graph.h"

/* Adds the recipe for a folded network of the file `path`. model: the file that it will name. untrained: its batch
 * norms have seen no data. */
oct_status oct_import_recipe(const oct_onnx_graph *graph, const char *path, const char *model,
                             bool untrained, oct_text *text) OCT_NODISCARD;
