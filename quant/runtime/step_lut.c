/* The step lut computes an elementwise function by a table with one entry a code. */
#include "quant/runtime/step.h"

static oct_status check(const oct_program *program, const oct_step *step)
{
    const oct_qparams y = oct_step_output(program, step)->q;
    OCT_TRY(oct_check_same_shape(program, step, 0));
    OCT_TRY(oct_check_table(program, step));
    for (int64_t i = 0; i < step->table_size; i++)
        OCT_CHECK(step->table[i] >= y.qmin && step->table[i] <= y.qmax, OCT_DATA,
                  "entry %lld of its table, %d, is no code of value %d", (long long)i,
                  step->table[i], step->output);
    return OCT_OK;
}

static void run(const oct_step_run *r)
{
    const oct_value *y = oct_step_output(r->program, r->step);
    oct_qlut_forward(r->samples * oct_value_numel(y), oct_step_codes(r, 0), r->step->table, y->q,
                     r->output);
}

static const oct_step_field fields[] = {OCT_FIELD(table_size, 24, 0, OCT_TABLE_MAX)};
static const oct_step_array arrays[] = {OCT_TABLE("codes", OCT_U16, table)};

const oct_step_type oct_step_lut = {.name = "lut",
                                    .inputs = {1, 1},
                                    OCT_STEP_FIELDS(fields),
                                    OCT_STEP_ARRAYS(arrays),
                                    .check = check,
                                    .run = run};
