/* The step dequantize makes float values of codes. */
#include "quant/program/step.h"

#include "quant/rounding/qparams.h"

static oct_status check_dequantize(const oct_program *program, const oct_step *step)
{
    return oct_check_same_shape(program, step, 0);
}

static void run_dequantize(const oct_step_run *r)
{
    const oct_value *x = oct_step_input(r->program, r->step, 0);
    const int64_t n = r->samples * oct_value_numel(x);
    if (x->dtype == OCT_U8)
        oct_dequantize(r->input[0], n, x->q, r->output);
    else
        oct_dequantize16(r->input[0], n, x->q, r->output);
}

const oct_step_type oct_step_dequantize = {.name = "dequantize",
                                           .inputs = {1, 1},
                                           .float_out = true,
                                           .check = check_dequantize,
                                           .run = run_dequantize};
