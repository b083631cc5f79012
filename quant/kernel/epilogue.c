/* See the header. Blocks of a few hundred elements go through short loops, one for each stage, which
 * the compiler vectorises in the copies that OCT_CLONES makes:
 *     accumulators -> v (and r) -> + second addend -> codes, flags, range
 */
#include "quant/kernel/epilogue.h"

#include "core/base/int_math.h"
#include "quant/rounding/bits.h"
#include "quant/kernel/requant.h"

enum { BLOCK = OCT_FLAG_BLOCK };

/* Whole rows of n channels, or a part of one. */
typedef struct span {
    int64_t rows, n;
    int64_t channel; /* of the first column */
    int64_t first;   /* element of the call */
} span;

OCT_CLONES
static void scale_float(int64_t rows, int64_t n, const int32_t *restrict acc,
                        const int32_t *restrict bias, const float *restrict multiplier,
                        float *restrict v)
{
    for (int64_t i = 0; i < rows; i++, acc += n, v += n)
        for (int64_t c = 0; c < n; c++)
            v[c] = (float)(acc[c] + bias[c]) * multiplier[c];
}

OCT_CLONES
static void add_float(int64_t n, const uint8_t *restrict s, int32_t zero_point, float multiplier,
                      float *restrict v)
{
    for (int64_t i = 0; i < n; i++)
        v[i] += (float)(s[i] - zero_point) * multiplier;
}

#define SCALE_WIDE(name, acc_t)                                                                    \
    OCT_CLONES                                                                                     \
    static void name(int64_t rows, int64_t n, const acc_t *restrict acc,                           \
                     const int64_t *restrict bias, const float *restrict multiplier,               \
                     double *restrict v)                                                           \
    {                                                                                              \
        for (int64_t i = 0; i < rows; i++, acc += n, v += n)                                       \
            for (int64_t c = 0; c < n; c++)                                                        \
                v[c] = (double)(acc[c] + bias[c]) * (double)multiplier[c];                         \
    }
SCALE_WIDE(scale_wide, int32_t)
SCALE_WIDE(scale_wide16, int64_t)

#define ADD_WIDE(name, code_t)                                                                     \
    OCT_CLONES                                                                                     \
    static void name(int64_t n, const code_t *restrict s, int32_t zero_point, float multiplier,    \
                     double *restrict v)                                                           \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                            \
            v[i] += (double)(s[i] - zero_point) * (double)multiplier;                              \
    }
ADD_WIDE(add_wide, uint8_t)
ADD_WIDE(add_wide16, uint16_t)

OCT_CLONES
static void round_float(int64_t n, const float *restrict v, float *restrict r)
{
    for (int64_t i = 0; i < n; i++)
        r[i] = rintf(v[i]);
}

OCT_CLONES
static void round_wide(int64_t n, const double *restrict v, double *restrict r)
{
    for (int64_t i = 0; i < n; i++)
        r[i] = rint(v[i]);
}

#define CODES(name, code_t)                                                                        \
    OCT_CLONES                                                                                     \
    static void name(int64_t n, const double *restrict r, const oct_requant_limits *limits,        \
                     code_t *restrict codes)                                                       \
    {                                                                                              \
        const double lo = (double)limits->lo, hi = (double)limits->hi;                             \
        const int32_t zero_point = limits->zero_point;                                             \
        for (int64_t i = 0; i < n; i++) {                                                          \
            double cut = r[i] > lo ? r[i] : lo;                                                    \
            cut = cut < hi ? cut : hi;                                                             \
            codes[i] = (code_t)((int32_t)cut + zero_point);                                        \
        }                                                                                          \
    }
CODES(codes_wide, uint8_t)
CODES(codes_wide16, uint16_t)

