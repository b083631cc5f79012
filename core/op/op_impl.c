/* Checks that many ops make, so that their sentences are the same everywhere. */
#include "core/op/op_impl.h"

#include "core/kernel/conv.h"

bool oct_needs_f32(oct_context *cx, const char *op, const oct_tensor *x)
{
    if (x->dtype == OCT_F32) return true;
    oct_context_fail(cx, OCT_USAGE, "%s takes f32 values, but its input holds %s%s", op,
                     oct_dtype_name(x->dtype), oct_is_codes(x) ? "; dequantize it first" : "");
    return false;
}

int64_t oct_sample_numel(const oct_shape *shape)
{
    oct_shape sample = *shape;
    sample.dim[0] = 1;
    return oct_shape_numel(&sample);
}

bool oct_needs_batch(oct_context *cx, const char *op, const oct_tensor *x)
{
    int64_t samples = oct_leaves_local_samples(&cx->leaves);
    if (x->shape.ndim > 0 && oct_dim(x, 0) == samples) return true;
    char text[96];
    oct_context_fail(
        cx, OCT_DEFECT,
        "%s sums over the batch, but its input %s does not have the batch's %lld samples in front",
        op, oct_shape_text(&x->shape, text), (long long)samples);
    return false;
}

bool oct_needs_one_shape(oct_context *cx, const char *op, const oct_tensor *a, const oct_tensor *b)
{
    if (oct_shape_equal(&a->shape, &b->shape)) return true;
    char a_text[96], b_text[96];
    oct_context_fail(cx, OCT_USAGE, "%s takes two tensors of one shape, but has %s and %s", op,
                     oct_shape_text(&a->shape, a_text), oct_shape_text(&b->shape, b_text));
    return false;
}

bool oct_pool_window_fit(oct_context *cx, const char *op, const oct_tensor *x,
                         oct_pool_window *window)
{
    const int kernel = window->kernel, stride = window->stride, padding = window->padding;
    char text[96];
    oct_shape_text(&x->shape, text);
    if (x->shape.ndim != 4) {
        oct_context_fail(cx, OCT_USAGE, "%s takes images (N, H, W, C), but its input is %s", op,
                         text);
        return false;
    }
    if (kernel < 1 || stride < 1 || padding < 0 || padding >= kernel) {
        oct_context_fail(
            cx, OCT_USAGE,
            "%s cannot have kernel %d, stride %d and padding %d; kernel and stride must be at "
            "least 1 and the padding below the kernel",
            op, kernel, stride, padding);
        return false;
    }
    window->h = oct_dim(x, 1);
    window->w = oct_dim(x, 2);
    window->c = oct_dim(x, 3);
    window->oh = oct_conv_out(window->h, kernel, stride, padding);
    window->ow = oct_conv_out(window->w, kernel, stride, padding);
    if (window->oh >= 1 && window->ow >= 1) return true;
    oct_context_fail(cx, OCT_USAGE,
                     "%s: a %dx%d window with padding %d does not fit into the input %s", op,
                     kernel, kernel, padding, text);
    return false;
}
