/* Operators as folding knows them: what shape a node's outputs have, and, for constants, what they are. All stand in
 * operator_list.def; a function of either kind sees one node in one walk over the network.
 */
#pragma once

#include "io/onnx/graph.h"

/* The largest number of problems that are reported. */
enum { OCT_ONNX_PROBLEMS_MAX = 64 };

/* The walk over the network. */
typedef struct oct_onnx_pass {
    oct_onnx_graph *graph;
    int64_t bytes_left, work_left;              /* for constants, and element operations */
    const char *unknown[OCT_ONNX_PROBLEMS_MAX]; /* operators that are reported as unknown */
    int num_unknown;
} oct_onnx_pass;

typedef struct oct_onnx_call {
    oct_onnx_pass *pass;
    oct_onnx_node *node; /* its args are set by the shape function */
} oct_onnx_call;

/* The inputs that the operator needs are there; these and all others that are there are known (and, for evaluate,
 * constants). Both return OCT_DATA when they have reported a problem. */
typedef oct_status oct_onnx_function(oct_onnx_call *c);

typedef struct oct_onnx_operator {
    const char *type;
    int64_t since, until;        /* opsets */
    int inputs;                  /* that it needs; -1: one, and all that the node has */
    oct_onnx_function *shape;    /* sets dtype, ndim and dim of the outputs */
    oct_onnx_function *evaluate; /* sets data of output 0; NULL: is not computed here */
} oct_onnx_operator;

#define OCT_ONNX_OPERATOR(type, since, until, inputs, shape, evaluate)                             \
    oct_onnx_function oct_onnx_shape_##shape;
#include "io/onnx/operator_list.def"
#undef OCT_ONNX_OPERATOR
#define oct_onnx_evaluate_none NULL
oct_onnx_function oct_onnx_evaluate_binary, oct_onnx_evaluate_cast, oct_onnx_evaluate_concat,
    oct_onnx_evaluate_constant_of_shape, oct_onnx_evaluate_expand, oct_onnx_evaluate_gather,
    oct_onnx_evaluate_pad, oct_onnx_evaluate_range, oct_onnx_evaluate_reduce,
    oct_onnx_evaluate_same, oct_onnx_evaluate_scatter, oct_onnx_evaluate_shape,
    oct_onnx_evaluate_slice, oct_onnx_evaluate_split, oct_onnx_evaluate_tile,
    oct_onnx_evaluate_transpose, oct_onnx_evaluate_unary, oct_onnx_evaluate_variadic,
    oct_onnx_evaluate_where;

/* The operator of a type in an opset; NULL: there is none. */
const oct_onnx_operator *oct_onnx_operator_find(const char *type, int64_t opset);

/* call.c */

/* Input i; NULL when it is left out. */
const oct_onnx_value *oct_onnx_in(const oct_onnx_call *c, int i);
oct_onnx_value *oct_onnx_result(const oct_onnx_call *c, int i);
/* Adds a problem of a node: "net.onnx: node 'conv1' (Conv): its ...". Returns OCT_DATA. */
oct_status oct_onnx_node_problem(const oct_onnx_graph *g, const oct_onnx_node *n, const char *text);
/* The same of the called node; beyond OCT_ONNX_PROBLEMS_MAX problems one sentence says that there are more. */
oct_status oct_onnx_problem(const oct_onnx_call *c, const char *format, ...) OCT_PRINTF(2, 3);

/* Sets result i to a type and the dimensions of `shape`. Returns OCT_OK: a shape function may end with it. */
oct_status oct_onnx_declare(oct_onnx_call *c, int i, oct_dtype dtype, const oct_onnx_value *shape);
/* Checks that input i has `least` to `most` dimensions. */
oct_status oct_onnx_need_ndim(const oct_onnx_call *c, int i, int least, int most);
/* Allocates the elements of result i, all 0, and `times` where an input depends on the batch, within the limits. */
oct_status oct_onnx_allocate_result(oct_onnx_call *c, int i);
/* Counts element operations against the walk's limit; OCT_DATA when there are too many. */
oct_status oct_onnx_charge_work(oct_onnx_call *c, int64_t steps);

/* A short list of integers fixed[] + times[] N, from an attribute or from a constant input. */
enum { OCT_ONNX_LIST_MAX = 64 };
typedef struct oct_onnx_list {
    bool given;
    int count;
    int64_t fixed[OCT_ONNX_LIST_MAX];
    double times[OCT_ONNX_LIST_MAX];
} oct_onnx_list;

/* Reads the attribute (NULL: there is none of it) or else the constant input i (-1: none). */
oct_status oct_onnx_read_affine_list(const oct_onnx_call *c, const char *attribute, int i,
                                     oct_onnx_list *list);
/* Reads such a list of plain integers; a problem where one depends on the batch. */
oct_status oct_onnx_read_integer_list(const oct_onnx_call *c, const char *attribute, int i,
                                      oct_onnx_list *list);
/* Turns an axis of -ndim to ndim - 1 into one of 0 to ndim - 1. */
oct_status oct_onnx_wrap_axis(const oct_onnx_call *c, int64_t axis, int ndim, int *found);
/* Sets args.axis from the attribute, as one of input 0. */
oct_status oct_onnx_read_axis(const oct_onnx_call *c, int64_t otherwise);

