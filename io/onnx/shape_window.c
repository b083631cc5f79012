/* Shapes of convolutions, pools and images that are resized. */
#include "io/onnx/operator.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const int64_t number_max = 1 << 24; /* of what a window is described with */

/* Reads an attribute with a number for each dimension from 2 on, none below `least`, which is also the default. */
static oct_status read_window_numbers(const oct_onnx_call *c, const char *name, int64_t least,
                                      int64_t *numbers)
{
    const int ndim = oct_onnx_in(c, 0)->ndim;
    oct_onnx_list list;
    OCT_TRY(oct_onnx_read_integer_list(c, name, -1, &list));
    if (list.given && list.count != ndim - 2)
        return oct_onnx_problem(c, "%s has %d numbers in place of %d", name, list.count, ndim - 2);
    for (int i = 2; i < ndim; i++) {
        numbers[i] = list.given ? list.fixed[i - 2] : least;
        if (numbers[i] < least || numbers[i] > number_max)
            return oct_onnx_problem(c, "%s has a %" PRId64, name, numbers[i]);
    }
    return OCT_OK;
}

static bool pads_same(const oct_onnx_call *c)
{
    return strncmp(oct_onnx_string(c->node, "auto_pad", "NOTSET"), "SAME_", 5) == 0;
}

/* Sets args.before and after from pads: first those before each dimension, then those after. auto_pad comes later. */
static oct_status read_pads(const oct_onnx_call *c)
{
    static const char *const modes[] = {"NOTSET", "", "VALID", "SAME_UPPER", "SAME_LOWER", NULL};
    const int mode = oct_list_index(modes, oct_onnx_string(c->node, "auto_pad", "NOTSET"));
    oct_onnx_arguments *args = &c->node->args;
    const int ndim = oct_onnx_in(c, 0)->ndim;
    oct_onnx_list list;
    if (mode < 0)
        return oct_onnx_problem(c, "auto_pad is none of NOTSET, VALID, SAME_UPPER and SAME_LOWER");
    OCT_TRY(oct_onnx_read_integer_list(c, "pads", -1, &list));
    if (!list.given || mode > 1) return OCT_OK;
    if (list.count != 2 * (ndim - 2))
        return oct_onnx_problem(c, "pads has %d numbers in place of %d", list.count,
                                2 * (ndim - 2));
    for (int i = 2; i < ndim; i++) {
        args->before[i] = list.fixed[i - 2];
        args->after[i] = list.fixed[ndim - 4 + i];
        if (args->before[i] < 0 || args->before[i] > number_max || args->after[i] < 0 ||
            args->after[i] > number_max)
            return oct_onnx_problem(c, "pads has a number that is negative or too large");
    }
    return OCT_OK;
}

static oct_status read_window(const oct_onnx_call *c)
{
    oct_onnx_arguments *args = &c->node->args;
    OCT_TRY(oct_onnx_need_ndim(c, 0, 3, OCT_ONNX_DIMS));
    for (int i = 2; i < oct_onnx_in(c, 0)->ndim; i++)
        if (oct_onnx_in(c, 0)->dim[i] < 0)
            return oct_onnx_problem(c, "its windows move over the batch; export it with the batch "
                                       "as the first dimension");
    OCT_TRY(read_window_numbers(c, "strides", 1, args->stride));
    OCT_TRY(read_window_numbers(c, "dilations", 1, args->dilation));
    OCT_TRY(read_window_numbers(c, "kernel_shape", 1, args->kernel));
    return read_pads(c);
}

/* Divides the padding of dimension i between its ends, the odd pixel after (UPPER) or before. It is below zero where
 * windows are further apart than they are long, or an output is larger than they reach; the builder refuses that. */
