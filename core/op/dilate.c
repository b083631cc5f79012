/* Images of f32 or of codes are dilated one by one. */
#include "core/op/op_impl.h"
#include "core/op/ops.h"
#include "core/tensor/conv_shape.h"

static void dilate_backward(oct_context *cx, oct_node *node)
{
    oct_tensor *x = node->input[0];
    const oct_dilation *d = node->saved;
    const int64_t in = d->h * d->w * d->c, out = d->out_h * d->out_w * d->c;
    float *grad = oct_grad_new(cx, x);
    if (!grad) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        oct_undilate_image(d, node->output->grad + i * out, grad + i * in);
    oct_add_grad(cx, x, grad);
}

oct_tensor *oct_dilate(oct_context *cx, oct_tensor *x, int step_h, int step_w)
{
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    if (!oct_needs_values_or_codes(cx, "dilate", x)) return NULL;
    char text[96];
    if (x->shape.ndim != 4 || oct_dim(x, 1) < 1 || oct_dim(x, 2) < 1 || step_h < 1 || step_w < 1)
        return oct_context_fail(
            cx, OCT_USAGE,
            "dilate takes images (N, H, W, C) and distances of 1 or more, but has %s and %dx%d",
            oct_shape_text(&x->shape, text), step_h, step_w);
    const oct_dilation d = oct_dilation_of(x->shape, step_h, step_w, x->dtype, x->q.zero_point);
    const int64_t size = (int64_t)oct_dtype_bytes(x->dtype);
    const int64_t in = d.h * d.w * d.c * size, out = d.out_h * d.out_w * d.c * size;
    oct_tensor *y = oct_tensor_new(cx, x->dtype, OCT_SHAPE(oct_dim(x, 0), d.out_h, d.out_w, d.c));
    if (!y) return NULL;
    y->q = x->q;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        oct_dilate_image(&d, (const char *)x->data + i * in, (char *)y->data + i * out);
    oct_node *node = oct_record(cx, "dilate", dilate_backward, &x, 1, false, y);
    return oct_node_save(cx, node, &d, sizeof d) ? y : NULL;
}
