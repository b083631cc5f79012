/* The graph of one forward: run the module once on an example and record leaf-module calls, ops
 * called outside of leaf modules (functional ops), and which tensor went where. */
#pragma once

#include "core/nn/module.h"

typedef struct oct_trace_node {
    oct_module *module; /* leaf module, or NULL for a functional op */
    const char *op;     /* module type's name, or the op's */
    char *path;         /* the module's path; for an op the path of the module that called it */
    int64_t input[OCT_MAX_INPUTS]; /* value numbers */
    int num_inputs;
    int64_t output;
} oct_trace_node;

typedef struct oct_trace_value {
    oct_dtype dtype;
    oct_shape shape;  /* with the example's batch of 1 */
    int64_t producer; /* node, or -1 for the model's input */
    int64_t users;    /* nodes that read it; the model's output counts as one */
} oct_trace_value;

struct oct_trace {
    oct_trace_node *nodes;
    size_t num_nodes, cap_nodes;
    oct_trace_value *values;
    size_t num_values, cap_values;
    int64_t input, output; /* value numbers */
};

/* Runs root in eval mode (restored afterwards) on zeros of shape (1, H, W, C) and records. */
oct_status oct_trace_run(oct_trace *trace, oct_module *root, oct_shape input) OCT_NODISCARD;
void oct_trace_free(oct_trace *trace);

/* The one node that reads `value`, or NULL if there are several, none, or it is the output. */
oct_trace_node *oct_trace_only_user(const oct_trace *trace, int64_t value);

/* For tape.c and module.c while cx->trace is set. */
void oct_trace_add(oct_context *cx, oct_module *module, const char *op, oct_tensor *const *inputs,
                   int n, oct_tensor *output);
