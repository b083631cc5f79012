/* A linear layer is the convolution of each position by itself. */
#include "core/op/convolve_impl.h"
#include "core/op/op_impl.h"
#include "core/op/ops.h"

oct_tensor *oct_linear(oct_context *cx, oct_tensor *x, oct_param *weight, oct_param *bias)
{
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    const oct_tensor *w = &weight->value;
    if (!oct_needs_f32(cx, "linear", x) || !oct_needs_batch(cx, "linear", x)) return NULL;
    char x_text[96], w_text[96];
    const int n = x->shape.ndim;
    if (n < 2 || n > 4 || w->shape.ndim != 2 || oct_dim(x, n - 1) != oct_dim(w, 1))
        return oct_context_fail(
            cx, OCT_USAGE,
            "linear: input %s (N, ..., I) and weight %s (O, I) do not fit together%s",
            oct_shape_text(&x->shape, x_text), oct_shape_text(&w->shape, w_text),
            n == 4 ? "; put a flatten or a global average pool before" : "");
    if (!oct_bias_fits(cx, "linear", bias, oct_dim(w, 0))) return NULL;
    const int64_t h = n == 4 ? oct_dim(x, 1) : 1, width = n >= 3 ? oct_dim(x, n - 2) : 1;
    const oct_convolution v = {oct_linear_shape(h, width, oct_dim(w, 1), oct_dim(w, 0)), weight,
                               bias};
    return oct_convolve(cx, "linear", x, &v);
}
