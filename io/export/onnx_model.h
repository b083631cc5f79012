/* Inputs and outputs of ONNX models, of float networks and of int8 models. */
#pragma once

#include "io/export/format.h"
#include "io/export/onnx_layer.h"

/* Declares input `number` of a model and returns it as values that the network takes. */
oct_to_onnx_ref oct_to_onnx_model_input(oct_to_onnx_writer *w, const oct_export *job, int number,
                                        oct_shape shape);

/* Declares the output of a model. */
void oct_to_onnx_model_output(oct_to_onnx_writer *w, const oct_export *job, oct_to_onnx_ref y,
                              oct_dtype dtype);
