/* The step move reads numbers of any type in another order. */
#include "quant/program/step.h"

static oct_status check_move(const oct_program *program, const oct_step *step)
{
    const oct_value *x = oct_step_input(program, step, 0), *y = oct_step_output(program, step);
    OCT_TRY(oct_check_same_type(program, step));
    OCT_TRY(oct_move_check(&step->move, oct_value_numel(x), OCT_DATA));
    OCT_CHECK(oct_move_numel(&step->move) == oct_value_numel(y), OCT_DATA,
              "its loops read %lld numbers, its output has %lld",
              (long long)oct_move_numel(&step->move), (long long)oct_value_numel(y));
    for (int k = step->move.dims; k < OCT_MOVE_DIMS; k++)
        OCT_CHECK(step->move.size[k] == 0 && step->move.stride[k] == 0, OCT_DATA,
                  "it has a loop %d, but %d loops", k, step->move.dims);
    return OCT_OK;
}

static void run_move(const oct_step_run *r)
{
    const oct_value *x = oct_step_input(r->program, r->step, 0);
    const oct_value *y = oct_step_output(r->program, r->step);
    for (int64_t n = 0; n < r->samples; n++)
        oct_move_copy(&r->step->move, oct_dtype_bytes(x->dtype),
                      (const uint8_t *)r->input[0] + n * (int64_t)oct_value_bytes(x),
                      (uint8_t *)r->output + n * (int64_t)oct_value_bytes(y));
}

#define OCT_LOOP_FIELDS(k)                                                                         \
    OCT_FIELD(move, size[k], 0, INT32_MAX), OCT_FIELD(move, stride[k], -INT32_MAX, INT32_MAX)

static const oct_field fields[] = {OCT_FIELD(move, offset, 0, INT32_MAX),
                                   OCT_FIELD(move, dims, 0, OCT_MOVE_DIMS),
                                   OCT_LOOP_FIELDS(0),
                                   OCT_LOOP_FIELDS(1),
                                   OCT_LOOP_FIELDS(2),
                                   OCT_LOOP_FIELDS(3),
                                   OCT_LOOP_FIELDS(4),
                                   OCT_LOOP_FIELDS(5)};

const oct_step_type oct_step_move = {.name = "move",
                                     .inputs = {1, 1},
                                     .any_domain = true,
                                     OCT_STEP_FIELDS(fields),
                                     .check = check_move,
                                     .run = run_move};
