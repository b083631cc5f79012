/* The step max_pool takes the largest code of a window; padding never counts. */
#include "quant/program/step.h"

static void run_max_pool(const oct_step_run *r)
{
    oct_qmax_pool(r->samples, &r->step->pool.shape, oct_step_codes(r, 0), r->output);
}

static const oct_field fields[] = {OCT_POOL_FIELDS};

const oct_step_type oct_step_max_pool = {.name = "max_pool",
                                         .inputs = {1, 1},
                                         OCT_STEP_FIELDS(fields),
                                         .check = oct_check_pool,
                                         .run = run_max_pool};
