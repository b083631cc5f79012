/* Sums of two tensors of codes: bytes in 32 bits, anything wider in 64 bits. */
#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "quant/rounding/bits.h"
#include "quant/kernel/qcodes.h"

#include <math.h>

enum { BITS_OF_FLOATS = 21 };

/* These limits keep sums from overflowing. Bytes: |code - zero_point| <= 255, 0 <= ma <= 2^21 and |mb| <= 2^21, so
 * |t| <= 2 * 2^21 * 255 < 2^30, and the rounding term is at most 2^29. Wide: 65535 and 2^37, so |t| <
 * 2^54, and the rounding term is at most 2^59. */
typedef struct limits {
    int bits, most_shift;
    int64_t most_multiplier;
} limits;

static bool is_wide(oct_qparams q)
{
    return oct_codes_dtype(q) == OCT_U16;
}

static limits limits_of(oct_qparams a, oct_qparams b, oct_qparams y)
{
    return is_wide(a) || is_wide(b) || is_wide(y)
               ? (limits){.bits = 36, .most_shift = 60, .most_multiplier = INT64_C(1) << 37}
               : (limits){.bits = 20, .most_shift = 30, .most_multiplier = INT64_C(1) << 21};
}

static int64_t fixed_point(double ratio, int shift, const limits *l)
{
    const double wide = nearbyint(ldexp(ratio, shift));
    return wide < (double)l->most_multiplier ? (int64_t)wide : l->most_multiplier;
}

/* The larger multiplier gets so many bits. */
static oct_qadd sum_of(oct_qparams a, oct_qparams b, oct_qparams y, bool relu, double ratio_a,
                       double ratio_b, int bits)
{
    const limits l = limits_of(a, b, y);
    int exponent;
    (void)frexp(fmax(ratio_a, ratio_b), &exponent);
    const int shift = (int)oct_max_i64(oct_min_i64(bits - exponent, l.most_shift), 1);
    const int32_t lo = y.qmin - y.zero_point;
    return (oct_qadd){.ma = fixed_point(ratio_a, shift, &l),
                      .mb = fixed_point(ratio_b, shift, &l),
                      .shift = shift,
                      .za = a.zero_point,
                      .zb = b.zero_point,
                      .lo = relu && lo < 0 ? 0 : lo,
                      .hi = y.qmax - y.zero_point,
                      .zero_point = y.zero_point,
                      .relu = relu};
}

oct_qadd oct_qadd_of(oct_qparams a, oct_qparams b, oct_qparams y, bool relu)
{
    return sum_of(a, b, y, relu, (double)a.scale / (double)y.scale,
                  (double)b.scale / (double)y.scale, limits_of(a, b, y).bits);
}

oct_qadd oct_qadd_of_floats(oct_qparams a, oct_qparams b, oct_qparams y, bool relu)
{
    const float ratio_a = a.scale / y.scale, ratio_b = b.scale / y.scale;
    return sum_of(a, b, y, relu, (double)ratio_a, (double)ratio_b, BITS_OF_FLOATS);
}

static int32_t code_at(double x, int32_t lo, int32_t hi)
{
    return (int32_t)fmin(fmax(nearbyint(x), lo), hi);
}

void oct_qadd_clip(oct_qadd *add, oct_qparams y, double lo, double hi)
{
    const double low = lo / (double)y.scale, high = hi / (double)y.scale;
    const double end = 0x1p60; /* beyond every sum */
    add->clips = true;
    add->least = (int64_t)fmin(fmax(ceil(ldexp(low, add->shift)), -end), end);
    add->most = (int64_t)fmin(fmax(floor(ldexp(high, add->shift)), -end), end);
    const int32_t first = add->lo;
    add->lo = code_at(low, first, add->hi);
    add->hi = code_at(high, first, add->hi);
}

/* Between which sums a gradient passes. */
typedef struct pass_bounds {
    int64_t least, most;
} pass_bounds;

