/* The steps reshape, move and pad: the same numbers in another shape, in another order, or with others around them. */
#include "quant/program/step.h"

#include <string.h>

/* Checks that the output has input 0's type, and of codes their meaning. */
static oct_status check_same_type(const oct_program *program, const oct_step *step)
{
    const oct_value *x = oct_step_input(program, step, 0), *y = oct_step_output(program, step);
    OCT_CHECK(x->dtype == y->dtype, OCT_DATA, "its input is %s, its output %s",
              oct_dtype_name(x->dtype), oct_dtype_name(y->dtype));
    const bool codes = x->dtype == OCT_U8 || x->dtype == OCT_U16;
    return codes ? oct_check_same_qparams(program, step) : OCT_OK;
}

static oct_status check_reshape(const oct_program *program, const oct_step *step)
{
    const oct_value *x = oct_step_input(program, step, 0), *y = oct_step_output(program, step);
    OCT_TRY(check_same_type(program, step));
    OCT_CHECK(oct_value_numel(x) == oct_value_numel(y), OCT_DATA,
              "its input has %lld numbers, its output %lld", (long long)oct_value_numel(x),
              (long long)oct_value_numel(y));
    return OCT_OK;
}

static void run_reshape(const oct_step_run *r)
{
    const oct_value *y = oct_step_output(r->program, r->step);
    const size_t bytes = (size_t)oct_value_numel(y) * oct_dtype_bytes(y->dtype);
    memcpy(r->output, r->input[0], (size_t)r->samples * bytes);
}

const oct_step_type oct_step_reshape = {.name = "reshape",
                                        .inputs = {1, 1},
                                        .any_domain = true,
                                        .check = check_reshape,
                                        .run = run_reshape};

static oct_status check_move(const oct_program *program, const oct_step *step)
{
    const oct_value *x = oct_step_input(program, step, 0), *y = oct_step_output(program, step);
    OCT_TRY(check_same_type(program, step));
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

static const oct_field move_fields[] = {OCT_FIELD(move, offset, 0, INT32_MAX),
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
                                     OCT_STEP_FIELDS(move_fields),
                                     .check = check_move,
                                     .run = run_move};

static oct_status check_pad(const oct_program *program, const oct_step *step)
{
    const oct_pad_shape *s = &step->pad.shape;
    const oct_value *x = oct_step_input(program, step, 0), *y = oct_step_output(program, step);
    OCT_CHECK(s->in[0] == x->h && s->in[1] == x->w && s->in[2] == x->c, OCT_DATA,
              "its input shape is not that of value %d", step->input[0]);
    OCT_CHECK(s->out[0] == y->h && s->out[1] == y->w && s->out[2] == y->c, OCT_DATA,
              "its output shape is not that of value %d", step->output);
    OCT_TRY(oct_pad_check(s, OCT_DATA));
    OCT_CHECK(step->pad.fill >= y->q.qmin && step->pad.fill <= y->q.qmax, OCT_DATA,
              "what it puts around, %d, is no code of value %d", step->pad.fill, step->output);
    return oct_check_same_qparams(program, step);
}

static void run_pad(const oct_step_run *r)
{
    const oct_value *x = oct_step_input(r->program, r->step, 0);
    const oct_value *y = oct_step_output(r->program, r->step);
    const uint8_t fill8 = (uint8_t)r->step->pad.fill;
    const uint16_t fill16 = (uint16_t)r->step->pad.fill;
    for (int64_t n = 0; n < r->samples; n++)
        oct_pad_copy(&r->step->pad.shape, oct_dtype_bytes(y->dtype),
                     y->dtype == OCT_U8 ? (const void *)&fill8 : &fill16,
                     (const uint8_t *)r->input[0] + n * (int64_t)oct_value_bytes(x),
                     (uint8_t *)r->output + n * (int64_t)oct_value_bytes(y));
}

#define OCT_SIDE_FIELDS(d)                                                                         \
    OCT_FIELD(pad, shape.in[d], 0, OCT_DIM_MAX), OCT_FIELD(pad, shape.out[d], 0, OCT_DIM_MAX),     \
        OCT_FIELD(pad, shape.before[d], 0, OCT_DIM_MAX)

static const oct_field pad_fields[] = {OCT_SIDE_FIELDS(0), OCT_SIDE_FIELDS(1), OCT_SIDE_FIELDS(2),
                                       OCT_FIELD(pad, shape.mode, 0, OCT_PAD_MODES - 1),
                                       OCT_FIELD(pad, fill, 0, UINT16_MAX)};

const oct_step_type oct_step_pad = {.name = "pad",
                                    .inputs = {1, 1},
                                    OCT_STEP_FIELDS(pad_fields),
                                    .check = check_pad,
                                    .run = run_pad};
