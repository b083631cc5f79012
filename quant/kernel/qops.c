/* The integer layers beside the convolution: residual add, pools, and the way out to float. Plain
 * loops, which the compiler vectorises in the copies that OCT_CLONES makes. */
#include "quant/kernel/qops.h"

#include "quant/kernel/bits.h"

#include <math.h>

OCT_CLONES
void oct_requant_float(int64_t rows, int64_t channels, const int32_t *acc, const int32_t *bias,
                       const float *multiplier, float *y)
{
    for (int64_t r = 0; r < rows; r++, acc += channels, y += channels)
        for (int64_t c = 0; c < channels; c++)
            y[c] = (float)(acc[c] + bias[c]) * multiplier[c] + 0.0f; /* -0 becomes +0 */
}

enum { MOST_SHIFT = 30, MOST_MULTIPLIER = 1 << 21 };

static int32_t fixed_point(double ratio, int shift)
{
    const double wide = nearbyint(ldexp(ratio, shift));
    return wide < MOST_MULTIPLIER ? (int32_t)wide : MOST_MULTIPLIER;
}

oct_qadd oct_qadd_of(oct_qparams a, oct_qparams b, oct_qparams y, bool relu)
{
    const double ratio_a = (double)a.scale / (double)y.scale,
                 ratio_b = (double)b.scale / (double)y.scale;
    int exponent;
    (void)frexp(fmax(ratio_a, ratio_b), &exponent);
    int shift = 20 - exponent;
    shift = shift < 1 ? 1 : shift > MOST_SHIFT ? MOST_SHIFT : shift;
    const int32_t lo = y.qmin - y.zero_point;
    return (oct_qadd){.ma = fixed_point(ratio_a, shift),
                      .mb = fixed_point(ratio_b, shift),
                      .shift = shift,
                      .za = a.zero_point,
                      .zb = b.zero_point,
                      .lo = relu && lo < 0 ? 0 : lo,
                      .hi = y.qmax - y.zero_point,
                      .zero_point = y.zero_point,
                      .relu = relu};
}

/* No overflow: |code - zero_point| <= 255 and 0 <= ma, mb <= 2^21, so |t| <= 2 * 2^21 * 255 < 2^30, and
 * the rounding term is at most 2^29. */
OCT_CLONES
static void add_codes(int64_t n, const uint8_t *restrict a, const uint8_t *restrict b,
                      const oct_qadd *q, uint8_t *restrict codes)
{
    const int32_t ma = q->ma, mb = q->mb, za = q->za, zb = q->zb, lo = q->lo, hi = q->hi;
    const int32_t half = 1 << (q->shift - 1), shift = q->shift, zero_point = q->zero_point;
    for (int64_t i = 0; i < n; i++) {
        const int32_t t = ma * (a[i] - za) + mb * (b[i] - zb);
        int32_t r = (t + half) >> shift;
        r = r < lo ? lo : r;
        r = r > hi ? hi : r;
        codes[i] = (uint8_t)(r + zero_point);
    }
}

/* The same with flags and the least and largest t. */
OCT_CLONES
static void add_codes_watched(int64_t n, const uint8_t *restrict a, const uint8_t *restrict b,
                              const oct_qadd *q, uint8_t *restrict codes, uint8_t *restrict flags,
                              int32_t range[2])
{
    const int32_t ma = q->ma, mb = q->mb, za = q->za, zb = q->zb, lo = q->lo, hi = q->hi;
    const int32_t half = 1 << (q->shift - 1), shift = q->shift, zero_point = q->zero_point;
    const int32_t floor = q->relu ? 0 : INT32_MIN;
    int32_t least = range[0], most = range[1];
    for (int64_t i = 0; i < n; i++) {
        const int32_t t = ma * (a[i] - za) + mb * (b[i] - zb);
        const int32_t whole = (t + half) >> shift;
        int32_t r = whole < lo ? lo : whole;
        r = r > hi ? hi : r;
        codes[i] = (uint8_t)(r + zero_point);
        flags[i] = (uint8_t)((whole == r) & (t > floor));
        least = t < least ? t : least;
        most = t > most ? t : most;
    }
    range[0] = least;
    range[1] = most;
}

