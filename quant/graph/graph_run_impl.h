/* What the parts of a running graph share: the forward's state, and how one call is handled. */
#pragma once

#include "quant/graph/graph.h"

enum { OCT_NO_BLOCK = -1, OCT_UNKNOWN_BLOCK = -2 };

/* A value in the other kind, codes or float, and the tensor that it was made from. */
typedef struct oct_converted {
    const oct_tensor *from;
    oct_tensor *to;
} oct_converted;

struct oct_graph_run {
    oct_converted *converted; /* of each value */
    oct_tensor **tensors;     /* symbolic: of each value */
    /* Of each node that is untouched or a hook's: it was called, in a block in this run of it. */
    bool *visited;
    size_t next;       /* touched nodes before it have been called; those of blocks do not count */
    int block;         /* that runs: its number, OCT_NO_BLOCK or OCT_UNKNOWN_BLOCK */
    size_t block_next; /* the same within its run */
};

/* graph_call.c */

oct_mode oct_run_mode(const oct_module *module);
/* The mode in which a node is called: parts of a model may be in another one than the whole, and
 * their own forwards go by that. */
oct_mode oct_run_mode_at(const oct_graph *graph, const oct_graph_node *node);
/* Whether a node is called in the mode that its caller is in. */
bool oct_run_is_due(const oct_graph *graph, const oct_graph_node *node);
bool oct_run_is_codes(const oct_graph *graph, const oct_tensor *x);
/* Whether tensor x may be passed where `value` was recorded, to a node of this dynamic block (or of none). */
bool oct_run_fits(const oct_graph *graph, int block, int64_t value, const oct_tensor *x);
/* The next node of the recorded order that is not UNTOUCHED, so the forward must call it now: of the dynamic block that
 * runs, or outside of all blocks; or NULL. */
const oct_graph_node *oct_run_expected(const oct_graph *graph);
/* Fails the context with a sentence that names its place itself; control_flow: the remedy is a
 * dynamic block. Returns NULL. */
void *oct_run_refuse(oct_context *cx, bool control_flow, const char *format, ...) OCT_PRINTF(3, 4);

void oct_run_mark_visited(const oct_graph *graph, const oct_graph_node *node);
/* Runs a module that no call names, with its hooks. */
oct_tensor *oct_run_with_hooks(oct_context *cx, oct_module *module, oct_tensor **x, int n);
/* Returns x as codes or as float, as `wants` says: x itself, or what the QuantStub or DeQuantStub of its value makes of
 * it, once in a forward. recorded: the value that was recorded in the place of x. */
oct_tensor *oct_run_adapt(oct_context *cx, const oct_graph *graph, oct_wants wants,
                          int64_t recorded, oct_tensor *x);
/* Returns a further tensor with the data of x, to which its gradient goes on: each tensor has one graph_value. */
oct_tensor *oct_run_view(oct_context *cx, oct_tensor *x);
/* What oct_interceptor.call is for a prepared graph (core/autograd/context.h): true when it has computed *y or failed. */
bool oct_run_call(oct_interceptor *self, oct_context *cx, oct_module *module, const char *op,
                  const oct_op_args *args, oct_tensor *const *x, int n, oct_tensor **y);