static pass_bounds pass_of(const oct_qadd *q)
{
    pass_bounds p = {q->relu ? 1 : INT64_MIN, INT64_MAX};
    if (!q->clips) return p;
    return (pass_bounds){oct_max_i64(p.least, q->least), oct_min_i64(p.most, q->most)};
}

bool oct_qadd_fits(const oct_qadd *add, oct_qparams a, oct_qparams b, oct_qparams y)
{
    const limits l = limits_of(a, b, y);
    return add->ma >= 0 && add->ma <= l.most_multiplier && add->mb >= -l.most_multiplier &&
           add->mb <= l.most_multiplier && add->shift >= 1 && add->shift <= l.most_shift;
}

oct_qadd_steps oct_qadd_steps_of(const oct_qadd *add, oct_qparams a, oct_qparams b, oct_qparams y)
{
    const oct_requantizer r = OCT_REQUANT_DOUBLE;
    const float two = 2 * fmaxf(a.scale, b.scale), unit = (float)(1 << OCT_QADD_LEFT) * y.scale;
    if (add->mb < 0) {
        const float ratio_a = a.scale / two, ratio_b = b.scale / two, ratio_y = two / unit;
        return (oct_qadd_steps){oct_fixed_of(r, (double)ratio_a), oct_fixed_of(r, (double)ratio_b),
                                oct_fixed_of(r, (double)ratio_y)};
    }
    return (oct_qadd_steps){oct_fixed_of(r, (double)a.scale / (double)two),
                            oct_fixed_of(r, (double)b.scale / (double)two),
                            oct_fixed_of(r, (double)two / (double)unit)};
}

bool oct_qadd_steps_fit(const oct_qadd_steps *steps)
{
    return steps->y.multiplier > 0 && steps->y.exponent <= 0;
}

/* The larger scale is shifted to the left so far that the other one's multiplier has at most 15 bits. */
oct_qadd_shifted oct_qadd_shifted_of(const oct_qadd *add, oct_qparams a, oct_qparams b,
                                     oct_qparams y)
{
    const bool first = a.scale >= b.scale, wide = is_wide(a) || is_wide(b) || is_wide(y);
    const double larger = (double)(first ? a : b).scale, other = (double)(first ? b : a).scale;
    const double ratio = other / larger;
    int shift = wide ? 15 : 23;
    while (shift > 0 && floor(ldexp(ratio, shift) + 0.5) > INT16_MAX)
        shift--;
    const int64_t one = INT64_C(1) << shift, share = (int64_t)floor(ldexp(ratio, shift) + 0.5);
    return (oct_qadd_shifted){
        .a = first ? one : share,
        .b = (first ? share : one) * (add->mb < 0 ? -1 : 1),
        .y = oct_fixed_of(OCT_REQUANT_Q15, ldexp(larger, -shift) / (double)y.scale)};
}

OCT_CLONES
static void add_bytes(int64_t n, const uint8_t *restrict a, const uint8_t *restrict b,
                      const oct_qadd *q, uint8_t *restrict codes)
{
    const int32_t ma = (int32_t)q->ma, mb = (int32_t)q->mb, za = q->za, zb = q->zb;
    const int32_t lo = q->lo, hi = q->hi;
    const int32_t half = 1 << (q->shift - 1), shift = q->shift, zero_point = q->zero_point;
    for (int64_t i = 0; i < n; i++) {
        const int32_t t = ma * (a[i] - za) + mb * (b[i] - zb);
        int32_t r = (t + half) >> shift;
        r = r < lo ? lo : r;
        r = r > hi ? hi : r;
        codes[i] = (uint8_t)(r + zero_point);
    }
}

