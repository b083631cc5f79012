/* The context of one forward and backward: sticky status, memory of the step, tape, leaves, ranks.
 *
 * In a module's forward, ops take the context and return a tensor; the first error sticks in
 * cx->status, after which every op returns NULL at once, and every op accepts NULL inputs by
 * returning NULL. So model code has no error plumbing; whoever started the forward asks
 * oct_context_status once.
 *
 * Backward: nodes run in reverse order of recording. A node's backward reads its output's gradient
 * (node->output->grad), computes the gradient of each input that needs one into a pool buffer and
 * hands it over with oct_give_grad, and adds parameter gradients leaf by leaf through
 * oct_leaf_grads_begin/end. After a node's backward its output's gradient is given back.
 */
#pragma once

#include "core/autograd/call.h"
#include "core/base/arena.h"
#include "core/base/collective.h"
#include "core/base/leaves.h"
#include "core/kernel/float_kernel.h"

typedef struct oct_param oct_param;
typedef struct oct_trace oct_trace;
typedef struct oct_lifetimes oct_lifetimes;

struct oct_node {
    const char *op; /* name of what was computed, for messages and traces */
    /* NULL for ops without a backward (then no input needs a gradient). */
    void (*backward)(oct_context *cx, oct_node *node);
    oct_tensor *input[OCT_MAX_INPUTS];
    int num_inputs;
    oct_tensor *output;
    oct_module *module; /* whose call made it, or NULL */
    void *saved;        /* the op's own, from the arena */
    size_t mark;        /* of the arena before it */
    oct_node *previous;
};

struct oct_context {
    oct_status status; /* sticky */
    oct_arena *arena;
    oct_leaves leaves;            /* of this step; leaves.local covers the batch at hand */
    const oct_collective *group;  /* never NULL */
    bool record;                  /* keep a tape */
    bool release_on_backward;     /* backward gives back what the forward made while it goes, so */
                                  /* tensors that ops made may not be read after it; set by who */
                                  /* begins steps, kept over them */
    oct_numerics numerics;        /* of the backward of quantized layers */
    oct_node *last;               /* tape */
    oct_trace *trace;             /* records the graph while not NULL */
    oct_lifetimes *lifetimes;     /* without a tape: frees what is read no more; or NULL */
    oct_op_args args;             /* of the functional op at hand, for the trace */
    oct_interceptor *interceptor; /* of the prepared root that runs, or NULL */
    int atomic_depth;             /* > 0 inside a leaf module: what it calls is no call site */
    oct_module *module;           /* innermost module being called; names the place in messages */
    oct_module *hook;             /* whose hooks run, or NULL: what they call are call sites too */
    oct_param *open;              /* parameters whose leaf gradients await their fold */
    int64_t max_numel;            /* that a new tensor may have; 0: as many as there is room for */
};

oct_status oct_context_create(oct_context **cx, const oct_collective *group) OCT_NODISCARD;
void oct_context_destroy(oct_context **cx);

/* Starts a step: clears tape and status, resets the arena, sets the leaves. Tensors of the last
 * step are gone, and all borrowed buffers go back, gradients of inputs among them. record: a backward
 * will follow. */
void oct_context_begin(oct_context *cx, oct_leaves leaves, bool record);

/* The sticky status; its record is the thread's. */
oct_status oct_context_status(const oct_context *cx);

/* Fails the context with a sentence (prefixed by the path of the module being called); returns
 * NULL, so `return oct_context_fail(cx, ...)`. Keeps the first failure. */
void *oct_context_fail(oct_context *cx, oct_status code, const char *format, ...) OCT_PRINTF(3, 4);

/* The same for a failure that a call has already recorded; OCT_OK changes nothing. Returns NULL. */
void *oct_context_adopt(oct_context *cx, oct_status status);

/* True when the context is well and all n inputs are there: the first line of every op. */
bool oct_inputs_ok(oct_context *cx, oct_tensor *const *inputs, int n);
/* The same for who hands the inputs on and reads none of them itself: they may be freed already. */
bool oct_inputs_present(const oct_context *cx, oct_tensor *const *inputs, int n);

/* A tensor in the arena, data not initialised. NULL on failure (sticky). */
oct_tensor *oct_tensor_new(oct_context *cx, oct_dtype dtype, oct_shape shape);
/* A tensor over memory of the caller. */
oct_tensor *oct_tensor_view(oct_context *cx, oct_dtype dtype, oct_shape shape, void *data);
void *oct_save(oct_context *cx, size_t bytes); /* arena memory for node->saved; NULL sticky */

/* Records y as made by op from inputs. Sets y->needs_grad if any input needs one or `params` says
 * that parameters do. Returns the node to fill in saved, or NULL when no backward will come. Also
 * adds a function node to the running trace when outside of leaf modules. */
oct_node *oct_record(oct_context *cx, const char *op, void (*backward)(oct_context *, oct_node *),
                     oct_tensor *const *inputs, int n, bool params, oct_tensor *y);

/* The same of what no gradient flows through: a node of the trace, none of the tape. */
void oct_record_no_grad(oct_context *cx, const char *op, oct_tensor *const *inputs, int n,
                        oct_tensor *y);

/* Scratch for the time of one op. Sticky failure and NULL when there is no memory. */
void *oct_scratch(oct_context *cx, size_t bytes);
void oct_scratch_end(oct_context *cx, void *block);

