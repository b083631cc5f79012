/* Convolution shapes are computed in integers. */
#include "core/tensor/conv_shape.h"

int64_t oct_conv_out(int64_t in, int kernel, int stride, int padding)
{
    int64_t room = in + 2 * (int64_t)padding - kernel;
    return room < 0 ? 0 : room / stride + 1;
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