void oct_qadd_forward(int64_t n, const uint8_t *a, const uint8_t *b, const oct_qadd *q,
                      uint8_t *codes, uint8_t *mask, float *range)
{
    if (!mask && !range) {
        add_codes(n, a, b, q, codes);
        return;
    }
    uint8_t flags[OCT_FLAG_BLOCK];
    int32_t sums[2] = {INT32_MAX, INT32_MIN};
    for (int64_t i = 0; i < n; i += OCT_FLAG_BLOCK) {
        const int64_t count = n - i < OCT_FLAG_BLOCK ? n - i : OCT_FLAG_BLOCK;
        add_codes_watched(count, a + i, b + i, q, codes + i, flags, sums);
        if (mask) oct_bits_pack(flags, count, mask + i / 8);
    }
    if (!range || n == 0) return;
    /* Conversion and scaling keep order, so the ends of t give the ends of v. */
    for (int end = 0; end < 2; end++)
        if (q->relu && sums[end] < 0) sums[end] = 0;
    const float low = ldexpf((float)sums[0], -q->shift), high = ldexpf((float)sums[1], -q->shift);
    range[0] = low < range[0] ? low : range[0];
    range[1] = high > range[1] ? high : range[1];
}

OCT_CLONES
static void take_larger(int64_t n, const uint8_t *restrict x, uint8_t *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] > y[i] ? x[i] : y[i];
}

typedef struct span {
    int64_t first, end;
} span;

/* The part of a window that lies in the plane. */
static span window_of(int64_t out, int stride, int padding, int kernel, int64_t size)
{
    const int64_t first = out * stride - padding, end = first + kernel;
    return (span){first > 0 ? first : 0, end < size ? end : size};
}

void oct_qmax_pool(int64_t samples, int64_t h, int64_t w, int64_t c, int kernel, int stride,
                   int padding, const uint8_t *x, uint8_t *y)
{
    const int64_t out_h = (h + 2 * padding - kernel) / stride + 1;
    const int64_t out_w = (w + 2 * padding - kernel) / stride + 1;
    for (int64_t n = 0; n < samples; n++, x += h * w * c) {
        for (int64_t oy = 0; oy < out_h; oy++) {
            const span in_y = window_of(oy, stride, padding, kernel, h);
            for (int64_t ox = 0; ox < out_w; ox++, y += c) {
                const span in_x = window_of(ox, stride, padding, kernel, w);
                memset(y, 0, (size_t)c);
                for (int64_t iy = in_y.first; iy < in_y.end; iy++)
                    for (int64_t ix = in_x.first; ix < in_x.end; ix++)
                        take_larger(c, x + (iy * w + ix) * c, y);
            }
        }
    }
}

enum { POOL_CHANNELS = 256 }; /* whose sums are kept at a time */

OCT_CLONES
static void add_codes_to(int64_t n, const uint8_t *restrict x, int32_t *restrict sum)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += x[i];
}

OCT_CLONES
static void average_codes(int64_t n, const int32_t *restrict sum, int32_t offset, float one_over,
                          oct_qparams q, uint8_t *restrict y)
{
    const float zero_point = (float)q.zero_point, qmin = (float)q.qmin, qmax = (float)q.qmax;
    for (int64_t i = 0; i < n; i++) {
        float code = rintf((float)(sum[i] - offset) * one_over) + zero_point;
        code = code > qmin ? code : qmin;
        code = code < qmax ? code : qmax;
        y[i] = (uint8_t)(int32_t)code;
    }
}

void oct_qavg_pool(int64_t samples, int64_t h, int64_t w, int64_t c, int kernel_h, int kernel_w,
                   int stride, oct_qparams q, const uint8_t *x, uint8_t *y)
{
    const int64_t out_h = (h - kernel_h) / stride + 1, out_w = (w - kernel_w) / stride + 1;
    const int32_t count = kernel_h * kernel_w;
    const float one_over = 1.0f / (float)count;
    int32_t sum[POOL_CHANNELS];
    for (int64_t n = 0; n < samples; n++, x += h * w * c) {
        for (int64_t oy = 0; oy < out_h; oy++) {
            for (int64_t ox = 0; ox < out_w; ox++, y += c) {
                const uint8_t *corner = x + (oy * w + ox) * stride * c;
                for (int64_t at = 0; at < c; at += POOL_CHANNELS) {
                    const int64_t channels = c - at < POOL_CHANNELS ? c - at : POOL_CHANNELS;
                    memset(sum, 0, sizeof sum);
                    for (int64_t ky = 0; ky < kernel_h; ky++)
                        for (int64_t kx = 0; kx < kernel_w; kx++)
                            add_codes_to(channels, corner + (ky * w + kx) * c + at, sum);
                    average_codes(channels, sum, count * q.zero_point, one_over, q, y + at);
                }
            }
        }
    }
}
