/* Checks that many ops make, so that their sentences are the same everywhere. */
#include "core/op/op_impl.h"

bool oct_needs_params(oct_context *cx, const char *op, const oct_param *a, const oct_param *b)
{
    if (!a || !b) oct_context_fail(cx, OCT_USAGE, "%s is called with a parameter that is NULL", op);
    return a && b;
}

bool oct_needs_f32(oct_context *cx, const char *op, const oct_tensor *x)
{
    if (x->dtype == OCT_F32) return true;
    return oct_context_fail(cx, OCT_USAGE, "%s takes f32 values, but its input holds %s%s", op,
                            oct_dtype_name(x->dtype),
                            oct_is_codes(x) ? "; dequantize it first" : "");
}

bool oct_needs_values_or_codes(oct_context *cx, const char *op, const oct_tensor *x)
{
    if (x->dtype == OCT_F32 || oct_is_codes(x)) return true;
    return oct_context_fail(cx, OCT_USAGE,
                            "%s takes f32 values or u8 or u16 codes, but its input holds %s", op,
                            oct_dtype_name(x->dtype));
}

int64_t oct_sample_numel(const oct_shape *shape)
{
    oct_shape sample = *shape;
    sample.dim[0] = 1;
    return oct_shape_numel(&sample);
}

int64_t oct_sample_positions(const oct_tensor *x)
{
    int64_t positions = 1;
    for (int i = 1; i < x->shape.ndim - 1; i++)
        positions *= oct_dim(x, i);
    return positions;
}

bool oct_needs_images(oct_context *cx, const char *op, const oct_tensor *x)
{
    if (x->shape.ndim == 4 && oct_dim(x, 1) >= 1 && oct_dim(x, 2) >= 1) return true;
    return oct_context_fail(cx, OCT_USAGE, "%s takes images (N, H, W, C), but its input is %s", op,
                            oct_text_shape(&x->shape).text);
}

bool oct_needs_batch(oct_context *cx, const char *op, const oct_tensor *x)
{
    int64_t samples = oct_leaves_local_samples(&cx->leaves);
    if (x->shape.ndim > 0 && oct_dim(x, 0) == samples) return true;
    return oct_context_fail(
        cx, OCT_USAGE,
        "%s sums over the batch, but its input %s does not have the batch's %lld samples in front",
        op, oct_text_shape(&x->shape).text, (long long)samples);
}

bool oct_pool_fits(oct_context *cx, const char *op, const oct_tensor *x, const oct_pool_geometry *g,
                   oct_conv_shape *s)
{
    if (!oct_needs_images(cx, op, x)) return false;
    if (!oct_pool_geometry_fits(g))
        return oct_context_fail(cx, OCT_USAGE, "%s cannot have windows of %s; %s", op,
                                oct_text_pool_geometry(g).text, oct_pool_geometry_rule);
    *s = oct_pool_shape_of(oct_dim(x, 1), oct_dim(x, 2), oct_dim(x, 3), *g);
    if (s->out_h >= 1 && s->out_w >= 1) return true;
    return oct_context_fail(cx, OCT_USAGE, "%s: a window of %s does not fit into the input %s", op,
                            oct_text_pool_geometry(g).text, oct_text_shape(&x->shape).text);
}
