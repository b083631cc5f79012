/* The step add adds two tensors of codes, or subtracts the second; one may be broadcast. */
#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "quant/program/step.h"
#include "quant/rounding/bits.h"

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

static int64_t to_fixed_point(double ratio, int shift, const limits *l)
{
    const double wide = nearbyint(ldexp(ratio, shift));
    return wide < (double)l->most_multiplier ? (int64_t)wide : l->most_multiplier;
}

/* Makes the constants of a sum from the ratios of scales, with `bits` bits for the larger multiplier:
 * code = clamp((ma * (a - za) + mb * (b - zb) + 2^(shift-1)) >> shift, lo, hi) + zero_point. */
static oct_qadd make_multipliers(oct_qparams a, oct_qparams b, oct_qparams y, bool relu,
                                 double ratio_a, double ratio_b, int bits)
{
    const limits l = limits_of(a, b, y);
    int exponent;
    (void)frexp(fmax(ratio_a, ratio_b), &exponent);
    const int shift = (int)oct_max_i64(oct_min_i64(bits - exponent, l.most_shift), 1);
    const int32_t lo = y.qmin - y.zero_point;
    return (oct_qadd){.ma = to_fixed_point(ratio_a, shift, &l),
                      .mb = to_fixed_point(ratio_b, shift, &l),
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
    return make_multipliers(a, b, y, relu, (double)a.scale / (double)y.scale,
                            (double)b.scale / (double)y.scale, limits_of(a, b, y).bits);
}

oct_qadd oct_qadd_of_floats(oct_qparams a, oct_qparams b, oct_qparams y, bool relu)
{
    const float ratio_a = a.scale / y.scale, ratio_b = b.scale / y.scale;
    return make_multipliers(a, b, y, relu, (double)ratio_a, (double)ratio_b, BITS_OF_FLOATS);
}

static int32_t clamp_to_code(double x, int32_t lo, int32_t hi)
{
    return (int32_t)fmin(fmax(nearbyint(x), lo), hi);
}

/* least and most bound the sum before the shift, lo and hi the code. */
void oct_qadd_clip(oct_qadd *add, oct_qparams y, double lo, double hi)
{
    const double low = lo / (double)y.scale, high = hi / (double)y.scale;
    const double end = 0x1p60; /* beyond every sum */
    add->clips = true;
    add->least = (int64_t)fmin(fmax(ceil(ldexp(low, add->shift)), -end), end);
    add->most = (int64_t)fmin(fmax(floor(ldexp(high, add->shift)), -end), end);
    const int32_t first = add->lo;
    add->lo = clamp_to_code(low, first, add->hi);
    add->hi = clamp_to_code(high, first, add->hi);
}

bool oct_qadd_fits(const oct_qadd *add, oct_qparams a, oct_qparams b, oct_qparams y)
{
    const limits l = limits_of(a, b, y);
    return add->ma >= 0 && add->ma <= l.most_multiplier && add->mb >= -l.most_multiplier &&
           add->mb <= l.most_multiplier && add->shift >= 1 && add->shift <= l.most_shift;
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
static void add_bytes_watched(const uint8_t *restrict a, const uint8_t *restrict b,
                              const oct_qadd *q, uint8_t *restrict codes, oct_code_block *k)
{
    const int64_t n = k->n;
    uint8_t *restrict flags = k->flags;
    const int32_t ma = (int32_t)q->ma, mb = (int32_t)q->mb, za = q->za, zb = q->zb;
    const int32_t lo = q->lo, hi = q->hi;
    const int32_t half = 1 << (q->shift - 1), shift = q->shift, zero_point = q->zero_point;
    const oct_pass_bounds pass = oct_qadd_pass(q);
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
    k->least = oct_min_i64(k->least, least);
    k->most = oct_max_i64(k->most, most);
}

static inline int64_t round_pair(int64_t t, int64_t a, int64_t b, const oct_qadd *q,
                                 const oct_sum_constants *s, bool wide_output)
{
    (void)a, (void)b, (void)s, (void)wide_output;
    return (t + (INT64_C(1) << (q->shift - 1))) >> q->shift;
}

#include "quant/rounding/sum_loop.h"

/* Cuts an exact sum where relu or clip do. */
static int64_t cut_sum(const oct_qadd *q, int64_t sum)
{
    if (q->relu) sum = oct_max_i64(sum, 0);
    return q->clips ? oct_min_i64(oct_max_i64(sum, q->least), q->most) : sum;
}

/* Merges the ends of t / 2^shift * scale, the real values of sums t, into range; order is kept, so ends of t do. */
static void merge_range(const oct_qadd *q, const oct_code_block *k, float scale, float *range)
{
    const int64_t least = cut_sum(q, k->least), most = cut_sum(q, k->most);
    const float low = ldexpf((float)least, -q->shift) * scale;
    const float high = ldexpf((float)most, -q->shift) * scale;
    range[0] = low < range[0] ? low : range[0];
    range[1] = high > range[1] ? high : range[1];
}

/* Adds n codes of a and b: bytes in one loop, otherwise in blocks, with y's clip mask and range for training. */
void oct_qadd_forward(int64_t n, oct_qcodes a, oct_qcodes b, const oct_qadd *add, oct_requantizer r,
                      const oct_qoutput *y)
{
    const oct_rounding_row *rounding = oct_rounding_of(r);
    const bool wide = is_wide(a.q) || is_wide(b.q) || is_wide(y->q),
               bytes = !rounding->sum && !wide;
    const oct_sum_constants constants =
        rounding->sum ? rounding->sum_of(add, a.q, b.q, y->q) : (oct_sum_constants){0};
    if (bytes && !y->mask && !y->range) {
        add_bytes(n, a.data, b.data, add, y->data);
        return;
    }
    int32_t left[OCT_FLAG_BLOCK], right[OCT_FLAG_BLOCK];
    uint8_t flags[OCT_FLAG_BLOCK];
    oct_code_block k = {.a = left,
                        .b = right,
                        .flags = flags,
                        .wide = wide,
                        .wide_output = is_wide(y->q),
                        .least = INT64_MAX,
                        .most = INT64_MIN};
    for (int64_t i = 0; i < n; i += OCT_FLAG_BLOCK) {
        k.n = oct_min_i64(n - i, OCT_FLAG_BLOCK);
        if (bytes) {
            add_bytes_watched((const uint8_t *)a.data + i, (const uint8_t *)b.data + i, add,
                              (uint8_t *)y->data + i, &k);
        } else {
            oct_qcodes_load(a, i, k.n, left);
            oct_qcodes_load(b, i, k.n, right);
            (rounding->sum ? rounding->sum : sum)(&k, add, &constants);
            oct_qcodes_store(left, k.n, y->q, y->data, i);
        }
        if (y->mask) oct_bits_pack(flags, k.n, y->mask + i / 8);
    }
    if (y->range && n > 0) merge_range(add, &k, y->q.scale, y->range);
}

static oct_status check_add(const oct_program *program, const oct_step *step)
{
    const oct_value *a = oct_step_input(program, step, 0), *b = oct_step_input(program, step, 1);
    const oct_value *y = oct_step_output(program, step);
    const oct_qadd *add = &step->add;
    const oct_rounding_row *rounding = oct_rounding_of(program->requantizer);
    OCT_TRY(oct_check_broadcast(program, step));
    OCT_CHECK(oct_qadd_fits(add, a->q, b->q, y->q), OCT_DATA,
              "its multipliers %lld, %lld and shift %d are out of range", (long long)add->ma,
              (long long)add->mb, add->shift);
    OCT_CHECK(add->za == a->q.zero_point && add->zb == b->q.zero_point &&
                  add->zero_point == y->q.zero_point,
              OCT_DATA, "its zero points are not those of its values");
    if (rounding->sum_check) OCT_TRY(rounding->sum_check(add, a->q, b->q, y->q));
    return oct_check_bounds(program, step, add->lo, add->hi);
}

static void add_codes(const oct_step_run *r, int64_t n, oct_qcodes a, oct_qcodes b,
                      const oct_qoutput *y)
{
    oct_qadd_forward(n, a, b, &r->step->add, r->program->requantizer, y);
}

static void run_add(const oct_step_run *r)
{
    oct_step_broadcast(r, add_codes);
}

static const oct_field fields[] = {
    OCT_FIELD(add, ma, INT64_MIN, INT64_MAX),
    OCT_FIELD(add, mb, INT64_MIN, INT64_MAX),
    OCT_FIELD(add, shift, 0, 62),
    OCT_FIELD_ANY(add, za),
    OCT_FIELD_ANY(add, zb),
    OCT_FIELD_ANY(add, lo),
    OCT_FIELD_ANY(add, hi),
    OCT_FIELD_ANY(add, zero_point),
    OCT_FIELD(add, relu, 0, 1),
};

const oct_step_type oct_step_add = {
    .name = "add", .inputs = {2, 2}, OCT_STEP_FIELDS(fields), .check = check_add, .run = run_add};
