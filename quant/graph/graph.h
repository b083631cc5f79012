/* The prepared graph: what runs at each call site of a model, in the methods that know the graph.
 *
 * It is between the user's forward and its operations (core/autograd/context.h). In `jit` the user's
 * forward runs, and its node handles each call site that the plan touches; in `symbolic` the nodes run
 * one after another and the forward is not called. Both execute the same nodes on the same modules, so
 * they give the same bits.
 *
 * Values are numbered as in the trace that the graph comes from. A value is made either as codes or as
 * float; where a node wants the other kind, the value's `quantize` or `dequantize` module makes it, once
 * a forward. The output of a node that was fused away is an ALIAS of its first input (oct_graph_resolve).
 *
 * A forward that leaves the recorded order, outside of dynamic blocks and of UNTOUCHED nodes, fails with
 * OCT_PREPARE naming the call site and what was expected; so does one that passes a value to another
 * user than the recorded one. What happens to float values between untouched operations is the
 * forward's own affair.
 *
 * What hooks call are nodes too, in no order: each is found again by the module whose hook it is, and a
 * call of a hook that was not recorded is the hook's own affair. A hook moves when its module is replaced.
 *
 * A forward that branches on training is two forwards, one in each mode, and the graph has the nodes of
 * both (graph_modes.c): what both call is one node, whose inputs may be others in each mode; what only
 * one of them calls is expected in that mode only. The mode is that of the container which makes the
 * call; in symbolic, the root's.
 *
 * All runs of a module's dynamic block are one: its nodes are those of its first run in the trace, and
 * it may run at any time and any number of times. What comes into a run from outside of it, and what is
 * read of it afterwards, is whatever the forward passes.
 */
#pragma once

#include "core/graph/trace.h"
#include "quant/module/quant_modules.h"

typedef enum oct_node_action {
    OCT_NODE_UNTOUCHED, /* stays float: runs as the forward has it, in any order */
    OCT_NODE_RUN,       /* `module` runs */
    OCT_NODE_ALIAS,     /* fused away: its output is its input 0 */
} oct_node_action;

typedef enum oct_mode { OCT_MODE_EVALUATION, OCT_MODE_TRAINING, OCT_MODES } oct_mode;

typedef enum oct_wants { OCT_WANTS_ANY, OCT_WANTS_FLOAT, OCT_WANTS_CODES } oct_wants;

typedef struct oct_graph_node {
    oct_node_action action;
    oct_module *called; /* atomic module that the forward calls here; NULL: a functional op */
    char *op;           /* the called module's type or the op, as first traced */
    char *path;         /* of the called module, or of the caller of the op */
    oct_module
        *caller;      /* container that makes the call, or that holds the module whose hook does */
    oct_module *hook; /* module whose hook makes the call; NULL: a forward */
    int64_t given[OCT_MODES]; /* of a called module: the value that its pre hooks get; or -1 */
    oct_op_args args;
    oct_module *module; /* RUN: borrowed from the module tree; UNTOUCHED: as called */
    bool in[OCT_MODES]; /* the modes whose forward makes the call */
    int num_inputs;
    /* Values as the forward passes them in each mode; a mode that it is not in has those of the other. */
    int64_t called_input[OCT_MODES][OCT_MAX_INPUTS];
    /* Input i of `module` is what the forward passes as operand[i]: they are swapped in an add that was
     * fused with its second operand. */
    int operand[OCT_MAX_INPUTS];
    oct_wants wants; /* of all its inputs */
    int64_t output;
    int64_t runs_at; /* the node that computes it: itself, or the one that it was fused into */
    int block;       /* number of its dynamic block, or -1 */
    char *fusion;    /* "conv_bn_relu" on the node that runs a fused module; NULL otherwise */
    char *note;      /* for the check report: why it stays float, what was moved; NULL: nothing */
    char *decider;   /* for it too: the setter that gave it its qconfig; NULL: none did */
} oct_graph_node;

typedef struct oct_graph_value {
    oct_shape shape;    /* with a batch of 1 */
    oct_dtype dtype;    /* as traced */
    int64_t producer;   /* node, or -1: an input of the model */
    int64_t alias;      /* the value that this one is when its node is an ALIAS; otherwise itself */
    bool codes;         /* it is made as codes */
    oct_fake_quant *fq; /* the one quantizer of its codes, however they are made; or NULL */
    oct_module *quantize;   /* generated QuantStub, when made as float and wanted as codes */
    oct_module *dequantize; /* generated DeQuantStub, when made as codes and wanted as float */
} oct_graph_value;

/* A loop-carried use: what a later run of a block passes in place of the first run's called_input,
 * as a rule the result of the run before. */
typedef struct oct_graph_carried_use {
    int64_t node, value;
    int input;
} oct_graph_carried_use;

typedef struct oct_graph_block {
    oct_module *module;
    char *name;
    size_t begin, end; /* nodes */
} oct_graph_block;

#define OCT_METHOD_LIST(X)                                                                         \
    X(OCT_METHOD_JIT_STRIP, "jit_strip")                                                           \
    X(OCT_METHOD_JIT, "jit")                                                                       \
    X(OCT_METHOD_SYMBOLIC, "symbolic")                                                             \
    X(OCT_METHOD_EAGER, "eager")
typedef enum oct_prepare_method { OCT_METHOD_LIST(OCT_WORD_ID) OCT_METHODS } oct_prepare_method;
extern const oct_registry oct_prepare_method_table;
const char *oct_method_name(oct_prepare_method method); /* "jit_strip" */