/* Reads a constant truth value; false: it is none. */
bool oct_onnx_truth(const oct_onnx_value *v, bool *truth);
/* Is the node an If, as the reader leaves it (graph.h)? */
bool oct_onnx_is_if(const oct_onnx_node *n);

/* Element i of a constant of integers of any width; those of F32 are for oct_onnx_reals. */
int64_t oct_onnx_get_int(const oct_onnx_value *v, int64_t i);
/* False: the type does not hold it; oct_onnx_put_int reports that, too. */
bool oct_onnx_set_integer(oct_onnx_value *v, int64_t i, int64_t value);
oct_status oct_onnx_put_int(const oct_onnx_call *c, oct_onnx_value *v, int64_t i, int64_t value);
static inline float *oct_onnx_reals(const oct_onnx_value *v)
{
    return v->data;
}

/* Where the batch is. */

/* The first dimension that is the batch, or a multiple of it; -1: none. */
int oct_onnx_batch_dim(const oct_onnx_value *v);
/* Does this number stand for the batch in a file that was written for one batch size? */
bool oct_onnx_is_fixed_batch(const oct_onnx_call *c, int64_t dim);

/* Broadcasts `shape` with another one: sets it to what both grow to, or reports that they do not fit. */
oct_status oct_onnx_broadcast_shape(const oct_onnx_call *c, oct_onnx_value *shape,
                                    const oct_onnx_value *with);
/* Strides of v, in elements, along each dimension of `shape`, to which it is broadcast: 0 where v has size 1. */
void oct_onnx_broadcast_strides(const oct_onnx_value *v, const oct_onnx_value *shape,
                                int64_t stride[OCT_ONNX_DIMS]);

/* number.c: affine numbers, fixed + times N. Integers among them are exact up to 2^53; times is NAN where a number
 * depends on the batch size N in another way, and then it is unknown. What holds for every batch of 2 to 4,096 samples
 * counts as true: exporters ask whether a size is 1, to broadcast or to drop it, and the batch is none such. */
typedef struct oct_onnx_affine {
    double fixed, times;
} oct_onnx_affine;
oct_onnx_affine oct_onnx_affine_unknown(void);
oct_onnx_affine oct_onnx_affine_add(oct_onnx_affine a, oct_onnx_affine b);
oct_onnx_affine oct_onnx_affine_sub(oct_onnx_affine a, oct_onnx_affine b);
oct_onnx_affine oct_onnx_affine_mul(oct_onnx_affine a, oct_onnx_affine b);
oct_onnx_affine oct_onnx_affine_div(oct_onnx_affine a, oct_onnx_affine b);
/* Rounds towards zero to an integer, where that is affine; else unknown. */
oct_onnx_affine oct_onnx_affine_truncate(oct_onnx_affine n);
oct_onnx_affine oct_onnx_affine_max(oct_onnx_affine a, oct_onnx_affine b);
oct_onnx_affine oct_onnx_affine_min(oct_onnx_affine a, oct_onnx_affine b);
/* 1 where a < b, 0 where a >= b, unknown where that depends on the batch. */
oct_onnx_affine oct_onnx_affine_less(oct_onnx_affine a, oct_onnx_affine b);

static inline oct_onnx_affine oct_onnx_plain(double x)
{
    return (oct_onnx_affine){x, 0};
}
/* A dimension as such a number; negative ones are multiples of N (OCT_ONNX_BATCH). */
static inline oct_onnx_affine oct_onnx_extent(int64_t dim)
{
    return dim < 0 ? (oct_onnx_affine){0, -(double)dim} : oct_onnx_plain((double)dim);
}
/* Sets a dimension to a constant or a multiple of N; any other number is a problem. */
oct_status oct_onnx_set_dim(const oct_onnx_call *c, oct_onnx_affine n, int64_t *dim);
static inline oct_onnx_affine oct_onnx_list_affine(const oct_onnx_list *list, int i)
{
    return (oct_onnx_affine){(double)list->fixed[i], list->times[i]};
}

/* Does element i of a constant depend on the batch size? */
static inline bool oct_onnx_varies(const oct_onnx_value *v, int64_t i)
{
    return v->times && v->times[i] != 0;
}
oct_onnx_affine oct_onnx_affine_of(const oct_onnx_value *v, int64_t i);
/* Sets element i of a result whose inputs depend on the batch. Of an integer type a number that is not whole, or beyond
 * 2^53, becomes unknown; other numbers that the type does not hold are a problem. */
oct_status oct_onnx_put_affine(const oct_onnx_call *c, oct_onnx_value *v, int64_t i,
                               oct_onnx_affine n);
/* Copies an element of the same type. */
void oct_onnx_copy_element(oct_onnx_value *y, int64_t to, const oct_onnx_value *x, int64_t from);

/* A walk over all elements of a shape in order, with the offsets of some operands. */
enum { OCT_ONNX_OPERANDS = 3 };
typedef struct oct_onnx_walk {
    const oct_onnx_value *shape;
    int64_t index[OCT_ONNX_DIMS], offset[OCT_ONNX_OPERANDS];
    int64_t stride[OCT_ONNX_OPERANDS][OCT_ONNX_DIMS];
} oct_onnx_walk;
/* Goes to the next element in row-major order. */
void oct_onnx_walk_step(oct_onnx_walk *w);

/* read_tensor.c: what an element of this type number becomes. */
bool oct_onnx_dtype_of(int64_t type, oct_dtype *dtype);
