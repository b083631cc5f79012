/* The step relu clamps codes to bounds: relu and relu6 that were not fused, and clip. */
#include "quant/program/step.h"

static oct_status check_relu(const oct_program *program, const oct_step *step)
{
    OCT_TRY(oct_check_same_shape(program, step, 0));
    OCT_TRY(oct_check_same_qparams(program, step));
    return oct_check_bounds(program, step, step->relu.lo, step->relu.hi);
}

static void run_relu(const oct_step_run *r)
{
    const oct_value *y = oct_step_output(r->program, r->step);
    oct_qclamp_forward(r->samples * oct_value_numel(y), oct_step_codes(r, 0), r->step->relu.lo,
                       r->step->relu.hi, r->output);
}

static const oct_field fields[] = {OCT_BOUND_FIELDS(relu)};

const oct_step_type oct_step_relu = {.name = "relu",
                                     .inputs = {1, 1},
                                     OCT_STEP_FIELDS(fields),
                                     .check = check_relu,
                                     .run = run_relu};
