/* Building blocks that several models share. */
#include "launch/model/parts.h"

oct_status oct_append_conv_bn(oct_module *sequential, int64_t in, int64_t out, int kernel,
                              int stride, bool relu)
{
    oct_conv_geometry geometry = {.kernel_h = kernel,
                                  .kernel_w = kernel,
                                  .stride = stride,
                                  .padding = kernel / 2,
                                  .groups = 1};
    OCT_APPEND(sequential, oct_conv2d_create(&item, in, out, geometry, false));
    OCT_APPEND(sequential, oct_batch_norm_create(&item, out));
    if (relu) OCT_APPEND(sequential, oct_relu_create(&item));
    return OCT_OK;
}
