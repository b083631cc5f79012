/* Operations: each file of this folder defines one, with its backward beside its forward. Those that networks call are
 * in octet/nn.h, with what they take. Here are those that Octet itself calls.
 *
 * All take the context and return a tensor of the step's arena, or NULL with the context failed
 * (wrong shapes, a NULL input). Dtype is f32 except where said; max_pool, dropout and what moves values take codes too.
 * Backwards are exact derivatives, sums over samples leaf by leaf.
 */
#pragma once

#include "core/autograd/tape.h"
#include "core/op/loss.h"

/* Elementwise functions with a derivative have one definition each in elementwise.c and one line each in
 * elementwise_list.def. From that follow the op, the module, and on quantized values the table of
 * 256 or 65536 entries. Values are computed in double and rounded once. */
typedef struct oct_elementwise {
    const char *name;
    int num_args;
    oct_elementwise_args default_args;
    bool non_negative; /* its values are >= 0 */
    double (*value)(double x, const oct_elementwise_args *args);
    double (*slope)(double x, const oct_elementwise_args *args);
} oct_elementwise;

#define OCT_ELEMENTWISE(name, args) extern const oct_elementwise oct_elementwise_##name;
#include "core/op/elementwise_list.def"
#undef OCT_ELEMENTWISE

/* The parameters of such an op and of its module after the first ones, by their number. */
#define OCT_ELEMENTWISE_ARGS_0
#define OCT_ELEMENTWISE_ARGS_1 , double first
#define OCT_ELEMENTWISE_ARGS_2 , double first, double second

/* y = f(x). args: the first f->num_args members; NULL: the defaults. f32. */
oct_tensor *oct_elementwise_apply(oct_context *cx, const oct_elementwise *f,
                                  const oct_elementwise_args *args, oct_tensor *x);

/* Functions of two tensors, element by element, have their loops in binary.c; shapes that repeat
 * (core/tensor/broadcast.h), the call site, the record and the sums of gradients are one for all. */
typedef struct oct_binary {
    const char *name;
    void (*value)(int64_t n, const float *a, const float *b, float *restrict y);
    /* The gradient of an input in y, which holds the output's; NULL: it is the output's. */
    void (*grad[2])(int64_t n, const float *a, const float *b, float *restrict y);
} oct_binary;

extern const oct_binary oct_binary_add, oct_binary_sub, oct_binary_mul, oct_binary_div;

/* y = f(a, b), value by value; the smaller input repeats along channels or positions. f32. */
oct_tensor *oct_binary_apply(oct_context *cx, const oct_binary *f, oct_tensor *a, oct_tensor *b);

/* Hands the gradients of both inputs over; values[i] are those of node->input[i], which may hold codes; NULL of a sum
 * or a difference, whose gradients need none. grad: the output's, borrowed, which is used up. */
void oct_binary_add_grads(oct_context *cx, const oct_binary *f, const oct_node *node,
                          const float *const values[2], float *grad);

/* Gives mean and 1/sigma of all channels in a forward by running values. */
void oct_bn_running(const oct_bn_args *args, int64_t channels, float *mean, float *inv_std);
/* Returns a new tensor over the data of x in another shape, which `op` has checked, and records `op` on the tape. */
oct_tensor *oct_view_as(oct_context *cx, const char *op, oct_tensor *x, oct_shape shape);
/* The backward of a node that padded its input like this: values outside of it get no gradient. */
void oct_pad_add_grad(oct_context *cx, oct_node *node, const oct_pad_shape *shape);
/* The backward of PReLU for values that are not those of its input tensor: codes. Gives the weight and x their gradients.
 * values: what x holds as real numbers; grad: that of the output, which is taken over. Borrowed memory (oct_scratch) stays
 * the caller's. */
void oct_prelu_add_grads(oct_context *cx, oct_param *weight, oct_tensor *x, const float *values,
                         float *grad);
