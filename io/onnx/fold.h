/* Folding: what does not depend on the input is computed when the file is read.
 *
 * Exporters write shape arithmetic into the network (Shape, Gather, Concat, Reshape ...), because they do not
 * know the size of the image. Here it is known, all but the batch size N. So the network is walked once with numbers of
 * the form fixed + times N (number.c): a dimension is a constant or a multiple of N, and anything else that is needed is
 * reported.
 */
#pragma once

#include "io/onnx/graph.h"

/* Sets the first input's shape to (batch, c, h, w) where it is an image, or else holds its numbers against h, w
 * and c (0: as the file declares it); folds constants and shape arithmetic, infers all shapes, drops Identity,
 * Dropout of inference and nodes that nothing needs. Afterwards only nodes on activations are left, and each
 * value of theirs is known. OCT_DATA with a sentence for each problem, all at once; then the graph is still
 * whole, and known says which shapes were found. */
oct_status oct_onnx_fold(oct_onnx_graph *g, int64_t h, int64_t w, int64_t c);
