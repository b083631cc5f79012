/* One walk over a network with one batch size, and what two of them say together. */
#pragma once

#include "io/onnx/operator.h"

oct_status oct_onnx_pass_begin(oct_onnx_pass *p, oct_onnx_graph *g, int64_t batch) OCT_NODISCARD;
/* Finds every shape and computes every constant that it can. `reported`: a flag for each node whose problem is reported;
 * `first` is the walk with another batch size that went before, or NULL: constants that it found and that do not
 * come from the batch are not computed again. Problems are added to the record. */
oct_status oct_onnx_pass_run(oct_onnx_pass *p, bool *reported,
                             const oct_onnx_pass *first) OCT_NODISCARD;
void oct_onnx_pass_end(oct_onnx_pass *p);
/* Sets the graph's values from two walks: constants move there. Adds problems. */
oct_status oct_onnx_pass_merge(oct_onnx_graph *g, oct_onnx_pass *a, oct_onnx_pass *b) OCT_NODISCARD;
