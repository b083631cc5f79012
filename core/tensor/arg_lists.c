/* The lists of arguments of all operations that have some. */
#include "core/tensor/op_args.h"

#define SIZE .least = 1, .most = INT32_MAX
#define COUNT .least = 0, .most = INT32_MAX
#define FINITE .least = -(double)FLT_MAX, .most = (double)FLT_MAX
#define ABOVE_0 .least = OCT_ABOVE_0, .most = (double)FLT_MAX
#define ANY .least = -(double)INFINITY, .most = (double)INFINITY
#define WINDOW_SIZE .least = 1, .most = OCT_WINDOW_SIDE_MAX
#define WINDOW_PAD .least = 0, .most = OCT_WINDOW_SIDE_MAX

/* Kernel, stride and pads of windows, whose members have the names `at` kernel_h and so on. */
#define WINDOW_ARG(args, at, member, ...) OCT_ARG_NAMED(#member, args, at member, __VA_ARGS__)
#define WINDOW_ARGS(args, at)                                                                      \
    WINDOW_ARG(args, at, kernel_h, WINDOW_SIZE), WINDOW_ARG(args, at, kernel_w, WINDOW_SIZE),      \
        WINDOW_ARG(args, at, stride_h, WINDOW_SIZE), WINDOW_ARG(args, at, stride_w, WINDOW_SIZE),  \
        WINDOW_ARG(args, at, pad_top, WINDOW_PAD), WINDOW_ARG(args, at, pad_left, WINDOW_PAD),     \
        WINDOW_ARG(args, at, pad_bottom, WINDOW_PAD), WINDOW_ARG(args, at, pad_right, WINDOW_PAD)

#define CONV_ARG(member, ...) WINDOW_ARG(oct_conv2d_args, geometry., member, __VA_ARGS__)
#define CONV_FIRST_ARGS                                                                            \
    OCT_ARG(oct_conv2d_args, in_channels, SIZE), OCT_ARG(oct_conv2d_args, out_channels, SIZE),     \
        WINDOW_ARGS(oct_conv2d_args, geometry.)
#define CONV_LAST_ARGS                                                                             \
    CONV_ARG(dilation_h, WINDOW_SIZE), CONV_ARG(dilation_w, WINDOW_SIZE), CONV_ARG(groups, SIZE),  \
        OCT_ARG(oct_conv2d_args, bias, .least = 0)

static const oct_arg conv2d[] = {CONV_FIRST_ARGS, CONV_LAST_ARGS};
static const oct_arg conv_transpose2d[] = {CONV_FIRST_ARGS, CONV_ARG(output_padding_h, WINDOW_PAD),
                                           CONV_ARG(output_padding_w, WINDOW_PAD), CONV_LAST_ARGS};

static const oct_arg linear[] = {
    OCT_ARG(oct_linear_args, in_features, SIZE, .text = "#"),
    OCT_ARG(oct_linear_args, out_features, SIZE, .text = " -> #"),
    OCT_ARG(oct_linear_args, bias, .text = ", bias", .brief = true),
};

static const oct_arg batch_norm[] = {
    OCT_ARG(oct_batch_norm_args, channels, SIZE),
    OCT_ARG(oct_batch_norm_args, eps, ABOVE_0),
    OCT_ARG(oct_batch_norm_args, momentum, .least = 0, .most = 1),
};
static const oct_arg layer_norm[] = {
    OCT_ARG(oct_layer_norm_args, channels, SIZE, .text = "# channels"),
    OCT_ARG(oct_layer_norm_args, eps, ABOVE_0),
};
static const oct_arg group_norm[] = {
    OCT_ARG(oct_group_norm_args, groups, SIZE),
    OCT_ARG(oct_group_norm_args, channels, SIZE),
    OCT_ARG(oct_group_norm_args, eps, ABOVE_0),
};

static const oct_arg mean[] = {
    OCT_ARG(oct_mean_args, axis, .least = 1, .most = OCT_MEAN_PLANE),
    OCT_ARG(oct_mean_args, keep, .least = 0),
};

static const oct_arg max_pool[] = {WINDOW_ARGS(oct_pool_geometry, ),
                                   OCT_ARG(oct_pool_geometry, ceil, .least = 0)};
