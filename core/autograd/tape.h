/* The tape is what ops record in a forward, and what the backward runs along.
 *
 * Nodes run in reverse order of recording. A node's backward reads its output's gradient
 * (node->output->grad), computes the gradient of each input that needs one into a borrowed buffer and
 * hands it over with oct_add_grad, and adds parameter gradients leaf by leaf (below). After a
 * node's backward its output's gradient is given back.
 */
#pragma once

#include "core/autograd/context.h"
#include "core/nn/param.h"

struct oct_node {
    const char *op; /* name of what was computed, for messages and traces */
    /* NULL for ops without a backward (then no input needs a gradient). */
    void (*backward)(oct_context *cx, oct_node *node);
    oct_tensor *input[OCT_MAX_INPUTS];
    int num_inputs;
    oct_tensor *output;
    oct_module *module; /* whose call made it, or NULL */
    void *saved;        /* the op's own, from the arena */
    size_t arena_mark;  /* before it */
    oct_node *previous;
};

/* Begins every op that has a module form (core/nn/module_list.def):
 *     oct_tensor *y;
 *     if (oct_op_intercepted(cx, "relu", OCT_NO_ARGS, &x, 1, &y)) return y;
 * True when the interceptor of a prepared model has computed *y in place of the op, or failed. Also keeps the
 * arguments for the trace. */
bool oct_op_intercepted(oct_context *cx, const char *op, const oct_op_args *args,
                        oct_tensor *const *x, int n, oct_tensor **y);

/* Records an op that no gradient flows through: a node of the trace, none of the tape. */
void oct_record_no_grad(oct_context *cx, const char *op, oct_tensor *const *inputs, int n,
                        oct_tensor *y);

/* sum += x */
void oct_accumulate(int64_t n, const float *x, float *restrict sum);
/* Returns x's gradient buffer to work into directly: the one it has, to be added to (*add), or a
 * new one that becomes x's gradient and is not initialised (not *add). NULL when x needs none or on
 * failure. */
float *oct_grad_buffer(oct_context *cx, oct_tensor *x, bool *add);

/* Runs the tape backward from `loss`, whose gradient has been given (oct_add_grad; an op that
 * needs none given runs anyway). The tape is used up afterwards. Gradients are given back,
 * except those of tensors that no op made (inputs with needs_grad set): they stay until the next
 * oct_context_begin. Every parameter must be bound (oct_params_bind). */
oct_status oct_backward(oct_context *cx, oct_tensor *loss);

/* Parameter gradients and other sums over the samples of a step are taken leaf by leaf. For small parameters a backward
 * adds to one row a leaf; large parameters take the streams of oct_leaf_stream. */

/* True when gradients may be added to it now; else the context has failed. */
bool oct_param_needs_grads(oct_context *cx, const oct_param *param);

/* Adds a leaf's own vector to the digest of the context's watch, which that leaf is under. */
void oct_leaf_watch_add(oct_context *cx, const void *vector, size_t bytes);

/* True where the forward has the whole batch. On a part of it (calibration runs part by part) the context fails, and
 * cx->part says that a sum over the batch was asked for. */
bool oct_batch_is_whole(oct_context *cx);
/* total (n) = the sum over all leaves of all ranks of rows (leaves.local, n), which are folded in
 * place. False when the context has failed, as it does for a part of a batch. A collective call. */
bool oct_sum_over_ranks(oct_context *cx, double *rows, int64_t n, double *total);

/* Gradients of large parameters are summed without a row for each leaf.
 *
 * Leaves are taken in leaf groups: up to `leaves` leaves, a subtree of the tree over leaves, whose sum is one
 * row. Groups are taken in rounds of consecutive ones, as many as there are threads. After a round its rows
 * are folded as far as the tree allows, so only the subtrees that wait for their neighbour are kept (a
 * row for each level at most). A parameter with several uses in this step keeps the rows of all leaves
 * instead, each a group, because a leaf's contributions are added before leaves are.
 *
 *     oct_leaf_stream stream;
 *     oct_leaf_stream_begin(cx, &stream, weight, leaves, layout);
 *     for (int64_t first = 0, end; oct_leaf_stream_next(cx, &stream, &first, &end);)
 *         parallel for groups i in [first, end): write or add to oct_leaf_stream_group(cx, &stream, i).row
 *     oct_leaf_stream_end(cx, &stream);
 *
 * leaves: a power of two, oct_leaf_stream_leaves(cx, most) of the most that the op takes, so that all
 * threads have work. Rows are numel floats, to be added to (add) or fresh (not add): not initialised, and
 * to be written whole. A leaf contributes one float, rounded, to each element; what the tree makes of
 * these over the group is written as 0 + it (-0 becomes 0) or added to what is there, this leaf's own or
 * the left neighbour's of the tree, as a merge of their rows would; so neither groups nor which rows are
 * fresh show in a result. layout: that of the rows; NULL: the parameter's own. Every use of a
 * parameter in a step has the same one. next ends when the context has failed; end comes in any case.
 */
typedef struct oct_leaf_stream {
    oct_param *param;
    const oct_leaf_layout *layout;
    int64_t leaves;                   /* of a group, at most */
    int64_t num_groups;               /* of this rank */
    bool apart;                       /* each group has a row of its own: a leaf is watched */
    int64_t first, end;               /* groups at hand */
    float *leaf_rows;                 /* a row for each leaf, or NULL: */
    struct oct_leaf_pending *pending; /* those at hand and the sums that wait */
} oct_leaf_stream;

typedef struct oct_leaf_group {
    int64_t first, end; /* local leaves */
    float *row;
    bool add;
} oct_leaf_group;

/* Returns the leaves of a group: `most`, halved until each thread has a group; 1 while a leaf is watched. */
int64_t oct_leaf_stream_leaves(const oct_context *cx, int64_t most);
/* Begins the sum of a parameter's gradient over this rank's leaves, in groups of up to `leaves` of them. */
void oct_leaf_stream_begin(oct_context *cx, oct_leaf_stream *stream, oct_param *param,
                           int64_t leaves, const oct_leaf_layout *layout);
/* Sums the rows of the last round into the tree, and gives the next groups, [first, end); false: all are done, or the
 * context has failed. */
bool oct_leaf_stream_next(oct_context *cx, oct_leaf_stream *stream, int64_t *first, int64_t *end);
/* Returns the leaves of a group of this round, and the row that their gradients are to be written or added to. */
oct_leaf_group oct_leaf_stream_group(const oct_context *cx, const oct_leaf_stream *stream,
                                     int64_t group);
void oct_leaf_stream_end(oct_context *cx, oct_leaf_stream *stream);
