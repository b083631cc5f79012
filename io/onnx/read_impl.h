/* What the files of the reader share: they alone see the library's structs. */
#pragma once

#include "io/onnx/external.h"
#include "io/onnx/graph.h"

#include <onnx/onnx.pb-c.h>

/* read_tensor.c */

/* Notes where a tensor's external data lie, if it has any. */
oct_status oct_onnx_note_external(oct_external *x, const Onnx__TensorProto *t) OCT_NODISCARD;
/* Sets dtype, shape and data of a value; sizes are held against the bytes that are there. Its name stays. */
oct_status oct_onnx_take_tensor(const oct_external *x, const Onnx__TensorProto *t,
                                oct_onnx_value *v) OCT_NODISCARD;
/* What an element of this type becomes; OCT_DATA with `name` for those that have no counterpart. */
oct_status oct_onnx_element_type(const char *path, const char *name, int32_t data_type,
                                 oct_dtype *dtype) OCT_NODISCARD;

/* read_node.c */

/* Sets type, domain, name and attributes, not inputs and outputs. */
oct_status oct_onnx_take_node(const oct_external *x, const Onnx__NodeProto *p,
                              oct_onnx_node *n) OCT_NODISCARD;
/* Takes the tensor of a Constant node. */
oct_status oct_onnx_take_constant(const oct_external *x, const Onnx__NodeProto *p,
                                  oct_onnx_value *v) OCT_NODISCARD;

/* order.c */

/* Puts each node behind those that it needs; OCT_DATA when some need each other. */
oct_status oct_onnx_sort_nodes(oct_onnx_graph *g) OCT_NODISCARD;
