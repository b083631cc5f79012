/* Shapes of convolutions and pools. */
#include "io/onnx/operator.h"

#include <inttypes.h>
#include <string.h>

static const int64_t number_max = 1 << 24; /* of what a window is described with */

/* Reads an attribute that has a number for each dimension of the image, from dimension 2 on; without it they are the
 * least. */
static oct_status take_numbers(const oct_onnx_call *c, const char *name, int64_t least,
                               int64_t *numbers)
{
    const int ndim = oct_onnx_in(c, 0)->ndim;
    oct_onnx_list list;
    OCT_TRY(oct_onnx_take_list(c, name, -1, &list));
    if (list.given && list.count != ndim - 2)
        return oct_onnx_problem(c, "%s has %d numbers in place of %d", name, list.count, ndim - 2);
    for (int i = 2; i < ndim; i++) {
        numbers[i] = list.given ? list.at[i - 2] : least;
        if (numbers[i] < least || numbers[i] > number_max)
            return oct_onnx_problem(c, "%s has a %" PRId64, name, numbers[i]);
    }
    return OCT_OK;
}

static bool pads_same(const oct_onnx_call *c)
{
    return strncmp(oct_onnx_string(c->node, "auto_pad", "NOTSET"), "SAME_", 5) == 0;
}

static oct_status take_pads(const oct_onnx_call *c)
{
    static const char *const modes[] = {"NOTSET", "", "VALID", "SAME_UPPER", "SAME_LOWER"};
    const char *mode = oct_onnx_string(c->node, "auto_pad", "NOTSET");
    oct_onnx_arguments *args = &c->node->args;
    const int ndim = oct_onnx_in(c, 0)->ndim;
    oct_onnx_list list;
    size_t known = 0;
    while (known < OCT_COUNT(modes) && strcmp(mode, modes[known]) != 0)
        known++;
    if (known == OCT_COUNT(modes))
        return oct_onnx_problem(c, "auto_pad is none of NOTSET, VALID, SAME_UPPER and SAME_LOWER");
    OCT_TRY(oct_onnx_take_list(c, "pads", -1, &list));
    if (!list.given || known > 1) return OCT_OK;
    if (list.count != 2 * (ndim - 2))
        return oct_onnx_problem(c, "pads has %d numbers in place of %d", list.count,
                                2 * (ndim - 2));
    for (int i = 2; i < ndim; i++) {
        args->before[i] = list.at[i - 2];
        args->after[i] = list.at[ndim - 4 + i];
        if (args->before[i] < 0 || args->before[i] > number_max || args->after[i] < 0 ||
            args->after[i] > number_max)
            return oct_onnx_problem(c, "pads has a number that is negative or too large");
    }
    return OCT_OK;
}

static oct_status take_window(const oct_onnx_call *c)
{
    oct_onnx_arguments *args = &c->node->args;
    OCT_TRY(oct_onnx_need_ndim(c, 0, 3, OCT_ONNX_DIMS));
    OCT_TRY(take_numbers(c, "strides", 1, args->stride));
    OCT_TRY(take_numbers(c, "dilations", 1, args->dilation));
    OCT_TRY(take_numbers(c, "kernel_shape", 1, args->kernel));
    return take_pads(c);
}

/* Windows along dimension i; below 1: the window does not fit. With ceil, a last window that is cut off counts,
 * unless it lies in the padding alone. */
static int64_t count_windows(const oct_onnx_call *c, int i, bool ceil)
{
    const oct_onnx_arguments *w = &c->node->args;
    const int64_t size = oct_onnx_in(c, 0)->dim[i];
    if (pads_same(c)) return (size + w->stride[i] - 1) / w->stride[i];
    const int64_t reach = (w->kernel[i] - 1) * w->dilation[i] + 1;
    const int64_t room = size + w->before[i] + w->after[i] - reach;
    if (room < 0 && !(ceil && room > -w->stride[i])) return 0;
    int64_t count = (room + (ceil ? w->stride[i] - 1 : 0)) / w->stride[i] + 1;
    if (ceil && (count - 1) * w->stride[i] >= size + w->before[i]) count--;
    return count;
}

static oct_status slide(oct_onnx_call *c, int64_t channels, bool ceil)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    oct_onnx_value shape = *x;
    shape.dim[1] = channels;
    for (int i = 2; i < shape.ndim; i++) {
        shape.dim[i] = count_windows(c, i, ceil);
        if (shape.dim[i] < 1)
            return oct_onnx_problem(
                c, "its window of %" PRId64 " does not fit into %" PRId64 "; use larger images",
                c->node->args.kernel[i], x->dim[i]);
    }
    return oct_onnx_set(c, 0, x->dtype, &shape);
}