/* Adds bytes as add_bytes does, and also notes flags and the least and largest t. */
OCT_CLONES
static void add_bytes_watched(int64_t n, const uint8_t *restrict a, const uint8_t *restrict b,
                              const oct_qadd *q, uint8_t *restrict codes, uint8_t *restrict flags,
                              int64_t sums[2])
{
    const int32_t ma = (int32_t)q->ma, mb = (int32_t)q->mb, za = q->za, zb = q->zb;
    const int32_t lo = q->lo, hi = q->hi;
    const int32_t half = 1 << (q->shift - 1), shift = q->shift, zero_point = q->zero_point;
    const pass_bounds pass = pass_of(q);
    const int32_t from = (int32_t)oct_min_i64(oct_max_i64(pass.least, INT32_MIN), INT32_MAX);
    const int32_t to = (int32_t)oct_min_i64(oct_max_i64(pass.most, INT32_MIN), INT32_MAX);
    int32_t least = INT32_MAX, most = INT32_MIN;
    for (int64_t i = 0; i < n; i++) {
        const int32_t t = ma * (a[i] - za) + mb * (b[i] - zb);
        const int32_t whole = (t + half) >> shift;
        int32_t r = whole < lo ? lo : whole;
        r = r > hi ? hi : r;
        codes[i] = (uint8_t)(r + zero_point);
        flags[i] = (uint8_t)((whole == r) & (t >= from) & (t <= to));
        least = t < least ? t : least;
        most = t > most ? t : most;
    }
    sums[0] = oct_min_i64(sums[0], least);
    sums[1] = oct_max_i64(sums[1], most);
}

/* a becomes the logical codes of the sums; what is beyond them is cut. */
OCT_CLONES
static void add_in_steps(int64_t n, int32_t *restrict a, const int32_t *restrict b,
                         const oct_qadd *q, const oct_qadd_steps *steps, uint8_t *restrict flags,
                         int64_t sums[2])
{
    const int64_t ma = q->ma, mb = q->mb, lo = q->lo, hi = q->hi, sign = mb < 0 ? -1 : 1;
    const oct_fixed of_a = steps->a, of_b = steps->b, of_y = steps->y;
    const pass_bounds pass = pass_of(q);
    int64_t least = sums[0], most = sums[1];
    for (int64_t i = 0; i < n; i++) {
        const int64_t unit = 1 << OCT_QADD_LEFT, t = ma * a[i] + mb * b[i];
        const int64_t sum =
            oct_fixed_double(a[i] * unit, of_a) + sign * oct_fixed_double(b[i] * unit, of_b);
        const int64_t whole = oct_fixed_double(sum, of_y);
        int64_t r = whole < lo ? lo : whole;
        r = r > hi ? hi : r;
        a[i] = (int32_t)r;
        flags[i] = (uint8_t)((whole == r) & (t >= pass.least) & (t <= pass.most));
        least = t < least ? t : least;
        most = t > most ? t : most;
    }
    sums[0] = least;
    sums[1] = most;
}

/* So here. */
OCT_CLONES
static void add_by_shift(int64_t n, int32_t *restrict a, const int32_t *restrict b,
                         const oct_qadd *q, const oct_qadd_shifted *by, bool wide,
                         uint8_t *restrict flags, int64_t sums[2])
{
    const int64_t ma = q->ma, mb = q->mb, lo = q->lo, hi = q->hi, of_a = by->a, of_b = by->b;
    const oct_fixed of_y = by->y;
    const pass_bounds pass = pass_of(q);
    int64_t least = sums[0], most = sums[1];
    for (int64_t i = 0; i < n; i++) {
        const int64_t t = ma * a[i] + mb * b[i];
        const int64_t whole = oct_fixed_q15(of_a * a[i] + of_b * b[i], of_y, wide);
        int64_t r = whole < lo ? lo : whole;
        r = r > hi ? hi : r;
        a[i] = (int32_t)r;
        flags[i] = (uint8_t)((whole == r) & (t >= pass.least) & (t <= pass.most));
        least = t < least ? t : least;
        most = t > most ? t : most;
    }
    sums[0] = least;
    sums[1] = most;
}