static const oct_arg avg_pool[] = {WINDOW_ARGS(oct_pool_geometry, ),
                                   OCT_ARG(oct_pool_geometry, ceil, .least = 0),
                                   OCT_ARG(oct_pool_geometry, count_include_pad, .least = 0)};

static const oct_arg clip[] = {
    OCT_ARG(oct_clip_args, lo, ANY, .text = "#"),
    OCT_ARG(oct_clip_args, hi, ANY, .text = " to #"),
};
static const oct_arg prelu[] = {OCT_ARG(oct_prelu_args, channels, SIZE)};
static const oct_arg dropout[] = {
    OCT_ARG(oct_dropout_args, p, .least = 0, .most = OCT_BELOW_1, .text = "p #")};
static const oct_arg scalar[] = {OCT_ARG(oct_scalar_args, value, FINITE, .text = "#")};
static const oct_arg elementwise[] = {
    OCT_ARG(oct_elementwise_args, alpha, FINITE, .text = "#"),
    OCT_ARG(oct_elementwise_args, beta, FINITE, .text = ", #"),
};

static const oct_arg interpolate[] = {
    OCT_ARG(oct_interpolate_args, out_h, SIZE),
    OCT_ARG(oct_interpolate_args, out_w, SIZE),
    OCT_ARG(oct_interpolate_args, mode, .least = 0, .most = OCT_INTERPOLATIONS - 1),
};
static const oct_arg pad[] = {
    OCT_ARG(oct_padding, top, COUNT),
    OCT_ARG(oct_padding, bottom, COUNT),
    OCT_ARG(oct_padding, left, COUNT),
    OCT_ARG(oct_padding, right, COUNT),
    OCT_ARG(oct_padding, channels_before, COUNT),
    OCT_ARG(oct_padding, channels_after, COUNT),
    OCT_ARG(oct_padding, value, FINITE),
    OCT_ARG(oct_padding, mode, .least = 0, .most = OCT_PAD_MODES - 1),
};
static const oct_arg squeeze[] = {OCT_ARG(oct_squeeze_args, dim, .least = 0,
                                          .most = OCT_MAX_DIMS - 1, .text = "dimension #",
                                          .brief = true)};
static const oct_arg cross_entropy_loss[] = {OCT_ARG(oct_cross_entropy_loss_args, smoothing,
                                                     .least = 0, .most = 1, .text = "smoothing #",
                                                     .brief = true)};

/* Reads numbers that are all whole, and each of 32 bits. */
static oct_status read_integers(const char *type, const oct_op_args *row, int64_t *number)
{
    for (int i = 0; i < row->count; i++) {
        const double value = row->value[i];
        OCT_CHECK(value == rint(value) && fabs(value) <= (double)INT32_MAX, OCT_USAGE,
                  "argument %d of a %s is %g, but must be a whole number of at most 32 bits", i + 1,
                  type, value);
        number[i] = (int64_t)value;
    }
    return OCT_OK;
}

/* The dimensions after the batch. */
static void write_reshape(const void *args, oct_op_args *row)
{
    const oct_shape *shape = args;
    for (int i = 1; i < shape->ndim; i++)
        row->value[row->count++] = (double)shape->dim[i];
}

/* Reads a shape from its dimensions beside the batch, whose dimension becomes 1. */
static oct_status read_reshape(const char *type, const oct_op_args *row, void *args)
{
    oct_shape *shape = args;
    OCT_CHECK(row->count < OCT_MAX_DIMS, OCT_USAGE,
              "a %s has at most %d dimensions beside the batch, but has %d", type, OCT_MAX_DIMS - 1,
              row->count);
    *shape = (oct_shape){.ndim = row->count + 1, .dim = {1}};
    return read_integers(type, row, shape->dim + 1);
}

/* Writes a shape as its number of dimensions, then the dimensions. */
static void write_parameter(const void *args, oct_op_args *row)
{
    const oct_shape *shape = args;
    row->value[row->count++] = shape->ndim;
    for (int i = 0; i < shape->ndim; i++)
        row->value[row->count++] = (double)shape->dim[i];
}

