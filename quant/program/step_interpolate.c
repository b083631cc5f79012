/* The step interpolate makes a plane of another size, of the nearest pixels or of four mixed. */
#include "quant/program/step.h"

static oct_status check_interpolate(const oct_program *program, const oct_step *step)
{
    const oct_conv_shape *s = &step->interpolate.shape;
    const oct_value *x = oct_step_input(program, step, 0), *y = oct_step_output(program, step);
    OCT_CHECK(s->in_h == x->h && s->in_w == x->w && s->in_c == x->c, OCT_DATA,
              "its input shape is not that of value %d", step->input[0]);
    OCT_CHECK(s->out_h == y->h && s->out_w == y->w && s->out_c == y->c, OCT_DATA,
              "its output shape is not that of value %d", step->output);
    OCT_CHECK(s->in_c == s->out_c, OCT_DATA, "its output has other channels than its input");
    OCT_CHECK(step->interpolate.mode >= 0 && step->interpolate.mode < OCT_INTERPOLATIONS, OCT_DATA,
              "its interpolation %d does not exist", step->interpolate.mode);
    return oct_check_same_qparams(program, step);
}

static void run_interpolate(const oct_step_run *r)
{
    oct_qinterpolate_forward(r->samples, &r->step->interpolate.shape,
                             (oct_interpolation)r->step->interpolate.mode, oct_step_codes(r, 0),
                             r->output);
}

static const oct_field fields[] = {OCT_PLANE_FIELDS(interpolate),
                                   OCT_FIELD(interpolate, mode, 0, OCT_INTERPOLATIONS - 1)};

const oct_step_type oct_step_interpolate = {.name = "interpolate",
                                            .inputs = {1, 1},
                                            OCT_STEP_FIELDS(fields),
                                            .check = check_interpolate,
                                            .run = run_interpolate};
