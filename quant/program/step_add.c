/* The step add adds two tensors of codes, or subtracts the second; one may be broadcast. */
#include "quant/program/step.h"

static oct_status check_add(const oct_program *program, const oct_step *step)
{
    const oct_value *a = oct_step_input(program, step, 0), *b = oct_step_input(program, step, 1);
    const oct_value *y = oct_step_output(program, step);
    const oct_qadd *add = &step->add;
    const oct_rounding_row *by = oct_rounding_of(program->requantizer);
    OCT_TRY(oct_check_broadcast(program, step));
    OCT_CHECK(oct_qadd_fits(add, a->q, b->q, y->q), OCT_DATA,
              "its multipliers %lld, %lld and shift %d are out of range", (long long)add->ma,
              (long long)add->mb, add->shift);
    OCT_CHECK(add->za == a->q.zero_point && add->zb == b->q.zero_point &&
                  add->zero_point == y->q.zero_point,
              OCT_DATA, "its zero points are not those of its values");
    if (by->sum_check) OCT_TRY(by->sum_check(add, a->q, b->q, y->q));
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