static void divide_padding(const oct_onnx_call *c, int i, int64_t all)
{
    const bool upper = strcmp(oct_onnx_string(c->node, "auto_pad", "NOTSET"), "SAME_UPPER") == 0;
    c->node->args.before[i] = upper ? all / 2 : all - all / 2;
    c->node->args.after[i] = all - c->node->args.before[i];
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

/* Sets the result's shape: (N, channels, number of windows ...), and the padding that auto_pad SAME needs for it. */
static oct_status set_window_shape(oct_onnx_call *c, int64_t channels, bool ceil)
{
    const oct_onnx_value *x = oct_onnx_in(c, 0);
    const oct_onnx_arguments *w = &c->node->args;
    oct_onnx_value shape = *x;
    shape.dim[1] = channels;
    for (int i = 2; i < shape.ndim; i++) {
        shape.dim[i] = count_windows(c, i, ceil);
        if (shape.dim[i] < 1)
            return oct_onnx_problem(
                c, "its window of %" PRId64 " does not fit into %" PRId64 "; use larger images",
                w->kernel[i], x->dim[i]);
        if (!pads_same(c)) continue;
        const int64_t reach = (w->kernel[i] - 1) * w->dilation[i] + 1;
        const int64_t all = (shape.dim[i] - 1) * w->stride[i] + reach - x->dim[i];
        divide_padding(c, i, all == -1 ? 0 : all);
    }
    return oct_onnx_declare(c, 0, x->dtype, &shape);
}

oct_status oct_onnx_shape_pool(oct_onnx_call *c)
{
    OCT_TRY(read_window(c));
    if (!oct_onnx_attribute_find(c->node, "kernel_shape"))
        return oct_onnx_problem(c, "it has no kernel_shape; the file is damaged");
    OCT_TRY(
        set_window_shape(c, oct_onnx_in(c, 0)->dim[1], oct_onnx_int(c->node, "ceil_mode", 0) != 0));
    return oct_onnx_result(c, 1) ? oct_onnx_declare(c, 1, OCT_S64, oct_onnx_result(c, 0)) : OCT_OK;
}

oct_status oct_onnx_shape_global_pool(oct_onnx_call *c)
{
    OCT_TRY(oct_onnx_need_ndim(c, 0, 3, OCT_ONNX_DIMS));
    oct_onnx_value shape = *oct_onnx_in(c, 0);
    for (int i = 2; i < shape.ndim; i++)
        shape.dim[i] = 1;
    return oct_onnx_declare(c, 0, shape.dtype, &shape);
}

/* Reads window and groups of a convolution; the kernel's sizes are dimensions 2 and on of its weights. */
static oct_status read_kernel(const oct_onnx_call *c, int64_t *groups)
{
    OCT_TRY(read_window(c));
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
        return oct_onnx_problem(c, "%s channels are no multiple of %" PRId64 " groups",
                                oct_onnx_show_dim(of_weights).text, groups);
    if (channels == wanted) return OCT_OK;
    return oct_onnx_problem(c, "it takes %s channels and gets %s", oct_onnx_show_dim(wanted).text,
                            oct_onnx_show_dim(channels).text);
}

oct_status oct_onnx_shape_conv(oct_onnx_call *c)
{
    int64_t groups, wanted;
    OCT_TRY(read_kernel(c, &groups));
    const oct_onnx_value *weight = oct_onnx_in(c, 1);
    if (__builtin_mul_overflow(weight->dim[1], groups, &wanted)) wanted = INT64_MIN;
    OCT_TRY(check_channels(c, wanted, groups, weight->dim[0]));
    OCT_TRY(check_bias(c, weight->dim[0]));
    return set_window_shape(c, weight->dim[0], false);
}

/* A side is (size - 1) stride + reach + output_padding - pads; where output_shape or auto_pad sets it, pads follow. */
oct_status oct_onnx_shape_conv_transpose(oct_onnx_call *c)
{
    const oct_onnx_arguments *w = &c->node->args;
    int64_t groups, channels, count, wanted[OCT_ONNX_DIMS] = {0};
    OCT_TRY(read_kernel(c, &groups));
    OCT_TRY(read_window_numbers(c, "output_padding", 0, c->node->args.output_padding));
    OCT_TRY(read_window_numbers(c, "output_shape", 1, wanted));
    const bool given = oct_onnx_ints(c->node, "output_shape", &count) != NULL;
    const oct_onnx_value *x = oct_onnx_in(c, 0), *weight = oct_onnx_in(c, 1);
    if (__builtin_mul_overflow(weight->dim[1], groups, &channels))
        return oct_onnx_problem(c, "it has too many channels");
    OCT_TRY(check_channels(c, weight->dim[0], groups, weight->dim[0]));
    OCT_TRY(check_bias(c, channels));
    oct_onnx_value shape = *x;
    shape.dim[1] = channels;
    for (int i = 2; i < x->ndim; i++) {
        const int64_t reach = (w->kernel[i] - 1) * w->dilation[i] + 1;
        const int64_t all = (x->dim[i] - 1) * w->stride[i] + w->output_padding[i] + reach;
        shape.dim[i] = given          ? wanted[i]
                       : pads_same(c) ? x->dim[i] * w->stride[i]
                                      : all - w->before[i] - w->after[i];
        if (shape.dim[i] < 1)
            return oct_onnx_problem(c, "nothing is left of its output between the pads");
        if (given || pads_same(c)) divide_padding(c, i, all - shape.dim[i]);
    }
    return oct_onnx_declare(c, 0, x->dtype, &shape);
}

/* Upsample and the first Resize have scales as input 1, later ones as input 2. */
static oct_status read_scales(const oct_onnx_call *c, int count, float *scale, bool *given)
{
    const int at = c->pass->graph->opset >= 11 ? 2 : 1;
    const oct_onnx_value *v = oct_onnx_in(c, at);
    *given = v && !(v->known && oct_onnx_numel(v) == 0);
    if (!*given) return OCT_OK;
    if (!v->data || v->times || v->dtype != OCT_F32 || oct_onnx_numel(v) != count)
        return oct_onnx_problem(c, "its scales must be %d numbers that are known", count);
    for (int i = 0; i < count; i++) {
        scale[i] = oct_onnx_reals(v)[i];
        if (!(scale[i] > 0 && scale[i] <= 65536))
            return oct_onnx_problem(c, "it has a scale of %g", (double)scale[i]);
    }
    return OCT_OK;
}

oct_status oct_onnx_shape_resize(oct_onnx_call *c)
{
    oct_onnx_list axes, sizes;
    float scale[OCT_ONNX_DIMS];
    bool scaled;
    const int opset = (int)c->pass->graph->opset;
    oct_onnx_value shape = *oct_onnx_in(c, 0);
    OCT_TRY(oct_onnx_read_integer_list(c, opset >= 18 ? "axes" : NULL, -1, &axes));
    const int count = axes.given ? axes.count : shape.ndim;
    if (count > shape.ndim)
        return oct_onnx_problem(c, "it has %d axes for %d dimensions", count, shape.ndim);
    OCT_TRY(oct_onnx_read_affine_list(c, NULL, opset >= 11 ? 3 : -1, &sizes));
    OCT_TRY(read_scales(c, count, scale, &scaled));
    if (sizes.count ? sizes.count != count : !scaled)
        return oct_onnx_problem(c, "it has neither %d sizes nor as many scales", count);
    if (strcmp(oct_onnx_string(c->node, "keep_aspect_ratio_policy", "stretch"), "stretch") != 0 ||
        strcmp(oct_onnx_string(c->node, "coordinate_transformation_mode", ""),
               "tf_crop_and_resize") == 0)
        return oct_onnx_problem(c, "it keeps a ratio or crops, which is not known; give it sizes");
    for (int i = 0; i < count; i++) {
        int axis;
        OCT_TRY(oct_onnx_wrap_axis(c, axes.given ? axes.fixed[i] : i, shape.ndim, &axis));
        int64_t *size = &shape.dim[axis];
        if (scaled) c->node->args.scale[axis] = scale[i];
        const oct_onnx_affine now = oct_onnx_extent(*size);
        const oct_onnx_affine wanted =
            sizes.count ? oct_onnx_list_affine(&sizes, i)
                        : (oct_onnx_affine){(double)floorf((float)now.fixed * scale[i]),
                                            now.times * (double)scale[i]};
        if (*size == OCT_ONNX_BATCH && wanted.times == 0 &&
            oct_onnx_is_fixed_batch(c, (int64_t)wanted.fixed))
            continue;
        OCT_TRY(oct_onnx_set_dim(c, wanted, size));
    }
    return oct_onnx_declare(c, 0, shape.dtype, &shape);
}

/* Reads the block size of DepthToSpace or SpaceToDepth, whose input must be an image. */
static oct_status read_block_size(const oct_onnx_call *c)
{
    const int64_t block = c->node->args.block = oct_onnx_int(c->node, "blocksize", 0);
    OCT_TRY(oct_onnx_need_ndim(c, 0, 4, 4));
    if (block < 1 || block > 1 << 15) return oct_onnx_problem(c, "blocksize is %" PRId64, block);
    return OCT_OK;
}

oct_status oct_onnx_shape_depth_to_space(oct_onnx_call *c)
{
    OCT_TRY(read_block_size(c));
    const int64_t block = c->node->args.block;
    oct_onnx_value shape = *oct_onnx_in(c, 0);
    if (shape.dim[1] % (block * block) != 0)
        return oct_onnx_problem(c, "%s channels make no blocks of %" PRId64,
                                oct_onnx_show_dim(shape.dim[1]).text, block);
    shape.dim[1] /= block * block;
    shape.dim[2] *= block;
    shape.dim[3] *= block;
    return oct_onnx_declare(c, 0, shape.dtype, &shape);
}

oct_status oct_onnx_shape_space_to_depth(oct_onnx_call *c)
{
    OCT_TRY(read_block_size(c));
    const int64_t block = c->node->args.block;
    oct_onnx_value shape = *oct_onnx_in(c, 0);
    if (shape.dim[2] % block != 0 || shape.dim[3] % block != 0)
        return oct_onnx_problem(c, "%s x %s makes no blocks of %" PRId64,
                                oct_onnx_show_dim(shape.dim[2]).text,
                                oct_onnx_show_dim(shape.dim[3]).text, block);
    shape.dim[1] *= block * block;
    shape.dim[2] /= block;
    shape.dim[3] /= block;
    return oct_onnx_declare(c, 0, shape.dtype, &shape);
}
