/* Max pooling takes values or codes, whose order is the same.
 *
 * Nothing is saved: backward looks for the first maximum again by comparing the input with the
 * output. A NaN in the window is the maximum, so that a broken run is seen.
 */
#include "core/base/cpu.h"
#include "core/op/op_impl.h"
#include "core/op/ops.h"

#include <string.h>

/* A range is the part of a window that lies inside the image. */
typedef struct pool_range {
    int64_t y0, y1, x0, x1;
} pool_range;

static int64_t clamp(int64_t value, int64_t high)
{
    return value < 0 ? 0 : value > high ? high : value;
}

static pool_range range_of(const oct_pool_window *p, int64_t oy, int64_t ox)
{
    int64_t y = oy * p->stride - p->padding, x = ox * p->stride - p->padding;
    return (pool_range){clamp(y, p->h), clamp(y + p->kernel, p->h), clamp(x, p->w),
                        clamp(x + p->kernel, p->w)};
}

OCT_CLONES
static void raise_f32(int64_t n, const float *x, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] > y[i] || x[i] != x[i] ? x[i] : y[i];
}

/* Moves grad to to where x is the maximum y, and leaves 0 behind: later maxima get nothing. */
OCT_CLONES
static void pass_f32(int64_t n, const float *x, const float *y, float *restrict grad,
                     float *restrict to)
{
    for (int64_t i = 0; i < n; i++) {
        bool first = !(x[i] < y[i]);
        to[i] += first ? grad[i] : 0.0F;
        grad[i] = first ? 0.0F : grad[i];
    }
}

/* Codes have the same two loops. */
#define CODE_LOOPS(name, type)                                                                     \
    OCT_CLONES                                                                                     \
    static void raise_##name(int64_t n, const type *x, type *restrict y)                           \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                            \
            y[i] = x[i] > y[i] ? x[i] : y[i];                                                      \
    }                                                                                              \
    OCT_CLONES                                                                                     \
    static void pass_##name(int64_t n, const type *x, const type *y, float *restrict grad,         \
                            float *restrict to)                                                    \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            bool first = x[i] == y[i];                                                             \
            to[i] += first ? grad[i] : 0.0F;                                                       \
            grad[i] = first ? 0.0F : grad[i];                                                      \
        }                                                                                          \
    }
CODE_LOOPS(u8, uint8_t)
CODE_LOOPS(u16, uint16_t)

static void raise_any(oct_dtype dtype, int64_t n, const void *x, void *y)
{
    if (dtype == OCT_F32)
        raise_f32(n, x, y);
    else if (dtype == OCT_U8)
        raise_u8(n, x, y);
    else
        raise_u16(n, x, y);
}

static void pass_any(oct_dtype dtype, int64_t n, const void *x, const void *y, float *grad,
                     float *to)
{
    if (dtype == OCT_F32)
        pass_f32(n, x, y, grad, to);
    else if (dtype == OCT_U8)
        pass_u8(n, x, y, grad, to);
    else
        pass_u16(n, x, y, grad, to);
}

static void pool_image(const oct_pool_window *p, oct_dtype dtype, const char *x, char *y)
{
    int64_t bytes = p->c * (int64_t)oct_dtype_bytes(dtype);
    for (int64_t at = 0; at < p->oh * p->ow; at++, y += bytes) {
        pool_range r = range_of(p, at / p->ow, at % p->ow);
        memcpy(y, x + (r.y0 * p->w + r.x0) * bytes, (size_t)bytes);
        for (int64_t i = 0; i < (r.y1 - r.y0) * (r.x1 - r.x0); i++) {
            int64_t iy = r.y0 + i / (r.x1 - r.x0), ix = r.x0 + i % (r.x1 - r.x0);
            raise_any(dtype, p->c, x + (iy * p->w + ix) * bytes, y);
        }
    }
}

static void backward_image(const oct_pool_window *p, oct_dtype dtype, const char *x, const char *y,
                           float *grad_y, float *grad_x)
{
    int64_t bytes = p->c * (int64_t)oct_dtype_bytes(dtype);
    memset(grad_x, 0, (size_t)(p->h * p->w * p->c) * sizeof(float));
    for (int64_t at = 0; at < p->oh * p->ow; at++, y += bytes, grad_y += p->c) {
        pool_range r = range_of(p, at / p->ow, at % p->ow);
        for (int64_t iy = r.y0; iy < r.y1; iy++) {
            for (int64_t ix = r.x0; ix < r.x1; ix++) {
                int64_t at_x = iy * p->w + ix;
                pass_any(dtype, p->c, x + at_x * bytes, y, grad_y, grad_x + at_x * p->c);
            }
        }
    }
}

static void max_pool_backward(oct_context *cx, oct_node *node)
{
    oct_tensor *x = node->input[0], *y = node->output;
    const oct_pool_window *p = node->saved;
    float *grad_x = oct_grad_new(cx, x);
    if (!grad_x) return;
    float *grad_y = oct_take_grad(y);
    int64_t in = p->h * p->w * p->c, out = p->oh * p->ow * p->c,
            size = (int64_t)oct_dtype_bytes(x->dtype);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        backward_image(p, x->dtype, (const char *)x->data + i * in * size,
                       (const char *)y->data + i * out * size, grad_y + i * out, grad_x + i * in);
    oct_scratch_end(cx, grad_y);
    oct_give_grad(cx, x, grad_x);
}

oct_tensor *oct_max_pool(oct_context *cx, oct_tensor *x, int kernel, int stride, int padding)
{
    oct_tensor *y;
    if (oct_call_site(cx, "max_pool", OCT_OP_ARGS(kernel, stride, padding), &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    if (x->dtype != OCT_F32 && !oct_is_codes(x))
        return oct_context_fail(
            cx, OCT_USAGE, "max_pool takes f32 values or u8 or u16 codes, but its input holds %s",
            oct_dtype_name(x->dtype));
    oct_pool_window p = {.kernel = kernel, .stride = stride, .padding = padding};
    if (!oct_pool_window_fit(cx, "max_pool", x, &p)) return NULL;
    y = oct_tensor_new(cx, x->dtype, OCT_SHAPE(oct_dim(x, 0), p.oh, p.ow, p.c));
    if (!y) return NULL;
    y->q = x->q;
    int64_t size = (int64_t)oct_dtype_bytes(x->dtype);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++)
        pool_image(&p, x->dtype, (const char *)x->data + i * p.h * p.w * p.c * size,
                   (char *)y->data + i * p.oh * p.ow * p.c * size);
    oct_node *node = oct_record(cx, "max_pool", max_pool_backward, &x, 1, false, y);
    if (node) {
        oct_pool_window *saved = node->saved = oct_save(cx, sizeof *saved);
        if (!saved) return NULL;
        *saved = p;
    }
    return y;
}
