/* The tape is what ops record in a forward, and what the backward runs along.
 *
 * Nodes run in reverse order of recording. A node's backward reads its output's gradient
 * (node->output->grad), computes the gradient of each input that needs one into a borrowed buffer and
 * hands it over with oct_add_grad, and adds parameter gradients leaf by leaf (leaf_grads.h). After a
 * node's backward its output's gradient is given back.
 */
#pragma once

#include "core/autograd/context.h"

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
 *     if (oct_call_site(cx, "relu", OCT_NO_ARGS, &x, 1, &y)) return y;
 * True when the interceptor answered. Also keeps the arguments for the trace. */
bool oct_call_site(oct_context *cx, const char *op, const oct_op_args *args, oct_tensor *const *x,
                   int n, oct_tensor **y);

/* Records y as made by op from inputs. Sets y->needs_grad if any input needs one or `params` says
 * that parameters do. Returns the node to fill in saved, or NULL when no backward will come. Also
 * adds a function node to the running trace when outside of atomic modules. */
oct_node *oct_record(oct_context *cx, const char *op, void (*backward)(oct_context *, oct_node *),
                     oct_tensor *const *inputs, int n, bool params, oct_tensor *y);

/* Records an op that no gradient flows through: a node of the trace, none of the tape. */
void oct_record_no_grad(oct_context *cx, const char *op, oct_tensor *const *inputs, int n,
                        oct_tensor *y);

/* Borrows a buffer for a gradient of t, not initialised, to be handed over; NULL on failure
 * (sticky). */
float *oct_grad_new(oct_context *cx, const oct_tensor *t);
/* Hands over a borrowed buffer holding d loss / d x: becomes x's gradient, or is added to it and given
 * back. Does nothing but give it back when x needs none. */
void oct_add_grad(oct_context *cx, oct_tensor *x, float *grad);
/* Hands over the gradient of a sum a + b, which is that of both: one gets the buffer, one that has no
 * gradient yet where there is one; to the other it is added or copied. */
void oct_add_grad_to_both(oct_context *cx, oct_tensor *a, oct_tensor *b, float *grad);
/* Returns x's gradient buffer to work into directly: the one it has, to be added to (*add), or a
 * new one that becomes x's gradient and is not initialised (not *add). NULL when x needs none or on
 * failure. */
float *oct_grad_buffer(oct_context *cx, oct_tensor *x, bool *add);
/* Takes the output's gradient away from the node to change it in place. */
float *oct_detach_grad(oct_tensor *y);

/* Runs the tape backward from `loss`, whose gradient has been given (oct_add_grad; an op that
 * needs none given runs anyway). The tape is used up afterwards. Gradients are given back,
 * except those of tensors that no op made (inputs with needs_grad set): they stay until the next
 * oct_context_begin. Every parameter must be bound (oct_params_bind). */
oct_status oct_backward(oct_context *cx, oct_tensor *loss) OCT_NODISCARD;
