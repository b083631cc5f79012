/* The step avg_pool takes the mean of a window, rounded to a code of the same scale. */
#include "quant/program/step.h"

/* A factor belongs to one number of positions; what it is multiplied with stays far below 2^60. */
static oct_status check_avg_pool(const oct_program *program, const oct_step *step)
{
    OCT_TRY(oct_check_pool(program, step));
    OCT_CHECK(!step->pool.of_codes || (oct_step_output(program, step)->dtype == OCT_U8 &&
                                       !oct_requantizer_shifts(program->requantizer)),
              OCT_DATA, "it averages signed codes, which are of 8 bits");
    OCT_CHECK(!step->pool.half_up || (oct_step_output(program, step)->dtype == OCT_U8 &&
                                      !step->pool.of_codes && step->pool.factor == 0.0f),
              OCT_DATA, "it rounds halves up, which is for values of 8 bits");
    OCT_CHECK(!step->pool.fixed ||
                  (oct_rounding_of(program->requantizer)->averages && !step->pool.of_codes &&
                   !step->pool.half_up && step->pool.factor == 0.0f),
              OCT_DATA,
              "it has a whole multiplier, but the program or the step rounds in another way");
    if (step->pool.factor == 0.0f) return OCT_OK;
    const bool counts = oct_conv_sees_padding(&step->pool.shape) && !step->pool.count_include_pad;
    OCT_CHECK(oct_qmul_fits(step->pool.factor, OCT_REQUANT_FLOAT), OCT_DATA,
              "its factor %g is not a number within 2^-60 and 2^60", (double)step->pool.factor);
    OCT_CHECK(!counts && !step->pool.ceil && !step->pool.of_codes &&
                  oct_step_output(program, step)->dtype == OCT_U8,
              OCT_DATA,
              "it has a factor, which is for windows that all have as many positions, and for "
              "8-bit codes");
    return OCT_OK;
}

static void run_avg_pool(const oct_step_run *r)
{
    const oct_qavg how = {r->step->pool.count_include_pad, r->step->pool.factor,
                          r->step->pool.of_codes, r->step->pool.half_up,
                          r->step->pool.fixed ? oct_rounding_of(r->program->requantizer) : NULL};
    oct_qavg_pool(r->samples, &r->step->pool.shape, &how, oct_step_codes(r, 0), r->output);
}

static const oct_field fields[] = {OCT_POOL_FIELDS,
                                   OCT_FIELD(pool, count_include_pad, 0, 1),
                                   OCT_FIELD(pool, of_codes, 0, 1),
                                   OCT_FIELD(pool, half_up, 0, 1),
                                   OCT_FIELD(pool, fixed, 0, 1),
                                   OCT_FIELD_FLOAT(pool, factor)};

const oct_step_type oct_step_avg_pool = {.name = "avg_pool",
                                         .inputs = {1, 1},
                                         OCT_STEP_FIELDS(fields),
                                         .check = check_avg_pool,
                                         .run = run_avg_pool};
