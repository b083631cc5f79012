/* The step mul multiplies two tensors of codes; one may be broadcast. */
#include "core/base/int_math.h"
#include "quant/program/step.h"
#include "quant/rounding/bits.h"

#include <math.h>

float oct_qmul_factor(oct_qparams a, oct_qparams b, oct_qparams y)
{
    const double factor = (double)a.scale * (double)b.scale / (double)y.scale;
    return (float)fmin(fmax(factor, 0x1p-60), 0x1p60);
}

float oct_qmul_factor_float(oct_qparams a, oct_qparams b, oct_qparams y)
{
    const float product = a.scale * b.scale;
    return fminf(fmaxf(product / y.scale, 0x1p-60f), 0x1p60f);
}

bool oct_qmul_overflows(oct_qparams a, oct_qparams b, float factor)
{
    const int64_t most_a = oct_max_i64(a.qmax - a.zero_point, a.zero_point - a.qmin),
                  most_b = oct_max_i64(b.qmax - b.zero_point, b.zero_point - b.qmin);
    return (double)(most_a * most_b) * (double)factor >= 0x1p31;
}

bool oct_qmul_fits(float factor, oct_requantizer r)
{
    int exponent;
    return factor >= 0x1p-60f && factor <= 0x1p60f &&
           (!oct_requantizer_shifts(r) || frexpf(factor, &exponent) == 0.5f);
}

/* code = clamp(round((a - za) * (b - zb) * factor), lo, hi) + zero_point, in blocks; also clip mask and range of y. */
void oct_qmul_forward(int64_t n, oct_qcodes a, oct_qcodes b, const oct_qmul *mul,
                      const oct_qoutput *y)
{
    const oct_requantizer r = mul->requantizer;
    const oct_code_ratio ratio = {
        mul->factor, oct_fixed_of_layer(r, a.q.scale, b.q.scale, y->q.scale, mul->factor),
        mul->offset_first};
    int32_t left[OCT_FLAG_BLOCK], right[OCT_FLAG_BLOCK];
    uint8_t flags[OCT_FLAG_BLOCK];
    const bool wide_output = oct_codes_dtype(y->q) == OCT_U16;
    oct_code_block k = {.a = left,
                        .b = right,
                        .flags = flags,
                        .lo = y->q.qmin - y->q.zero_point,
                        .hi = y->q.qmax - y->q.zero_point,
                        .zero_point = y->q.zero_point,
                        .wide = wide_output || oct_codes_dtype(a.q) == OCT_U16 ||
                                oct_codes_dtype(b.q) == OCT_U16,
                        .wide_output = wide_output,
                        .least = INT64_MAX,
                        .most = INT64_MIN};
    for (int64_t i = 0; i < n; i += OCT_FLAG_BLOCK) {
        k.n = oct_min_i64(n - i, OCT_FLAG_BLOCK);
        oct_qcodes_load(a, i, k.n, left);
        oct_qcodes_load(b, i, k.n, right);
        oct_rounding_of(r)->product(&k, &ratio);
        oct_qcodes_store(left, k.n, y->q, y->data, i);
        if (y->mask) oct_bits_pack(flags, k.n, y->mask + i / 8);
    }
    if (!y->range || n == 0) return;
    const double scale = (double)a.q.scale * (double)b.q.scale;
    oct_range_merge(y->range, (float)((double)k.least * scale), (float)((double)k.most * scale));
}

static oct_status check_mul(const oct_program *program, const oct_step *step)
{
    OCT_TRY(oct_check_broadcast(program, step));
    OCT_CHECK(oct_qmul_fits(step->mul.factor, program->requantizer), OCT_DATA,
              "its factor %g is not %s within 2^-60 and 2^60", (double)step->mul.factor,
              oct_requantizer_shifts(program->requantizer) ? "a power of two" : "a number");
    OCT_CHECK(!step->mul.offset_first || (!oct_rounding_of(program->requantizer)->constants_of &&
                                          oct_step_input(program, step, 0)->dtype == OCT_U8 &&
                                          oct_step_input(program, step, 1)->dtype == OCT_U8 &&
                                          oct_step_output(program, step)->dtype == OCT_U8),
              OCT_DATA, "it adds the zero_point first, which is for 8-bit codes and float factors");
    return OCT_OK;
}

static void multiply_codes(const oct_step_run *r, int64_t n, oct_qcodes a, oct_qcodes b,
                           const oct_qoutput *y)
{
    oct_qmul_forward(
        n, a, b,
        &(oct_qmul){r->step->mul.factor, r->program->requantizer, r->step->mul.offset_first}, y);
}

static void run_mul(const oct_step_run *r)
{
    oct_step_broadcast(r, multiply_codes);
}

static const oct_field fields[] = {OCT_FIELD_FLOAT(mul, factor),
                                   OCT_FIELD(mul, offset_first, 0, 1)};

const oct_step_type oct_step_mul = {
    .name = "mul", .inputs = {2, 2}, OCT_STEP_FIELDS(fields), .check = check_mul, .run = run_mul};
