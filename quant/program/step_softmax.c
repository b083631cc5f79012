/* The step softmax runs over the channels. */
#include "quant/program/step.h"

/* The term of the largest code is 1, so that no sum is 0, and terms only fall from there. */
static oct_status check_exponential(const oct_step *step)
{
    const int32_t *e = step->softmax.exponential;
    OCT_CHECK(e[0] == OCT_QSOFTMAX_ONE, OCT_DATA, "its exponentials do not begin with %d",
              OCT_QSOFTMAX_ONE);
    for (int64_t d = 1; d < step->softmax.size; d++)
        OCT_CHECK(e[d] >= 0 && e[d] <= e[d - 1], OCT_DATA,
                  "exponential %lld is below 0 or above the one before", (long long)d);
    return OCT_OK;
}

static oct_status check_softmax(const oct_program *program, const oct_step *step)
{
    const oct_value *y = oct_step_output(program, step);
    OCT_TRY(oct_check_same_shape(program, step, 0));
    OCT_CHECK(y->c <= OCT_QSOFTMAX_MAX, OCT_DATA, "it has more than %d channels", OCT_QSOFTMAX_MAX);
    OCT_CHECK(oct_qsoftmax_fits(y->q), OCT_DATA,
              "the scale of value %d is not a power of two from 2^-16 to 1", step->output);
    OCT_TRY(oct_check_table(program, step, step->softmax.exponential, step->softmax.size));
    return check_exponential(step);
}

static void run_softmax(const oct_step_run *r)
{
    const oct_value *y = oct_step_output(r->program, r->step);
    oct_qsoftmax_forward(r->samples * y->h * y->w, y->c, oct_step_codes(r, 0),
                         r->step->softmax.exponential,
                         &(oct_qoutput){.q = y->q, .data = r->output, .mask = r->mask});
}

static oct_status table_shape(const oct_step *step, oct_shape *shape)
{
    *shape = OCT_SHAPE(step->softmax.size);
    return OCT_OK;
}

static const oct_field fields[] = {OCT_FIELD(softmax, size, 0, OCT_TABLE_MAX)};
static const oct_step_array arrays[] = {{.group = "tables",
                                         .name = "exponential",
                                         .dtype = OCT_S32,
                                         .offset = offsetof(oct_step, softmax.exponential),
                                         .shape = table_shape}};

const oct_step_type oct_step_softmax = {.name = "softmax",
                                        .inputs = {1, 1},
                                        OCT_STEP_FIELDS(fields),
                                        OCT_STEP_ARRAYS(arrays),
                                        .check = check_softmax,
                                        .run = run_softmax};
