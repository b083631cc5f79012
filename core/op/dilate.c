/* Dilation puts rows and columns of zeros between the values of an image, of f32 or of codes: a
 * transposed convolution does so before it convolves. */
#include "core/op/op_impl.h"
#include "core/op/ops.h"

#include <string.h>

typedef struct dilation {
    int64_t h, w, oh, ow;
    int step;
} dilation;

static dilation dilation_of(const oct_tensor *x, int step)
{
    int64_t h = oct_dim(x, 1), w = oct_dim(x, 2);
    return (dilation){h, w, (h - 1) * step + 1, (w - 1) * step + 1, step};
}

/* Writes the zero of `dtype` to n elements. */
static void fill_zero(oct_dtype dtype, oct_qparams q, int64_t n, void *y)
{
    if (dtype == OCT_U16) {
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)y)[i] = (uint16_t)q.zero_point;
        return;
    }
    memset(y, dtype == OCT_U8 ? q.zero_point : 0, (size_t)n * oct_dtype_bytes(dtype));
}

/* Copies the pixels of x, of `bytes` each, to where they belong in y. */
static void dilate_image(const dilation *s, size_t bytes, const char *x, char *y)
{
    for (int64_t at = 0; at < s->h * s->w; at++, x += bytes)
        memcpy(y + (at / s->w * s->ow + at % s->w) * s->step * (int64_t)bytes, x, bytes);
}

static void gather_image(const dilation *s, int64_t channels, const float *y, float *x)
{
    for (int64_t at = 0; at < s->h * s->w; at++, x += channels)
        memcpy(x, y + (at / s->w * s->ow + at % s->w) * s->step * channels,
               (size_t)channels * sizeof(float));
}

static void dilate_backward(oct_context *cx, oct_node *node)
{
    oct_tensor *x = node->input[0];
    const dilation *s = node->saved;
    int64_t c = oct_dim(x, 3);
    float *grad = oct_grad_new(cx, x);
    if (!grad) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        gather_image(s, c, node->output->grad + i * s->oh * s->ow * c, grad + i * s->h * s->w * c);
    oct_give_grad(cx, x, grad);
}

oct_tensor *oct_dilate(oct_context *cx, oct_tensor *x, int step)
{
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    if (x->dtype != OCT_F32 && !oct_is_codes(x))
        return oct_context_fail(
            cx, OCT_USAGE, "dilate takes f32 values or u8 or u16 codes, but its input holds %s",
            oct_dtype_name(x->dtype));
    char text[96];
    if (x->shape.ndim != 4 || oct_dim(x, 1) < 1 || oct_dim(x, 2) < 1 || step < 1)
        return oct_context_fail(
            cx, OCT_USAGE,
            "dilate takes images (N, H, W, C) and a distance of 1 or more, but has %s and %d",
            oct_shape_text(&x->shape, text), step);
    dilation s = dilation_of(x, step);
    int64_t c = oct_dim(x, 3), size = (int64_t)oct_dtype_bytes(x->dtype);
    oct_tensor *y = oct_tensor_new(cx, x->dtype, OCT_SHAPE(oct_dim(x, 0), s.oh, s.ow, c));
    if (!y) return NULL;
    y->q = x->q;
    int64_t in = s.h * s.w * c, out = s.oh * s.ow * c;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++) {
        char *image = (char *)y->data + i * out * size;
        fill_zero(x->dtype, x->q, out, image);
        dilate_image(&s, (size_t)(c * size), (const char *)x->data + i * in * size, image);
    }
    oct_node *node = oct_record(cx, "dilate", dilate_backward, &x, 1, false, y);
    if (node) {
        dilation *saved = node->saved = oct_save(cx, sizeof *saved);
        if (!saved) return NULL;
        *saved = s;
    }
    return y;
}
