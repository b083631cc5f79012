/* The arguments that an operation takes beside tensors: in code a struct, in traces and files a row of numbers.
 *
 * One list for each operation names each argument and has its type, where the struct holds it and its bounds. A row has
 * all of them; defaults are those of the create functions. From the list follow the row of numbers and the way back, the
 * checks of what a file or a user gives, and most descriptions. Everybody reads arguments as members of the struct,
 * nobody by their place in the row.
 */
#pragma once

#include "core/tensor/conv_shape.h"
#include "core/tensor/move.h"
#include "core/tensor/pad.h"
#include "core/tensor/resize.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

/* The row of numbers, in the order of the list. Files keep it, so the order of a list never changes. */
enum { OCT_MAX_ARGS = 24 };
typedef struct oct_op_args {
    int count;
    double value[OCT_MAX_ARGS];
} oct_op_args;

#define OCT_OP_ARGS(...)                                                                           \
    (&(oct_op_args){.count = (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)),              \
                    .value = {__VA_ARGS__}})
#define OCT_NO_ARGS (&(oct_op_args){0})
static inline bool oct_op_args_equal(const oct_op_args *a, const oct_op_args *b)
{
    return a->count == b->count &&
           memcmp(a->value, b->value, (size_t)a->count * sizeof a->value[0]) == 0;
}

typedef struct oct_arg_list {
    size_t bytes; /* of the struct, at most OCT_ARGS_BYTES */
    const oct_arg *arg;
    int count;
    /* In place of `arg` where the count of numbers depends on them (a shape, a move). `read` says which type it is
     * for. */
    void (*write)(const void *args, oct_op_args *row);
    oct_status (*read)(const char *type, const oct_op_args *row, void *args);
} oct_arg_list;

enum { OCT_ARGS_BYTES = 256 };
/* Room for the struct of any list. */
typedef union oct_args_buffer {
    double alignment;
    int64_t integers;
    char bytes[OCT_ARGS_BYTES];
} oct_args_buffer;

/* A line of a list: OCT_ARG(oct_clip_args, lo, .least = .., .most = ..). */
#define OCT_ARG(args, member, ...) OCT_ARG_NAMED(#member, args, member, __VA_ARGS__)
#define OCT_ARG_NAMED(text, args, member, ...)                                                     \
    {                                                                                              \
        .name = text,                                                                              \
        .type = _Generic(((args *)0)->member, bool                                                 \
                         : OCT_ARG_BOOL, int64_t                                                   \
                         : OCT_ARG_INT64, float                                                    \
                         : OCT_ARG_FLOAT, double                                                   \
                         : OCT_ARG_DOUBLE, default                                                 \
                         : OCT_ARG_INT),                                                           \
        .offset = offsetof(args, member), __VA_ARGS__                                              \
    }
#define OCT_ARG_LIST(table, args)                                                                  \
    {                                                                                              \
        .bytes = sizeof(args), .arg = table, .count = OCT_COUNT(table)                             \
    }
/* Bounds that are not themselves allowed: no number lies between them and those. */
#define OCT_ABOVE_0 0x1p-149
#define OCT_BELOW_1 (1 - 0x1p-53)

/* Writes the struct of arguments as a row of numbers; returns the row. */
const oct_op_args *oct_args_write(const oct_arg_list *list, const void *args, oct_op_args *row);
/* Reads the struct from a row of any origin; OCT_USAGE where it has another count, or a number that the list does not
 * allow. type: for the sentence. */
oct_status oct_args_read(const oct_arg_list *list, const char *type, const oct_op_args *row,
                         void *args);
/* Fills the struct from a row that oct_args_read has accepted before. */
void oct_args_get(const oct_arg_list *list, const oct_op_args *row, void *args);
/* Checks a struct against the bounds of the list; OCT_USAGE. */
oct_status oct_args_check(const oct_arg_list *list, const char *type, const void *args);
/* Describes arguments for people: the texts of the list one after another, with the number in place of '#'. */
void oct_args_describe(const oct_arg_list *list, const void *args, char *text, size_t size);

/* The row of an operation whose struct has these members: OCT_ARGS(clip, .lo = 0, .hi = 1). Valid until the end of
 * the block. */
#define OCT_ARGS(op, ...)                                                                          \
    oct_args_write(&oct_##op##_arg_list, &(oct_##op##_args){__VA_ARGS__}, &(oct_op_args){0})

/* The operations that have arguments: a struct oct_<op>_args and the list oct_<op>_arg_list. Sizes and counts are at
 * least 1. */

typedef struct oct_conv2d_args {
    int64_t in_channels, out_channels;
    oct_conv_geometry geometry;
    bool bias;
} oct_conv2d_args, oct_conv_transpose2d_args;

typedef struct oct_linear_args {
    int64_t in_features, out_features;
    bool bias;
} oct_linear_args;

typedef struct oct_batch_norm_args {
    int64_t channels;
    float eps, momentum;
} oct_batch_norm_args;

typedef struct oct_group_norm_args {
    int64_t groups;   /* of a layer norm 1, which is not in its list */
    int64_t channels; /* of a layer norm the size of a row */
    double eps;
} oct_group_norm_args, oct_layer_norm_args;

typedef oct_shape oct_parameter_args; /* the parameter's own dimensions, 1 to 3; no batch */

/* Along which dimension, 1 or more, or over both of (N, H, W, C)'s plane. keep: a dimension of 1 stays. */
enum { OCT_MEAN_PLANE = 12 };
typedef struct oct_mean_args {
    int axis;
    bool keep;
} oct_mean_args;

typedef oct_pool_geometry oct_max_pool_args, oct_avg_pool_args;

typedef struct oct_clip_args {
    double lo, hi; /* in ascending order; may be infinite */
} oct_clip_args;

typedef struct oct_prelu_args {
    int64_t channels; /* 1: one slope for all */
} oct_prelu_args;

typedef struct oct_dropout_args {
    double p; /* probability of 0 */
} oct_dropout_args;

typedef struct oct_scalar_args {
    double value;
} oct_scalar_args, oct_add_scalar_args, oct_mul_scalar_args;

typedef struct oct_elementwise_args { /* of core/op/elementwise_list.def, by how many they take */
    double alpha, beta;
} oct_elementwise_args;

typedef struct oct_interpolate_args {
    int64_t out_h, out_w;
    oct_interpolation mode;
} oct_interpolate_args;

typedef oct_shape oct_reshape_args; /* dim[0] is the batch and in no row */
typedef oct_move_map oct_move_args; /* out.dim[0] likewise */
typedef oct_padding oct_pad_args;

typedef struct oct_squeeze_args {
    int dim; /* 1 or more; 0: all of size 1 but the batch */
} oct_squeeze_args;

typedef struct oct_cross_entropy_loss_args {
    double smoothing;
} oct_cross_entropy_loss_args;

extern const oct_arg_list oct_no_arg_list, oct_conv2d_arg_list, oct_conv_transpose2d_arg_list,
    oct_linear_arg_list, oct_batch_norm_arg_list, oct_layer_norm_arg_list, oct_group_norm_arg_list,
    oct_parameter_arg_list, oct_mean_arg_list, oct_max_pool_arg_list, oct_avg_pool_arg_list,
    oct_clip_arg_list, oct_prelu_arg_list, oct_dropout_arg_list, oct_scalar_arg_list,
    oct_elementwise_arg_list[3], oct_interpolate_arg_list, oct_reshape_arg_list, oct_move_arg_list,
    oct_pad_arg_list, oct_squeeze_arg_list, oct_cross_entropy_loss_arg_list;
