/* A convolution has two dimensions and may have groups. */
#include "core/op/convolve_impl.h"
#include "core/op/op_impl.h"
#include "core/op/ops.h"

/* Fails the context unless weight (O, kh, kw, I/groups) has the geometry's kernel, and groups that divide
 * both channels. */
static bool weight_fits(oct_context *cx, const oct_tensor *x, const oct_tensor *w,
                        oct_conv_geometry g)
{
    char x_text[96], w_text[96];
    oct_shape_text(&x->shape, x_text);
    oct_shape_text(&w->shape, w_text);
    bool fits = w->shape.ndim == 4 && x->shape.ndim == 4 && g.groups >= 1 &&
                oct_dim(w, 1) == g.kernel_h && oct_dim(w, 2) == g.kernel_w &&
                oct_dim(w, 0) % g.groups == 0 && oct_dim(w, 3) * g.groups == oct_dim(x, 3);
    if (!fits)
        oct_context_fail(
            cx, OCT_USAGE,
            "conv2d: input %s (N, H, W, I) and weight %s (O, kh, kw, I/groups) do not fit "
            "together with kernel %dx%d and groups %d",
            x_text, w_text, g.kernel_h, g.kernel_w, g.groups);
    return fits;
}

oct_tensor *oct_conv2d(oct_context *cx, oct_tensor *x, oct_param *weight, oct_param *bias,
                       oct_conv_geometry g)
{
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    const oct_tensor *w = &weight->value;
    if (!oct_needs_f32(cx, "conv2d", x) || !oct_needs_batch(cx, "conv2d", x)) return NULL;
    if (!weight_fits(cx, x, w, g) || !oct_bias_fits(cx, "conv2d", bias, oct_dim(w, 0))) return NULL;
    char windows[OCT_GEOMETRY_TEXT];
    oct_conv_geometry_text(&g, windows);
    if (!oct_conv_geometry_fits(&g))
        return oct_context_fail(cx, OCT_USAGE, "conv2d cannot have windows of %s; %s", windows,
                                oct_conv_geometry_rule);
    const oct_convolution v = {
        oct_conv_shape_of(oct_dim(x, 1), oct_dim(x, 2), oct_dim(x, 3), oct_dim(w, 0), g), weight,
        bias};
    char text[96];
    if (v.shape.out_h < 1 || v.shape.out_w < 1)
        return oct_context_fail(cx, OCT_USAGE,
                                "conv2d: a window of %s does not fit into the input %s", windows,
                                oct_shape_text(&x->shape, text));
    return oct_convolve(cx, "conv2d", x, &v);
}