/* Finds flags, and the ends of the clipped v as floats: rounding keeps their order. */
#define WATCH(name, value_t)                                                                       \
    OCT_CLONES                                                                                     \
    static void name(int64_t n, const value_t *restrict v, const value_t *restrict r,              \
                     const oct_requant_limits *limits, uint8_t *restrict flags, int32_t range[2])  \
    {                                                                                              \
        const value_t lo = (value_t)limits->lo, hi = (value_t)limits->hi;                          \
        const value_t floor = (value_t)limits->floor, six = (value_t)limits->six;                  \
        int32_t least = range[0], most = range[1];                                                 \
        for (int64_t i = 0; i < n; i++) {                                                          \
            flags[i] = (uint8_t)((r[i] >= lo) & (r[i] <= hi) & (v[i] > floor) & (v[i] < six));     \
            value_t clipped = v[i] > floor ? v[i] : floor;                                         \
            clipped = clipped < six ? clipped : six;                                               \
            const int32_t key = oct_order_key((float)clipped);                                     \
            least = key < least ? key : least;                                                     \
            most = key > most ? key : most;                                                        \
        }                                                                                          \
        range[0] = least;                                                                          \
        range[1] = most;                                                                           \
    }
WATCH(find_clips_float, float)
WATCH(find_clips_wide, double)

#define STORE(name, value_t)                                                                       \
    OCT_CLONES                                                                                     \
    static void name(int64_t n, const value_t *restrict v, const oct_requant_limits *limits,       \
                     float *restrict y)                                                            \
    {                                                                                              \
        const value_t floor = (value_t)limits->floor, six = (value_t)limits->six;                  \
        for (int64_t i = 0; i < n; i++) {                                                          \
            value_t clipped = v[i] < floor ? floor : v[i]; /* NaN stays */                         \
            clipped = clipped > six ? six : clipped;                                               \
            y[i] = (float)clipped + 0.0f; /* -0 becomes +0 */                                      \
        }                                                                                          \
    }
STORE(store_float, float)
STORE(store_wide, double)

/* A call: what it computes, and what is looked up once for all spans. */
typedef struct epilogue_call {
    const oct_epilogue *epilogue;
    const oct_acc_rows *rows;
    oct_requant_limits limits;
    bool wants_flags; /* flags or range are wanted */
} epilogue_call;

/* Computes v of a span of rows in float, and stores it, clipped, as a float output (codes: oct_kernel.requantize). */
static void epilogue_float(const epilogue_call *call, const span *s, uint8_t *flags,
                           int32_t range[2])
{
    const oct_epilogue *f = call->epilogue;
    const int64_t count = s->rows * s->n;
    float v[BLOCK], r[BLOCK];
    scale_float(s->rows, s->n, (const int32_t *)call->rows->acc + s->first, f->q.bias + s->channel,
                f->q.multiplier + s->channel, v);
    if (f->addend.data)
        add_float(count, (const uint8_t *)f->addend.data + s->first, f->addend.q.zero_point,
                  f->addend_multiplier, v);
    round_float(count, v, r);
    if (call->wants_flags) find_clips_float(count, v, r, &call->limits, flags, range);
    store_float(count, v, &call->limits, (float *)call->rows->y + s->first);
}

/* Writes r: v rounded, or, where the requantizer multiplies by integers, the accumulators times those, rounded. */
static void round_sums(const epilogue_call *call, const span *s, const double *v, double *r)
{
    const oct_epilogue *f = call->epilogue;
    const oct_rounding_row *rounding = oct_rounding_of(f->requantizer);
    const void *acc = (const char *)call->rows->acc + s->first * (f->acc == OCT_S64 ? 8 : 4);
    if (!rounding->rows || f->out == OCT_F32)
        round_wide(s->rows * s->n, v, r);
    else
        (f->acc == OCT_S64 ? rounding->rows_wide : rounding->rows)(
            s->rows, s->n, acc, f->bias + s->channel, f->fixed + s->channel, f->out == OCT_U16, r);
}

