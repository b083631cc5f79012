/* The step quantize makes codes of float values. */
#include "quant/runtime/step.h"

#include "quant/qparams.h"

static oct_status check(const oct_program *program, const oct_step *step)
{
    return oct_check_same_shape(program, step, 0);
}

static void run(const oct_step_run *r)
{
    const oct_value *y = oct_step_output(r->program, r->step);
    const int64_t n = r->samples * oct_value_numel(y);
    if (y->dtype == OCT_U8)
        oct_quantize(r->input[0], n, y->q, r->output, r->mask, r->range);
    else
        oct_quantize16(r->input[0], n, y->q, r->output, r->mask, r->range);
}

const oct_step_type oct_step_quantize = {
    .name = "quantize", .inputs = {1, 1}, .float_in = true, .check = check, .run = run};
