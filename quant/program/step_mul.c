/* The step mul multiplies two tensors of codes; one may be broadcast. */
#include "quant/program/step.h"

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
