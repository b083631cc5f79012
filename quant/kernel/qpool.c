/* Pools of codes. */
#include "core/base/cpu.h"
#include "core/base/whole.h"
#include "quant/kernel/qcodes.h"

#include <math.h>
#include <string.h>

typedef struct span {
    int64_t first, end;
} span;

/* The part of a window that lies in the plane. */
static span window_of(int64_t out, int stride, int padding, int kernel, int64_t size)
{
    const int64_t first = out * stride - padding, end = first + kernel;
    return (span){oct_larger(first, 0), oct_smaller(end, size)};
}

#define OCT_LARGER(name, code_t)                                                                   \
    OCT_CLONES                                                                                     \
    static void name(int64_t n, const code_t *restrict x, code_t *restrict y)                      \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                            \
            y[i] = x[i] > y[i] ? x[i] : y[i];                                                      \
    }

OCT_LARGER(take_larger8, uint8_t)
OCT_LARGER(take_larger16, uint16_t)

static void take_larger(int64_t c, oct_qcodes x, void *codes)
{
    if (oct_codes_dtype(x.q) == OCT_U8)
        take_larger8(c, x.data, codes);
    else
        take_larger16(c, x.data, codes);
}

void oct_qmax_pool(int64_t samples, int64_t h, int64_t w, int64_t c, int kernel, int stride,
                   int padding, oct_qcodes x, void *codes)
{
    const int64_t out_h = (h + 2 * padding - kernel) / stride + 1;
    const int64_t out_w = (w + 2 * padding - kernel) / stride + 1;
    const size_t pixel = (size_t)c * oct_dtype_bytes(oct_codes_dtype(x.q));
    uint8_t *y = codes;
    for (int64_t n = 0; n < samples; n++) {
        const oct_qcodes plane = oct_qcodes_from(x, n * h * w * c);
        for (int64_t oy = 0; oy < out_h; oy++) {
            const span in_y = window_of(oy, stride, padding, kernel, h);
            for (int64_t ox = 0; ox < out_w; ox++, y += pixel) {
                const span in_x = window_of(ox, stride, padding, kernel, w);
                memset(y, 0, pixel);
                for (int64_t iy = in_y.first; iy < in_y.end; iy++)
                    for (int64_t ix = in_x.first; ix < in_x.end; ix++)
                        take_larger(c, oct_qcodes_from(plane, (iy * w + ix) * c), y);
            }
        }
    }
}

enum { POOL_CHANNELS = 256 }; /* whose sums are kept at a time */

#define OCT_AVERAGE(add, average, code_t, sum_t, float_t, round)                                   \
    OCT_CLONES                                                                                     \
    static void add(int64_t n, const code_t *restrict x, sum_t *restrict sum)                      \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                            \
            sum[i] += x[i];                                                                        \
    }                                                                                              \
                                                                                                   \
    OCT_CLONES                                                                                     \
    static void average(int64_t n, const sum_t *restrict sum, int64_t count, oct_qparams q,        \
                        code_t *restrict y)                                                        \
    {                                                                                              \
        const float_t zero_point = (float_t)q.zero_point, qmin = (float_t)q.qmin,                  \
                      qmax = (float_t)q.qmax, one_over = 1 / (float_t)count;                       \
        const sum_t offset = (sum_t)(count * q.zero_point);                                        \
        for (int64_t i = 0; i < n; i++) {                                                          \
            float_t code = round((float_t)(sum[i] - offset) * one_over) + zero_point;              \
            code = code > qmin ? code : qmin;                                                      \
            code = code < qmax ? code : qmax;                                                      \
            y[i] = (code_t)(int32_t)code;                                                          \
        }                                                                                          \
    }

/* Windows have at most 2^20 positions: a sum of bytes is below 2^28. */
OCT_AVERAGE(add_bytes, average_bytes, uint8_t, int32_t, float, rintf)
OCT_AVERAGE(add_wide, average_wide, uint16_t, int64_t, double, rint)

typedef struct window {
    int64_t h, w, stride; /* stride: codes in a row of the plane */
    int64_t c;            /* codes in a pixel */
} window;

static void average_codes(const window *p, const uint8_t *corner, int64_t channels, oct_qparams q,
                          uint8_t *y)
{
    int32_t sum[POOL_CHANNELS] = {0};
    for (int64_t ky = 0; ky < p->h; ky++)
        for (int64_t kx = 0; kx < p->w; kx++)
            add_bytes(channels, corner + ky * p->stride + kx * p->c, sum);
    average_bytes(channels, sum, p->h * p->w, q, y);
}

static void average_codes16(const window *p, const uint16_t *corner, int64_t channels,
                            oct_qparams q, uint16_t *y)
{
    int64_t sum[POOL_CHANNELS] = {0};
    for (int64_t ky = 0; ky < p->h; ky++)
        for (int64_t kx = 0; kx < p->w; kx++)
            add_wide(channels, corner + ky * p->stride + kx * p->c, sum);
    average_wide(channels, sum, p->h * p->w, q, y);
}

void oct_qavg_pool(int64_t samples, int64_t h, int64_t w, int64_t c, int kernel_h, int kernel_w,
                   int stride, oct_qcodes x, void *codes)
{
    const int64_t out_h = (h - kernel_h) / stride + 1, out_w = (w - kernel_w) / stride + 1;
    const window p = {.h = kernel_h, .w = kernel_w, .stride = w * c, .c = c};
    const bool bytes = oct_codes_dtype(x.q) == OCT_U8;
    for (int64_t i = 0; i < samples * out_h * out_w; i++) {
        const int64_t n = i / (out_h * out_w), oy = i / out_w % out_h, ox = i % out_w;
        const int64_t corner = ((n * h + oy * stride) * w + ox * stride) * c;
        for (int64_t at = 0; at < c; at += POOL_CHANNELS) {
            const int64_t channels = oct_smaller(c - at, POOL_CHANNELS);
            const void *from = oct_qcodes_from(x, corner + at).data;
            void *to = oct_qcodes_place(codes, x.q, i * c + at);
            if (bytes)
                average_codes(&p, from, channels, x.q, to);
            else
                average_codes16(&p, from, channels, x.q, to);
        }
    }
}
