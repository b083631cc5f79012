/* Shapes of convolutions and pools. */
#include "io/onnx/operator.h"

#include <inttypes.h>
#include <string.h>

enum { WINDOW_DIMS = OCT_ONNX_DIMS - 2 };
static const int64_t number_max = 1 << 24; /* of what a window is described with */

/* What the attributes of a window say, each as many numbers as the image has dimensions. */
typedef struct window {
    int dims;
    int64_t kernel[WINDOW_DIMS], stride[WINDOW_DIMS], dilation[WINDOW_DIMS];
    int64_t before[WINDOW_DIMS], after[WINDOW_DIMS];
    bool same, valid; /* pads follow from the size, or are 0 */
} window;

static oct_status take_numbers(const oct_onnx_call *c, const char *name, const window *w,
                               int64_t *numbers)
{
    oct_onnx_list list;
    OCT_TRY(oct_onnx_take_list(c, name, -1, &list));
    if (!list.given) {
        for (int i = 0; i < w->dims; i++)
            numbers[i] = 1;
        return OCT_OK;
    }
    if (list.count != w->dims)
        return oct_onnx_problem(c, "%s has %d numbers in place of %d", name, list.count, w->dims);
    for (int i = 0; i < w->dims; i++) {
        numbers[i] = list.at[i];
        if (list.at[i] < 1 || list.at[i] > number_max)
            return oct_onnx_problem(c, "%s has a %" PRId64, name, list.at[i]);
    }
    return OCT_OK;
}

static oct_status take_pads(const oct_onnx_call *c, window *w)
{
    oct_onnx_list list;
    const char *mode = oct_onnx_string(c->node, "auto_pad", "NOTSET");
    w->same = strcmp(mode, "SAME_UPPER") == 0 || strcmp(mode, "SAME_LOWER") == 0;
    w->valid = strcmp(mode, "VALID") == 0;
    if (!w->same && !w->valid && strcmp(mode, "NOTSET") != 0 && mode[0] != '\0')
        return oct_onnx_problem(c, "auto_pad is none of NOTSET, VALID, SAME_UPPER and SAME_LOWER");
    OCT_TRY(oct_onnx_take_list(c, "pads", -1, &list));
    if (!list.given || w->same || w->valid) return OCT_OK;
    if (list.count != 2 * w->dims)
        return oct_onnx_problem(c, "pads has %d numbers in place of %d", list.count, 2 * w->dims);
    for (int i = 0; i < w->dims; i++) {
        w->before[i] = list.at[i];
        w->after[i] = list.at[w->dims + i];
        if (list.at[i] < 0 || list.at[i] > number_max || w->after[i] < 0 ||
            w->after[i] > number_max)
            return oct_onnx_problem(c, "pads has a number that is negative or too large");
    }
    return OCT_OK;
}

static oct_status take_window(const oct_onnx_call *c, window *w)
{
    OCT_TRY(oct_onnx_need_ndim(c, 0, 3, OCT_ONNX_DIMS));
    *w = (window){.dims = oct_onnx_in(c, 0)->ndim - 2};
    OCT_TRY(take_numbers(c, "strides", w, w->stride));
    OCT_TRY(take_numbers(c, "dilations", w, w->dilation));
    OCT_TRY(take_numbers(c, "kernel_shape", w, w->kernel));
    return take_pads(c, w);
}

/* Numbers along one dimension; below 1: the window does not fit. With ceil, a last window that is cut off counts,
 * unless it lies in the padding alone. */
static int64_t count_windows(const window *w, int i, int64_t size, bool ceil)
{
    if (w->same) return (size + w->stride[i] - 1) / w->stride[i];
    const int64_t reach = (w->kernel[i] - 1) * w->dilation[i] + 1;
    const int64_t room = size + w->before[i] + w->after[i] - reach;
    if (room < 0 && !(ceil && room > -w->stride[i])) return 0;
    int64_t count = (room + (ceil ? w->stride[i] - 1 : 0)) / w->stride[i] + 1;
    if (ceil && (count - 1) * w->stride[i] >= size + w->before[i]) count--;
    return count;
}

static oct_status slide(oct_onnx_call *c, const window *w, int64_t channels, bool ceil)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    oct_onnx_value shape = *x;
    shape.dim[1] = channels;
    for (int i = 0; i < w->dims; i++) {
        shape.dim[2 + i] = count_windows(w, i, x->dim[2 + i], ceil);
        if (shape.dim[2 + i] < 1)
            return oct_onnx_problem(
                c, "its window of %" PRId64 " does not fit into %" PRId64 "; use larger images",
                w->kernel[i], x->dim[2 + i]);
    }
    oct_onnx_set(c, 0, x->dtype, &shape);
    return OCT_OK;
}

