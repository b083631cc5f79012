/* Interpolation resizes images: each pixel is the nearest one, or the four around it mixed. */
#include "core/base/cpu.h"
#include "core/op/op_impl.h"

#include <string.h>

typedef struct resize {
    oct_interpolation mode;
    int64_t h, w, c, oh, ow;
} resize;

/* The four pixels around an output pixel, by their first values, and the weights of the lower row and of the right
 * column. */
typedef struct corners {
    int64_t pixel[4];
    float wy, wx;
} corners;

static float weight_of_high(const oct_resize_place *place)
{
    return (float)((double)place->part / (double)place->unit);
}

/* Returns the four input pixels around output pixel `at`, counted row by row, and their weights. */
static corners corners_of(const resize *r, int64_t at)
{
    const oct_resize_place y = oct_resize_place_of(r->mode, at / r->ow, r->h, r->oh);
    const oct_resize_place x = oct_resize_place_of(r->mode, at % r->ow, r->w, r->ow);
    return (corners){.pixel = {(y.low * r->w + x.low) * r->c, (y.low * r->w + x.high) * r->c,
                               (y.high * r->w + x.low) * r->c, (y.high * r->w + x.high) * r->c},
                     .wy = weight_of_high(&y),
                     .wx = weight_of_high(&x)};
}

OCT_CLONES
static void mix_corners(int64_t n, const corners *around, const float *x, float *restrict y)
{
    const float *a = x + around->pixel[0], *b = x + around->pixel[1], *c = x + around->pixel[2];
    const float *d = x + around->pixel[3];
    float wy = around->wy, wx = around->wx, vy = 1 - wy, vx = 1 - wx;
    for (int64_t i = 0; i < n; i++)
        y[i] = vy * (vx * a[i] + wx * b[i]) + wy * (vx * c[i] + wx * d[i]);
}

OCT_CLONES
static void add_scaled(int64_t n, float weight, const float *grad_y, float *restrict grad_x)
{
    for (int64_t i = 0; i < n; i++)
        grad_x[i] += weight * grad_y[i];
}

static void resize_image(const resize *r, const float *x, float *y)
{
    for (int64_t at = 0; at < r->oh * r->ow; at++, y += r->c) {
        corners around = corners_of(r, at);
        if (oct_is_bilinear(r->mode))
            mix_corners(r->c, &around, x, y);
        else
            memcpy(y, x + around.pixel[0], (size_t)r->c * sizeof(float)); /* the nearest one */
    }
}

static void resize_image_backward(const resize *r, const float *grad_y, float *grad_x)
{
    memset(grad_x, 0, (size_t)(r->h * r->w * r->c) * sizeof(float));
    for (int64_t at = 0; at < r->oh * r->ow; at++, grad_y += r->c) {
        corners around = corners_of(r, at);
        float vy = 1 - around.wy, vx = 1 - around.wx;
        float weight[4] = {vy * vx, vy * around.wx, around.wy * vx, around.wy * around.wx};
        for (int i = 0; i < (oct_is_bilinear(r->mode) ? 4 : 1); i++)
            add_scaled(r->c, weight[i], grad_y, grad_x + around.pixel[i]);
    }
}

static void interpolate_backward(oct_context *cx, oct_node *node)
{
    oct_tensor *x = node->input[0];
    const resize *r = node->saved;
    float *grad = oct_grad_new(cx, x);
    if (!grad) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        resize_image_backward(r, node->output->grad + i * r->oh * r->ow * r->c,
                              grad + i * r->h * r->w * r->c);
    oct_add_grad(cx, x, grad);
}

oct_tensor *oct_interpolate(oct_context *cx, oct_tensor *x, int64_t out_h, int64_t out_w,
                            oct_interpolation mode)
{
    oct_tensor *y;
    const oct_op_args *args = OCT_ARGS(interpolate, out_h, out_w, mode);
    if (oct_op_intercepted(cx, "interpolate", args, &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1) || !oct_needs_f32(cx, "interpolate", x)) return NULL;
    if (!oct_needs_images(cx, "interpolate", x)) return NULL;
    if (out_h < 1 || out_w < 1 || (int)mode < 0 || mode >= OCT_INTERPOLATIONS)
        return oct_context_fail(
            cx, OCT_USAGE,
            "interpolate cannot make %lldx%lld pixels in mode %d; height and width must be at "
            "least 1 and the mode 0 to %d",
            (long long)out_h, (long long)out_w, (int)mode, OCT_INTERPOLATIONS - 1);
    resize r = {mode, oct_dim(x, 1), oct_dim(x, 2), oct_dim(x, 3), out_h, out_w};
    y = oct_tensor_new(cx, OCT_F32, OCT_SHAPE(oct_dim(x, 0), out_h, out_w, r.c));
    if (!y) return NULL;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        resize_image(&r, oct_f32(x) + i * r.h * r.w * r.c, oct_f32(y) + i * r.oh * r.ow * r.c);
    oct_node *node = oct_record(cx, "interpolate", interpolate_backward, &x, 1, false, y);
    return oct_node_save(cx, node, &r, sizeof r) ? y : NULL;
}