/* Reads a shape from its number of dimensions and the dimensions, as a file may have them. */
static oct_status read_parameter(const char *type, const oct_op_args *row, void *args)
{
    int64_t number[OCT_MAX_DIMS] = {0};
    OCT_CHECK(row->count >= 2 && row->count <= OCT_MAX_DIMS, OCT_USAGE,
              "a %s is made from its number of dimensions, 1 to %d, and those; it has %d arguments",
              type, OCT_MAX_DIMS - 1, row->count);
    OCT_TRY(read_integers(type, row, number));
    OCT_CHECK(number[0] == row->count - 1, OCT_USAGE, "a %s of %lld dimensions has %d", type,
              (long long)number[0], row->count - 1);
    *(oct_shape *)args = oct_shape_of((int)number[0], number + 1);
    return OCT_OK;
}

/* The offset, the number of dimensions after the batch and their sizes, the number of loops, their sizes, their
 * strides. */
static void write_move(const void *args, oct_op_args *row)
{
    const oct_move_map *map = args;
    row->value[row->count++] = (double)map->offset;
    row->value[row->count++] = map->out.ndim - 1;
    for (int i = 1; i < map->out.ndim; i++)
        row->value[row->count++] = (double)map->out.dim[i];
    row->value[row->count++] = map->dims;
    for (int i = 0; i < map->dims; i++)
        row->value[row->count++] = (double)map->size[i];
    for (int i = 0; i < map->dims; i++)
        row->value[row->count++] = (double)map->stride[i];
}

/* Reads a move from the numbers that write_move lists, as a file may have them. */
static oct_status read_move(const char *type, const oct_op_args *row, void *args)
{
    int64_t number[OCT_MAX_ARGS] = {0};
    OCT_TRY(read_integers(type, row, number));
    /* number: the offset, `after`, that many sizes, `dims`, that many sizes and strides */
    const int64_t after = number[1];
    const int64_t dims = after >= 0 && after < OCT_MAX_DIMS ? number[2 + after] : -1;
    OCT_CHECK(
        dims >= 0 && dims <= OCT_MOVE_DIMS && row->count == 3 + after + 2 * dims, OCT_USAGE,
        "a %s is made from an offset, the number of dimensions after the batch (at most %d) and "
        "their sizes, the number of loops (at most %d), their sizes and their strides, but has %d "
        "arguments that do not count so",
        type, OCT_MAX_DIMS - 1, OCT_MOVE_DIMS, row->count);
    oct_move_map *map = args;
    *map = (oct_move_map){
        .offset = number[0], .dims = (int)dims, .out = {.ndim = (int)after + 1, .dim = {1}}};
    memcpy(map->out.dim + 1, number + 2, (size_t)after * sizeof *number);
    memcpy(map->size, number + 3 + after, (size_t)dims * sizeof *number);
    memcpy(map->stride, number + 3 + after + dims, (size_t)dims * sizeof *number);
    return OCT_OK;
}

#define LIST(id) const oct_arg_list oct_##id##_arg_list = OCT_ARG_LIST(id, oct_##id##_args)
LIST(conv2d);
LIST(conv_transpose2d);
LIST(linear);
LIST(batch_norm);
LIST(layer_norm);
LIST(group_norm);
LIST(mean);
LIST(max_pool);
LIST(avg_pool);
LIST(clip);
LIST(prelu);
LIST(dropout);
LIST(scalar);
LIST(interpolate);
LIST(pad);
LIST(squeeze);
LIST(cross_entropy_loss);
const oct_arg_list oct_no_arg_list = {0};
const oct_arg_list oct_elementwise_arg_list[] = {
    {.bytes = sizeof(oct_elementwise_args)},
    {.bytes = sizeof(oct_elementwise_args), .arg = elementwise, .count = 1},
    {.bytes = sizeof(oct_elementwise_args), .arg = elementwise, .count = 2}};
const oct_arg_list oct_reshape_arg_list = {
    .bytes = sizeof(oct_shape), .write = write_reshape, .read = read_reshape};
const oct_arg_list oct_parameter_arg_list = {
    .bytes = sizeof(oct_shape), .write = write_parameter, .read = read_parameter};
const oct_arg_list oct_move_arg_list = {
    .bytes = sizeof(oct_move_map), .write = write_move, .read = read_move};