oct_status oct_onnx_shape_pool(oct_onnx_call *c)
{
    OCT_TRY(take_window(c));
    if (!oct_onnx_attribute_find(c->node, "kernel_shape"))
        return oct_onnx_problem(c, "it has no kernel_shape; the file is damaged");
    OCT_TRY(slide(c, oct_onnx_in(c, 0)->dim[1], oct_onnx_int(c->node, "ceil_mode", 0) != 0));
    return oct_onnx_result(c, 1) ? oct_onnx_set(c, 1, OCT_S64, oct_onnx_result(c, 0)) : OCT_OK;
}

oct_status oct_onnx_shape_global_pool(oct_onnx_call *c)
{
    OCT_TRY(oct_onnx_need_ndim(c, 0, 3, OCT_ONNX_DIMS));
    oct_onnx_value shape = *oct_onnx_in(c, 0);
    for (int i = 2; i < shape.ndim; i++)
        shape.dim[i] = 1;
    return oct_onnx_set(c, 0, shape.dtype, &shape);
}

/* Weights have as many dimensions as the image; their own sizes are the kernel's. */
static oct_status take_weights(const oct_onnx_call *c, int64_t *groups)
{
    OCT_TRY(take_window(c));
    const oct_onnx_value *weight = oct_onnx_in(c, 1);
    const int ndim = oct_onnx_in(c, 0)->ndim;
    int64_t *kernel = c->node->args.kernel;
    OCT_TRY(oct_onnx_need_ndim(c, 1, ndim, ndim));
    for (int i = 2; i < ndim; i++) {
        if (oct_onnx_attribute_find(c->node, "kernel_shape") && kernel[i] != weight->dim[i])
            return oct_onnx_problem(c, "its kernel_shape is not that of its weights");
        kernel[i] = weight->dim[i];
        if (kernel[i] < 1 || kernel[i] > number_max)
            return oct_onnx_problem(c, "its weights are empty");
    }
    *groups = oct_onnx_int(c->node, "group", 1);
    if (*groups < 1) return oct_onnx_problem(c, "group is %" PRId64, *groups);
    return OCT_OK;
}

static oct_status check_bias(const oct_onnx_call *c, int64_t channels)
{
    const oct_onnx_value *bias = oct_onnx_in(c, 2);
    if (!bias || (bias->ndim == 1 && bias->dim[0] == channels)) return OCT_OK;
    return oct_onnx_problem(c, "its bias has not one number for each of %" PRId64 " channels",
                            channels);
}

static oct_status check_channels(const oct_onnx_call *c, int64_t wanted, int64_t groups,
                                 int64_t of_weights)
{
    const int64_t channels = oct_onnx_in(c, 0)->dim[1];
    if (of_weights % groups != 0)
        return oct_onnx_problem(c, "%" PRId64 " channels are no multiple of %" PRId64 " groups",
                                of_weights, groups);
    if (channels == wanted) return OCT_OK;
    return oct_onnx_problem(c, "it takes %" PRId64 " channels and gets %" PRId64, wanted, channels);
}

oct_status oct_onnx_shape_conv(oct_onnx_call *c)
{
    int64_t groups, wanted;
    OCT_TRY(take_weights(c, &groups));
    const oct_onnx_value *weight = oct_onnx_in(c, 1);
    if (__builtin_mul_overflow(weight->dim[1], groups, &wanted)) wanted = -1;
    OCT_TRY(check_channels(c, wanted, groups, weight->dim[0]));
    OCT_TRY(check_bias(c, weight->dim[0]));
    return slide(c, weight->dim[0], false);
}

oct_status oct_onnx_shape_conv_transpose(oct_onnx_call *c)
{
    const oct_onnx_arguments *w = &c->node->args;
    oct_onnx_list wanted;
    int64_t groups, channels;
    OCT_TRY(take_weights(c, &groups));
    OCT_TRY(take_numbers(c, "output_padding", 0, c->node->args.more));
    OCT_TRY(oct_onnx_take_list(c, "output_shape", -1, &wanted));
    const oct_onnx_value *x = oct_onnx_in(c, 0), *weight = oct_onnx_in(c, 1);
    if (__builtin_mul_overflow(weight->dim[1], groups, &channels))
        return oct_onnx_problem(c, "it has too many channels");
    OCT_TRY(check_channels(c, weight->dim[0], groups, weight->dim[0]));
    OCT_TRY(check_bias(c, channels));
    if (wanted.given && wanted.count != x->ndim - 2)
        return oct_onnx_problem(c, "output_shape has not %d numbers", x->ndim - 2);
    oct_onnx_value shape = *x;
    shape.dim[1] = channels;
    for (int i = 2; i < x->ndim; i++) {
        const int64_t reach = (w->kernel[i] - 1) * w->dilation[i] + 1;
        shape.dim[i] = wanted.given   ? wanted.at[i - 2]
                       : pads_same(c) ? x->dim[i] * w->stride[i]
                                      : (x->dim[i] - 1) * w->stride[i] + w->more[i] + reach -
                                            w->before[i] - w->after[i];
        if (shape.dim[i] < 1)
            return oct_onnx_problem(c, "nothing is left of its output between the pads");
    }
    return oct_onnx_set(c, 0, x->dtype, &shape);
}