/* a becomes the logical codes of the sums. */
OCT_CLONES
static void add_wide(int64_t n, int32_t *restrict a, const int32_t *restrict b, const oct_qadd *q,
                     uint8_t *restrict flags, int64_t sums[2])
{
    const int64_t ma = q->ma, mb = q->mb, half = INT64_C(1) << (q->shift - 1);
    const int64_t lo = q->lo, hi = q->hi;
    const pass_bounds pass = pass_of(q);
    int64_t least = sums[0], most = sums[1];
    for (int64_t i = 0; i < n; i++) {
        const int64_t t = ma * a[i] + mb * b[i];
        const int64_t whole = (t + half) >> q->shift;
        int64_t r = whole < lo ? lo : whole;
        r = r > hi ? hi : r;
        a[i] = (int32_t)r;
        flags[i] = (uint8_t)((whole == r) & (t >= pass.least) & (t <= pass.most));
        least = t < least ? t : least;
        most = t > most ? t : most;
    }
    sums[0] = least;
    sums[1] = most;
}

static int64_t cut_sum(const oct_qadd *q, int64_t sum)
{
    if (q->relu) sum = oct_max_i64(sum, 0);
    return q->clips ? oct_min_i64(oct_max_i64(sum, q->least), q->most) : sum;
}

/* Conversion and scaling keep order, so the ends of t give the ends of the values. */
static void merge_range(const oct_qadd *q, const int64_t sums[2], float scale, float *range)
{
    const int64_t least = cut_sum(q, sums[0]), most = cut_sum(q, sums[1]);
    const float low = ldexpf((float)least, -q->shift) * scale;
    const float high = ldexpf((float)most, -q->shift) * scale;
    range[0] = low < range[0] ? low : range[0];
    range[1] = high > range[1] ? high : range[1];
}

void oct_qadd_forward(int64_t n, oct_qcodes a, oct_qcodes b, const oct_qadd *add, oct_requantizer r,
                      const oct_qoutput *y)
{
    const bool in_steps = r == OCT_REQUANT_DOUBLE, by_shift = r == OCT_REQUANT_Q15;
    const bool bytes = !in_steps && !by_shift && !is_wide(a.q) && !is_wide(b.q) && !is_wide(y->q);
    const oct_qadd_steps steps =
        in_steps ? oct_qadd_steps_of(add, a.q, b.q, y->q) : (oct_qadd_steps){0};
    const oct_qadd_shifted shifted =
        by_shift ? oct_qadd_shifted_of(add, a.q, b.q, y->q) : (oct_qadd_shifted){0};
    if (bytes && !y->mask && !y->range) {
        add_bytes(n, a.data, b.data, add, y->data);
        return;
    }
    int32_t left[OCT_FLAG_BLOCK], right[OCT_FLAG_BLOCK];
    uint8_t flags[OCT_FLAG_BLOCK];
    int64_t sums[2] = {INT64_MAX, INT64_MIN};
    for (int64_t i = 0; i < n; i += OCT_FLAG_BLOCK) {
        const int64_t count = oct_min_i64(n - i, OCT_FLAG_BLOCK);
        if (bytes) {
            add_bytes_watched(count, (const uint8_t *)a.data + i, (const uint8_t *)b.data + i, add,
                              (uint8_t *)y->data + i, flags, sums);
        } else {
            oct_qcodes_load(a, i, count, left);
            oct_qcodes_load(b, i, count, right);
            if (in_steps)
                add_in_steps(count, left, right, add, &steps, flags, sums);
            else if (by_shift)
                add_by_shift(count, left, right, add, &shifted, is_wide(y->q), flags, sums);
            else
                add_wide(count, left, right, add, flags, sums);
            oct_qcodes_store(left, count, y->q, y->data, i);
        }
        if (y->mask) oct_bits_pack(flags, count, y->mask + i / 8);
    }
    if (y->range && n > 0) merge_range(add, sums, y->q.scale, y->range);
}
