/* A transposed convolution is a convolution over the input with zeros between its values. */
#include "core/op/convolve_impl.h"
#include "core/op/op_impl.h"
#include "core/op/ops.h"

static bool weight_fits(oct_context *cx, const oct_tensor *x, const oct_tensor *w,
                        oct_conv_geometry g)
{
    char x_text[96], w_text[96];
    bool fits = w->shape.ndim == 4 && x->shape.ndim == 4 && g.groups >= 1 &&
                oct_dim(w, 1) == g.kernel_h && oct_dim(w, 2) == g.kernel_w &&
                oct_dim(w, 0) % g.groups == 0 && oct_dim(w, 3) * g.groups == oct_dim(x, 3);
    if (!fits)
        oct_context_fail(cx, OCT_USAGE,
                         "conv_transpose2d: input %s (N, H, W, I) and weight %s (O, kh, kw, "
                         "I/groups) do not fit together with kernel %dx%d and groups %d",
                         oct_shape_text(&x->shape, x_text), oct_shape_text(&w->shape, w_text),
                         g.kernel_h, g.kernel_w, g.groups);
    return fits;
}

oct_tensor *oct_conv_transpose2d(oct_context *cx, oct_tensor *x, oct_param *weight, oct_param *bias,
                                 oct_conv_geometry g)
{
    const char *op = "conv_transpose2d";
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    const oct_tensor *w = &weight->value;
    if (!oct_needs_f32(cx, op, x) || !oct_needs_batch(cx, op, x)) return NULL;
    char text[96], windows[OCT_GEOMETRY_TEXT];
    oct_conv_geometry_text(&g, windows);
    if (!oct_conv_transpose_geometry_fits(&g))
        return oct_context_fail(cx, OCT_USAGE, "%s cannot have windows of %s; %s", op, windows,
                                oct_conv_transpose_geometry_rule);
    if (!weight_fits(cx, x, w, g) || !oct_bias_fits(cx, op, bias, oct_dim(w, 0))) return NULL;
    const oct_convolution v = {
        oct_conv_transpose_shape_of(oct_dim(x, 1), oct_dim(x, 2), oct_dim(x, 3), oct_dim(w, 0), g),
        weight, bias};
    if (v.shape.out_h < 1 || v.shape.out_w < 1)
        return oct_context_fail(cx, OCT_USAGE, "%s: windows of %s leave nothing of the input %s",
                                op, windows, oct_shape_text(&x->shape, text));
    if (g.stride_h > 1 || g.stride_w > 1) x = oct_dilate(cx, x, g.stride_h, g.stride_w);
    if (!x) return NULL;
    return oct_convolve(cx, op, x, &v);
}
