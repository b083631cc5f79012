/* The step avg_pool takes the mean of a window, rounded to a code of the same scale. */
#include "quant/runtime/step.h"

static void run(const oct_step_run *r)
{
    oct_qavg_pool(r->samples, &r->step->conv, r->step->count_include_pad, oct_step_codes(r, 0),
                  r->output);
}

static const oct_step_field fields[] = {OCT_POOL_FIELDS, OCT_FIELD(count_include_pad, 21, 0, 1)};

const oct_step_type oct_step_avg_pool = {.name = "avg_pool",
                                         .inputs = {1, 1},
                                         .window = true,
                                         OCT_STEP_FIELDS(fields),
                                         .check = oct_check_pool,
                                         .run = run};