oct_status oct_onnx_shape_pool(oct_onnx_call *c)
{
    window w;
    OCT_TRY(take_window(c, &w));
    if (!oct_onnx_attribute_find(c->node, "kernel_shape"))
        return oct_onnx_problem(c, "it has no kernel_shape; the file is damaged");
    OCT_TRY(slide(c, &w, oct_onnx_in(c, 0)->dim[1], oct_onnx_int(c->node, "ceil_mode", 0) != 0));
    if (oct_onnx_result(c, 1)) oct_onnx_set(c, 1, OCT_S64, oct_onnx_result(c, 0));
    return OCT_OK;
}

oct_status oct_onnx_shape_global_pool(oct_onnx_call *c)
{
    OCT_TRY(oct_onnx_need_ndim(c, 0, 3, OCT_ONNX_DIMS));
    oct_onnx_value shape = *oct_onnx_in(c, 0);
    for (int i = 2; i < shape.ndim; i++)
        shape.dim[i] = 1;
    oct_onnx_set(c, 0, shape.dtype, &shape);
    return OCT_OK;
}

/* Weights have as many dimensions as the image; their own sizes are the kernel's. */
static oct_status take_weights(const oct_onnx_call *c, window *w, int64_t *groups)
{
    OCT_TRY(oct_onnx_need_inputs(c, 2));
    OCT_TRY(take_window(c, w));
    const oct_onnx_value *weight = oct_onnx_in(c, 1);
    OCT_TRY(oct_onnx_need_ndim(c, 1, w->dims + 2, w->dims + 2));
    for (int i = 0; i < w->dims; i++) {
        if (oct_onnx_attribute_find(c->node, "kernel_shape") && w->kernel[i] != weight->dim[2 + i])
            return oct_onnx_problem(c, "its kernel_shape is not that of its weights");
        w->kernel[i] = weight->dim[2 + i];
        if (w->kernel[i] < 1 || w->kernel[i] > number_max)
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
    window w;
    int64_t groups, wanted;
    OCT_TRY(take_weights(c, &w, &groups));
    const oct_onnx_value *weight = oct_onnx_in(c, 1);
    if (__builtin_mul_overflow(weight->dim[1], groups, &wanted)) wanted = -1;
    OCT_TRY(check_channels(c, wanted, groups, weight->dim[0]));
    OCT_TRY(check_bias(c, weight->dim[0]));
    return slide(c, &w, weight->dim[0], false);
}

oct_status oct_onnx_shape_conv_transpose(oct_onnx_call *c)
{
    window w;
    oct_onnx_list extra, wanted;
    int64_t groups, channels;
    OCT_TRY(take_weights(c, &w, &groups));
    OCT_TRY(oct_onnx_take_list(c, "output_padding", -1, &extra));
    OCT_TRY(oct_onnx_take_list(c, "output_shape", -1, &wanted));
    const oct_onnx_value *x = oct_onnx_in(c, 0), *weight = oct_onnx_in(c, 1);
    if (__builtin_mul_overflow(weight->dim[1], groups, &channels))
        return oct_onnx_problem(c, "it has too many channels");
    OCT_TRY(check_channels(c, weight->dim[0], groups, weight->dim[0]));
    OCT_TRY(check_bias(c, channels));
    if ((extra.given && extra.count != w.dims) || (wanted.given && wanted.count != w.dims))
        return oct_onnx_problem(c, "output_padding or output_shape has not %d numbers", w.dims);
    oct_onnx_value shape = *x;
    shape.dim[1] = channels;
    for (int i = 0; i < w.dims; i++) {
        const int64_t more = extra.given ? extra.at[i] : 0;
        const int64_t reach = (w.kernel[i] - 1) * w.dilation[i] + 1;
        if (more < 0 || more > number_max)
            return oct_onnx_problem(c, "output_padding has a %" PRId64, more);
        shape.dim[2 + i] =
            wanted.given ? wanted.at[i]
            : w.same     ? x->dim[2 + i] * w.stride[i]
                     : (x->dim[2 + i] - 1) * w.stride[i] + more + reach - w.before[i] - w.after[i];
        if (shape.dim[2 + i] < 1)
            return oct_onnx_problem(c, "nothing is left of its output between the pads");
    }
    oct_onnx_set(c, 0, x->dtype, &shape);
    return OCT_OK;
}
