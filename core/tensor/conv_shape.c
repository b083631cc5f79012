/* Convolution shapes are computed in integers. */
#include "core/tensor/conv_shape.h"

int64_t oct_conv_out(int64_t in, int kernel, int stride, int padding)
{
    int64_t room = in + 2 * (int64_t)padding - kernel;
    return room < 0 ? 0 : room / stride + 1;
}

oct_conv_shape oct_conv_shape_of(int64_t in_h, int64_t in_w, int64_t in_c, int64_t out_c,
                                 oct_conv_geometry g)
{
    return (oct_conv_shape){.in_h = in_h,
                            .in_w = in_w,
                            .in_c = in_c,
                            .out_h = oct_conv_out(in_h, g.kernel_h, g.stride, g.padding),
                            .out_w = oct_conv_out(in_w, g.kernel_w, g.stride, g.padding),
                            .out_c = out_c,
                            .kernel_h = g.kernel_h,
                            .kernel_w = g.kernel_w,
                            .stride = g.stride,
                            .padding = g.padding,
                            .groups = g.groups};
}

oct_conv_shape oct_linear_shape(int64_t in, int64_t out)
{
    return oct_conv_shape_of(1, 1, in, out, (oct_conv_geometry){1, 1, 1, 0, 1});
}

oct_conv_geometry oct_conv_geometry_transposed(oct_conv_geometry g)
{
    return (oct_conv_geometry){g.kernel_h, g.kernel_w, 1, g.kernel_h - 1 - g.padding, g.groups};
}

int64_t oct_conv_depth(const oct_conv_shape *s)
{
    return (int64_t)s->kernel_h * s->kernel_w * (s->in_c / s->groups);
}

int64_t oct_conv_in_numel(const oct_conv_shape *s)
{
    return s->in_h * s->in_w * s->in_c;
}

int64_t oct_conv_out_numel(const oct_conv_shape *s)
{
    return s->out_h * s->out_w * s->out_c;
}

bool oct_conv_is_depthwise(const oct_conv_shape *s)
{
    return s->groups > 1 && s->groups == s->in_c && s->groups == s->out_c;
}
