/* The step reshape copies numbers of any type into another shape. */
#include "quant/program/step.h"

#include <string.h>

static oct_status check_reshape(const oct_program *program, const oct_step *step)
{
    const oct_value *x = oct_step_input(program, step, 0), *y = oct_step_output(program, step);
    OCT_TRY(oct_check_same_type(program, step));
    OCT_CHECK(oct_value_numel(x) == oct_value_numel(y), OCT_DATA,
              "its input has %lld numbers, its output %lld", (long long)oct_value_numel(x),
              (long long)oct_value_numel(y));
    return OCT_OK;
}

static void run_reshape(const oct_step_run *r)
{
    const oct_value *y = oct_step_output(r->program, r->step);
    const size_t bytes = (size_t)oct_value_numel(y) * oct_dtype_bytes(y->dtype);
    memcpy(r->output, r->input[0], (size_t)r->samples * bytes);
}

const oct_step_type oct_step_reshape = {.name = "reshape",
                                        .inputs = {1, 1},
                                        .any_domain = true,
                                        .check = check_reshape,
                                        .run = run_reshape};
