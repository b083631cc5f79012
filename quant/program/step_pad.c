/* The step pad puts codes around a plane; the scale stays. */
#include "quant/program/step.h"

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

static const oct_field fields[] = {OCT_SIDE_FIELDS(0), OCT_SIDE_FIELDS(1), OCT_SIDE_FIELDS(2),
                                   OCT_FIELD(pad, shape.mode, 0, OCT_PAD_MODES - 1),
                                   OCT_FIELD(pad, fill, 0, UINT16_MAX)};

const oct_step_type oct_step_pad = {
    .name = "pad", .inputs = {1, 1}, OCT_STEP_FIELDS(fields), .check = check_pad, .run = run_pad};