typedef struct oct_graph {
    oct_interceptor interceptor; /* first: the root's; NULL functions for eager */
    oct_module *root;
    oct_prepare_method method;
    const oct_target *target;
    oct_graph_node *nodes;
    size_t num_nodes;
    oct_graph_value *values;
    size_t num_values;
    oct_graph_block *blocks;
    size_t num_blocks;
    oct_graph_carried_use *carried;
    size_t num_carried, cap_carried;
    oct_trace_scope *scopes[OCT_MODES]; /* containers: for hooks in symbolic, and for the table */
    size_t num_scopes[OCT_MODES];
    int64_t inputs[OCT_MODEL_INPUTS]; /* those that only training has are the last */
    int num_inputs[OCT_MODES];
    int64_t output[OCT_MODES];
    oct_module ***slots; /* of generated modules, each allocated alone: children point there */
    size_t num_slots, cap_slots;
    struct oct_graph_run *run; /* the forward that runs, or NULL */
} oct_graph;

/* The graph of a prepared root; NULL when it is not prepared. Eager models have one too, for the
 * report and the target; it handles no calls. */
oct_graph *oct_graph_of(const oct_module *root);

/* The value that this one is an alias of, or itself. Aliases are followed at each question,
 * because an alias may become one of another value in its turn. */
int64_t oct_graph_resolve(const oct_graph *graph, int64_t value, oct_mode mode);
/* The value that input i of the node's module is in a mode. */
int64_t oct_graph_input(const oct_graph *graph, const oct_graph_node *node, int i, oct_mode mode);
/* The mode that a node is described in where one is enough: evaluation, if evaluation calls it. */
oct_mode oct_graph_mode_of(const oct_graph_node *node);
/* Whether the forward passes this value to the node in a mode. */
bool oct_graph_reads(const oct_graph_node *node, int64_t value, oct_mode mode);
/* The number of a dynamic block, or -1. */
int oct_graph_find_block(const oct_graph *graph, const oct_module *module, const char *name);
/* Whether the forward does other things in training than in evaluation. */
bool oct_graph_branches(const oct_graph *graph);

/* The name of a call site, or of what prepare puts there or asks a forward to do, as an argument of a message:
 * oct_graph_node_text(node).text. */
typedef struct oct_call_name {
    char text[640];
} oct_call_name;
/* A call site in a sentence: "layer1.conv", "the op 'add' in layer1", "the op 'add' in a hook of
 * conv1". op NULL: the call of the module at `path`. */
oct_call_name oct_call_text(const char *op, const char *path, bool hook);
oct_call_name oct_graph_node_text(const oct_graph_node *node);
/* Names what makes a value: a node, "the model's input", or "the model's input 1" of
 * several. */
oct_call_name oct_graph_producer_text(const oct_graph *graph, int64_t value);

/* Records what a model calls on the example, in both modes, as a graph to be prepared by this method. OCT_PREPARE naming
 * the call where two forwards differ outside of dynamic blocks. */
oct_status oct_graph_record(oct_graph **graph, oct_module *root, const oct_example *example,
                            oct_prepare_method method);
/* Makes the graph of a trace: all nodes UNTOUCHED, all values float, blocks merged to their first
 * run. Values keep their numbers; those of later runs are aliases of the first run's, which
 * nothing reads. OCT_PREPARE naming the block when its runs differ. The graph owns its memory. */
oct_status oct_graph_create(oct_graph **graph, const oct_trace *trace, oct_module *root);
/* Adds a use of a value that a dynamic block carries from one run to the next, unless it is known. */
oct_status oct_graph_add_carried_use(oct_graph *graph, oct_graph_carried_use use);
/* Merges the training forward's graph into `graph`, which is evaluation's, so that it describes both; neither has been
 * changed since it was created. *training is destroyed, also on failure. */
oct_status oct_graph_merge_modes(oct_graph *graph, oct_graph **training);
/* Frees a graph. One that is attached to its root (oct_graph_attach) is destroyed with that instead. */
void oct_graph_destroy(oct_graph **graph);
/* Makes `graph` the root's interceptor, to run by its method; the root then owns it. Attach before
 * oct_graph_add_module: the children added there point into the graph's slots, so the graph must be freed with the root,
 * after its children. */
void oct_graph_attach(oct_graph *graph, oct_module *root);

/* Adds *module (taken over, also on failure) below `parent` under a name that is not used there. */
oct_status oct_graph_add_module(oct_graph *graph, oct_module *parent, const char *name,
                                oct_module **module);

/* A value that is quantized, with its one quantizer. */
typedef struct oct_tensor_quantizer {
    int64_t value;
    const char *path; /* of the node that makes it; "input_0" for an input */
    oct_fake_quant *fq;
    bool shared; /* another value has this quantizer too */
} oct_tensor_quantizer;
/* Lists every value that is ever quantized and proves that none has two quantizers: OCT_DEFECT if
 * one has, or if a quantizer belongs to no tensor. */
oct_status oct_graph_quantizers(const oct_graph *graph, oct_tensor_quantizer **list, size_t *count);

/* Writes the graph as a table of opcode, name, target and args, with the rows of torch.fx's
 * print_tabular (placeholder, call_module, call_function, get_attr, output) and scope_end; one
 * table for each mode where the forward branches on training. */
oct_status oct_graph_table(const oct_graph *graph, oct_text *text);
