/* How a prepared graph answers: the functions of its interceptor (core/autograd/call.h). */
#pragma once

#include "quant/pass/graph/graph.h"

oct_tensor *oct_graph_forward(oct_interceptor *self, oct_context *cx, oct_module *root,
                              oct_tensor *const *x, int n);
bool oct_graph_call(oct_interceptor *self, oct_context *cx, oct_module *module, const char *op,
                    const oct_op_args *args, oct_tensor *const *x, int n, oct_tensor **y);
void oct_graph_block_mark(oct_interceptor *self, oct_context *cx, oct_module *module,
                          const char *name);
