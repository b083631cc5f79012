/* The step argmax finds the index of the largest channel, of codes or of float values. */
#include "core/tensor/tensor.h"
#include "quant/program/step.h"

static oct_status check_argmax(const oct_program *program, const oct_step *step)
{
    const oct_value *x = oct_step_input(program, step, 0), *y = oct_step_output(program, step);
    OCT_CHECK(x->dtype != OCT_S32, OCT_DATA, "its input is class numbers already");
    OCT_CHECK(y->dtype == OCT_S32, OCT_DATA, "its output is %s and not s32",
              oct_dtype_name(y->dtype));
    OCT_CHECK(oct_value_numel(y) == x->h * x->w, OCT_DATA,
              "it makes a number of each position of %lld x %lld, but its output has %lld",
              (long long)x->h, (long long)x->w, (long long)oct_value_numel(y));
    return OCT_OK;
}

static void run_argmax(const oct_step_run *r)
{
    const oct_value *x = oct_step_input(r->program, r->step, 0);
    oct_argmax_rows(x->dtype, r->samples * x->h * x->w, x->c, r->input[0], r->output);
}

const oct_step_type oct_step_argmax = {.name = "argmax",
                                       .inputs = {1, 1},
                                       .any_domain = true,
                                       .check = check_argmax,
                                       .run = run_argmax};
