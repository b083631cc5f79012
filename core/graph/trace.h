/* A trace is the graph of one forward: calls of atomic modules, ops called outside of them
 * (functional ops), and which tensor went where. What hooks call is part of it, but for the root's
 * own: they see what goes into the model and what comes out. */
#pragma once

#include "core/autograd/context.h"
#include "core/nn/module.h"

typedef struct oct_trace_node {
    oct_module *module; /* atomic module, or NULL for a functional op */
    const char *op;     /* module type's name, or the op's */
    oct_op_args args;   /* of the op, or of a module whose type has `args` */
    char *path;         /* the module's path; for an op the path of the module that called it */
    /* The container whose forward made the call, or that holds the module whose hook did; NULL: called from outside. */
    oct_module *caller;
    oct_module *hook; /* a hook of this module made the call; NULL: a forward */
    int64_t given;    /* of a module: what the caller passed, before its pre hooks; or -1 */
    int64_t input[OCT_MAX_INPUTS]; /* value numbers */
    int num_inputs;
    int64_t output;
    int64_t scope; /* innermost, or -1 */
} oct_trace_node;

typedef struct oct_trace_value {
    oct_dtype dtype;
    oct_qparams q;    /* of codes */
    oct_shape shape;  /* with the example's batch of 1 */
    int64_t producer; /* node, or -1 for an input of the model */
} oct_trace_value;

/* A scope is the call of a container, or a run of a dynamic block (name not NULL): what was called
 * meanwhile are the nodes [begin, end). Scopes are in order of their beginning. */
typedef struct oct_trace_scope {
    oct_module *module;
    char *name; /* of the block; NULL for a container */
    size_t begin, end;
    int64_t parent; /* scope, or -1 */
    /* Value numbers of a container's input 0, after its pre hooks (given: before them), and of its
     * output, before its hooks; -1 for a block. */
    int64_t input, given, output;
    oct_module *hook; /* as of a node */
} oct_trace_scope;

struct oct_trace {
    oct_trace_node *nodes;
    size_t num_nodes, cap_nodes;
    oct_trace_value *values;
    size_t num_values, cap_values;
    oct_trace_scope *scopes;
    size_t num_scopes, cap_scopes;
    bool training;                            /* hooks see their modules so */
    int64_t scope;                            /* open while tracing, or -1 */
    int64_t inputs[OCT_MODEL_INPUTS], output; /* value numbers */
    int num_inputs;
    void (*watch)(void *user, int64_t value, const oct_tensor *tensor); /* or NULL */
    void *user;
};

void oct_trace_free(oct_trace *trace);
/* Finds the nodes on whose results the output depends: what a hook computes for itself is not deployed. live: a
 * new array, to be freed by the caller. */
oct_status oct_trace_live(const oct_trace *trace, bool **live);

/* The tape and calls of modules use the rest while cx->trace is set. */

/* Adds a call site, whose arguments are those of cx->args; one without an op is an input of the model. */
void oct_trace_add(oct_context *cx, const oct_site *executed);
/* Opens a scope: of a container (its first input after pre hooks; given: before) or of the block of this name. */
void oct_trace_enter(oct_context *cx, oct_module *module, const char *block, oct_tensor *input,
                     const oct_tensor *given);
/* Closes the innermost scope: a block (is_block), or a container with this output; fails on the other kind. */
void oct_trace_leave(oct_context *cx, bool is_block, const oct_tensor *output);

/* trace_run.c
 *
 * An example is what a model is traced on: the shapes of its inputs, with any batch. Inputs that only
 * training has, such as the target of a loss that the forward computes, come after the others:
 *     oct_example example = *OCT_EXAMPLE(image, target);
 *     example.count = 1, example.training_count = 2; */
typedef struct oct_example {
    int count;
    int training_count; /* in training mode; 0: count */
    oct_shape shape[OCT_MODEL_INPUTS];
    const float *data[OCT_MODEL_INPUTS]; /* of one sample; NULL: zeros */
} oct_example;
#define OCT_EXAMPLE(...)                                                                           \
    (&(oct_example){.count = (int)(sizeof((oct_shape[]){__VA_ARGS__}) / sizeof(oct_shape)),        \
                    .shape = {__VA_ARGS__}})

/* Runs root in eval mode (restored afterwards) on zeros of these shapes with a batch of 1 and
 * records what is executed. */
oct_status oct_trace_run(oct_trace *trace, oct_module *root, const oct_example *example);
/* Records what training executes: containers, whose forwards may branch, are in training mode;
 * atomic modules stay in eval mode, so nothing is observed and no statistic moves. */
oct_status oct_trace_training(oct_trace *trace, oct_module *root, const oct_example *example);
/* Records as oct_trace_run, and shows each value as it is made, with its data. cx: where the model runs, whose memory the
 * next such call takes over; NULL: one of its own. */
typedef void (*oct_trace_watch_fn)(void *user, int64_t value, const oct_tensor *tensor);
oct_status oct_trace_watch(oct_trace *trace, oct_context *cx, oct_module *root,
                           const oct_example *example, oct_trace_watch_fn watch, void *user);
