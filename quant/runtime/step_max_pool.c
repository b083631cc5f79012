/* The step max_pool takes the largest code of a square window; padding never counts. */
#include "quant/runtime/step.h"

static oct_status check(const oct_program *program, const oct_step *step)
{
    const oct_conv_shape *s = &step->conv;
    OCT_CHECK(s->kernel_h == s->kernel_w, OCT_DATA, "its kernel is not square");
    return oct_check_pool(program, step, s->kernel_h - 1); /* no window lies in the border alone */
}

static void run(const oct_step_run *r)
{
    oct_qmax_pool(r->samples, &r->step->conv, oct_step_codes(r, 0), r->output);
}

static const oct_step_field fields[] = {OCT_WINDOW_FIELDS};

const oct_step_type oct_step_max_pool = {.name = "max_pool",
                                         .inputs = {1, 1},
                                         .window = true,
                                         OCT_STEP_FIELDS(fields),
                                         .check = check,
                                         .run = run};