/* A borrowed buffer for a gradient of t, not initialised, to be handed over. Sticky failure and NULL. */
float *oct_grad_new(oct_context *cx, const oct_tensor *t);
/* Hands over a borrowed buffer holding d loss / d x: becomes x's gradient, or is added to it and given
 * back. Does nothing but give it back when x needs none. */
void oct_give_grad(oct_context *cx, oct_tensor *x, float *grad);
/* The same of a sum a + b, whose gradient is that of both: one gets the buffer, one that has no gradient
 * yet where there is one; to the other it is added or copied. */
void oct_give_grad_to_both(oct_context *cx, oct_tensor *a, oct_tensor *b, float *grad);
/* x's gradient buffer to work into directly: the one it has, to be added to (*add), or a new one that
 * becomes x's gradient and is not initialised (not *add). NULL when x needs none or on failure. */
float *oct_grad_buffer(oct_context *cx, oct_tensor *x, bool *add);
/* Takes the output's gradient away from the node to change it in place. */
float *oct_take_grad(oct_tensor *y);

/* A parameter used by an op that records: counts its uses, so the last one in backward folds. */
void oct_param_used(oct_context *cx, oct_param *param);
/* Rows of leaf gradients (leaves.local x numel), zeroed at the first use of this backward; add to
 * row i what leaf i contributes, then end. The last end folds them into the parameter's parts. For
 * small parameters; large ones take the stream below. */
float *oct_leaf_grads_begin(oct_context *cx, oct_param *param);
void oct_leaf_grads_end(oct_context *cx, oct_param *param);

/* The same for a large parameter, without a row for each leaf. Leaves go by in twigs: of up to `leaves`
 * leaves, a subtree of the tree over leaves, whose sum is one row. Twigs go by in groups of consecutive
 * ones, as many as there are threads. After a group its rows are folded as far as the tree allows, so
 * only the subtrees that wait for their neighbour are kept (a row for each level at most). A parameter
 * with several uses in this step keeps the rows of all leaves instead, each a twig, because a leaf's
 * contributions are added before leaves are.
 *
 *     oct_leaf_stream stream;
 *     oct_leaf_stream_begin(cx, &stream, weight, leaves, turn);
 *     for (int64_t first = 0, end; oct_leaf_stream_next(cx, &stream, &first, &end);)
 *         parallel for twigs i in [first, end): write or add to oct_leaf_stream_group(cx, &stream, i).row
 *     oct_leaf_stream_end(cx, &stream);
 *
 * leaves: a power of two, oct_leaf_stream_leaves(cx, most) of the most that the op takes, so that all
 * threads have work. Rows are numel floats, to be added to (add) or fresh (not add): not initialised, and
 * to be written whole. A leaf contributes one float, rounded, to each element; what the tree makes of
 * these over the twig is written as 0 + it (-0 becomes 0) or added to what is there, this leaf's own or
 * the left neighbour's of the tree, as a join of their rows would; so neither twigs nor which rows are
 * fresh show in a result. turn: rows are in a layout of the op's own, of which `turn` makes the
 * parameter's once the sum is done (elementwise moves only; NULL: the parameter's own layout); every use
 * of a parameter in a step has the same one. next ends when the context has failed; end comes in any
 * case. */
typedef struct oct_leaf_layout {
    void (*turn)(const struct oct_leaf_layout *turn, const float *row, float *value);
    int64_t groups, depth, outs; /* for the function */
} oct_leaf_layout;

typedef struct oct_leaf_stream {
    oct_param *param;
    const oct_leaf_layout *turn;
    int64_t leaves;                /* of a twig, at most */
    int64_t num_leaf_groups;       /* of this rank */
    int64_t first, end;            /* twigs at hand */
    float *all;                    /* rows of all leaves, or NULL: */
    struct oct_leaf_pending *some; /* those at hand and the sums that wait */
} oct_leaf_stream;

typedef struct oct_leaf_group {
    int64_t first, end; /* local leaves */
    float *row;
    bool add;
} oct_leaf_group;

int64_t oct_leaf_stream_leaves(const oct_context *cx, int64_t most);
void oct_leaf_stream_begin(oct_context *cx, oct_leaf_stream *stream, oct_param *param,
                           int64_t leaves, const oct_leaf_layout *turn);
bool oct_leaf_stream_next(oct_context *cx, oct_leaf_stream *stream, int64_t *first, int64_t *end);
oct_leaf_group oct_leaf_stream_group(const oct_context *cx, const oct_leaf_stream *stream,
                                     int64_t twig);
void oct_leaf_stream_end(oct_context *cx, oct_leaf_stream *stream);

/* total (n) = the sum over all leaves of all ranks of rows (leaves.local, n), which are folded in
 * place. False when the context has failed. A collective call. */
bool oct_sum_over_ranks(oct_context *cx, double *rows, int64_t n, double *total);

/* Runs the tape backward from `loss`, whose gradient has been given (oct_give_grad; an op that
 * needs none given runs anyway). The tape is spent afterwards. Gradients are given back,
 * except those of tensors that no op made (inputs with needs_grad set): they stay until the next
 * oct_context_begin. Every parameter must be bound (oct_params_bind). */
oct_status oct_backward(oct_context *cx, oct_tensor *loss) OCT_NODISCARD;
