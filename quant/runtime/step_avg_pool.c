/* The step avg_pool takes the mean of a window, rounded to a code of the same scale. */
#include "quant/runtime/step.h"

static oct_status check(const oct_program *program, const oct_step *step)
{
    return oct_check_pool(program, step, 0);
}

static void run(const oct_step_run *r)
{
    oct_qavg_pool(r->samples, &r->step->conv, oct_step_codes(r, 0), r->output);
}

static const oct_step_field fields[] = {OCT_WINDOW_FIELDS};

const oct_step_type oct_step_avg_pool = {.name = "avg_pool",
                                         .inputs = {1, 1},
                                         .window = true,
                                         OCT_STEP_FIELDS(fields),
                                         .check = check,
                                         .run = run};
