/* A transposed convolution is a convolution over the input with zeros between its values. */
#include "core/op/convolve_impl.h"
#include "core/op/op_impl.h"
#include "core/op/ops.h"

static bool geometry_fits(oct_context *cx, oct_conv_geometry g)
{
    bool fits = g.kernel_h >= 1 && g.kernel_h == g.kernel_w && g.stride >= 1 && g.padding >= 0 &&
                g.padding < g.kernel_h && g.groups == 1;
    if (!fits)
        oct_context_fail(
            cx, OCT_USAGE,
            "conv_transpose2d cannot have kernel %dx%d, stride %d, padding %d and groups %d; the "
            "kernel must be square, the stride at least 1, the padding below the kernel and groups "
            "1",
            g.kernel_h, g.kernel_w, g.stride, g.padding, g.groups);
    return fits;
}

static bool weight_fits(oct_context *cx, const oct_tensor *x, const oct_tensor *w,
                        oct_conv_geometry g)
{
    char x_text[96], w_text[96];
    bool fits = w->shape.ndim == 4 && x->shape.ndim == 4 && oct_dim(w, 1) == g.kernel_h &&
                oct_dim(w, 2) == g.kernel_w && oct_dim(w, 3) == oct_dim(x, 3);
    if (!fits)
        oct_context_fail(cx, OCT_USAGE,
                         "conv_transpose2d: input %s (N, H, W, I) and weight %s (O, kh, kw, I) do "
                         "not fit together with kernel %dx%d",
                         oct_shape_text(&x->shape, x_text), oct_shape_text(&w->shape, w_text),
                         g.kernel_h, g.kernel_w);
    return fits;
}

oct_tensor *oct_conv_transpose2d(oct_context *cx, oct_tensor *x, oct_param *weight, oct_param *bias,
                                 oct_conv_geometry g)
{
    const char *op = "conv_transpose2d";
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    const oct_tensor *w = &weight->value;
    if (!oct_needs_f32(cx, op, x) || !oct_needs_batch(cx, op, x)) return NULL;
    if (!geometry_fits(cx, g) || !weight_fits(cx, x, w, g) ||
        !oct_bias_fits(cx, op, bias, oct_dim(w, 0)))
        return NULL;
    if (g.stride > 1) x = oct_dilate(cx, x, g.stride);
    if (!x) return NULL;
    const oct_convolution v = {oct_conv_shape_of(oct_dim(x, 1), oct_dim(x, 2), oct_dim(x, 3),
                                                 oct_dim(w, 0), oct_conv_geometry_transposed(g)),
                               weight, bias};
    char text[96];
    if (v.shape.out_h < 1 || v.shape.out_w < 1)
        return oct_context_fail(cx, OCT_USAGE,
                                "conv_transpose2d: a padding of %d leaves nothing of the input %s",
                                g.padding, oct_shape_text(&x->shape, text));
    return oct_convolve(cx, op, x, &v);
}