/* Computes a span in double: for 16-bit codes, and v (mask, range, float output) of roundings by integers. */
static void epilogue_wide(const epilogue_call *call, const span *s, uint8_t *flags,
                          int32_t range[2])
{
    const oct_epilogue *f = call->epilogue;
    const int64_t count = s->rows * s->n, *bias = f->bias + s->channel;
    const float *multiplier = f->q.multiplier + s->channel;
    const int32_t *narrow = (const int32_t *)call->rows->acc + s->first;
    const int64_t *wide = (const int64_t *)call->rows->acc + s->first;
    double v[BLOCK], r[BLOCK];
    if (f->acc == OCT_S64)
        scale_wide16(s->rows, s->n, wide, bias, multiplier, v);
    else
        scale_wide(s->rows, s->n, narrow, bias, multiplier, v);
    if (f->addend.data && oct_codes_dtype(f->addend.q) == OCT_U16)
        add_wide16(count, (const uint16_t *)f->addend.data + s->first, f->addend.q.zero_point,
                   f->addend_multiplier, v);
    else if (f->addend.data)
        add_wide(count, (const uint8_t *)f->addend.data + s->first, f->addend.q.zero_point,
                 f->addend_multiplier, v);
    round_sums(call, s, v, r);
    if (call->wants_flags) find_clips_wide(count, v, r, &call->limits, flags, range);
    if (f->out == OCT_F32)
        store_wide(count, v, &call->limits, (float *)call->rows->y + s->first);
    else if (f->out == OCT_U16)
        codes_wide16(count, r, &call->limits, (uint16_t *)call->rows->y + s->first);
    else
        codes_wide(count, r, &call->limits, (uint8_t *)call->rows->y + s->first);
}

bool oct_epilogue_requantizes(const oct_epilogue *f)
{
    return oct_epilogue_is_float(f) && f->out == OCT_U8;
}

oct_requant oct_epilogue_requant(const oct_epilogue *f)
{
    oct_requant q = f->q;
    if (f->addend.data) {
        q.addend = f->addend.data;
        q.addend_zero_point = f->addend.q.zero_point;
        q.addend_multiplier = f->addend_multiplier;
    }
    return q;
}

/* Computes rows in spans of at most BLOCK outputs: several short rows, or a part of a long one. */
static void compute_spans(const oct_epilogue *f, const oct_acc_rows *r)
{
    epilogue_call call = {.epilogue = f,
                          .rows = r,
                          .limits = oct_requant_limits_of(&f->q),
                          .wants_flags = r->mask || r->range};
    int32_t ends[2] = {INT32_MAX, INT32_MIN}; /* of v, as keys in the order of floats */
    span s = {0};
    if (f->out == OCT_F32) { /* a float output has no bounds of codes */
        call.limits.lo = -INFINITY;
        call.limits.hi = INFINITY;
    }
    for (int64_t row = 0; row < r->m; row += s.rows) {
        s.rows = oct_min_i64(oct_max_i64(BLOCK / r->n, 1), r->m - row);
        for (s.channel = 0; s.channel < r->n; s.channel += BLOCK) {
            uint8_t flags[BLOCK], bits[BLOCK / 8];
            s.n = oct_min_i64(r->n - s.channel, BLOCK);
            (oct_epilogue_is_float(f) ? epilogue_float : epilogue_wide)(&call, &s, flags, ends);
            if (r->mask) {
                oct_bits_pack(flags, s.rows * s.n, bits);
                oct_bits_append(r->mask, s.first, bits, s.rows * s.n);
            }
            s.first += s.rows * s.n;
        }
    }
    if (!r->range || f->out == OCT_F32) return;
    if (s.first > 0)
        oct_requant_range_merge(r->range, oct_float_of_order(ends[0]), oct_float_of_order(ends[1]));
    oct_requant_range_end(&f->q, r->n, r->range);
    if (f->addend.data && !isfinite(f->addend_multiplier)) r->range[0] = r->range[1] = NAN;
}

void oct_epilogue_rows(const oct_kernel *kernel, const oct_epilogue *f, const oct_acc_rows *r)
{
    const oct_requant q = oct_epilogue_requant(f);
    if (oct_epilogue_requantizes(f))
        kernel->requantize(r, &q);
    else
        compute_spans(f, r);
}

oct_epilogue oct_epilogue_at(const oct_epilogue *f, int64_t first)
{
    oct_epilogue at = *f;
    if (at.addend.data) at.addend = oct_qcodes_from(at.addend, first);
    return at;
}
