/* The step concat puts channels side by side and requantizes them where scales differ. */
#include "quant/program/step.h"

static oct_status check_concat(const oct_program *program, const oct_step *step)
{
    const oct_value *y = oct_step_output(program, step);
    int64_t channels = 0;
    for (int i = 0; i < step->num_inputs; i++) {
        const oct_value *x = oct_step_input(program, step, i);
        OCT_CHECK(x->h == y->h && x->w == y->w, OCT_DATA, "its input %d has another plane", i);
        channels += x->c;
    }
    OCT_CHECK(channels == y->c, OCT_DATA, "its inputs have %lld channels together, its output %lld",
              (long long)channels, (long long)y->c);
    return OCT_OK;
}

static void run_concat(const oct_step_run *r)
{
    const oct_value *y = oct_step_output(r->program, r->step);
    oct_qconcat_input input[OCT_STEP_INPUTS];
    for (int i = 0; i < r->step->num_inputs; i++)
        input[i] = (oct_qconcat_input){.x = oct_step_codes(r, i),
                                       .c = oct_step_input(r->program, r->step, i)->c};
    oct_qconcat_forward(r->samples * y->h * y->w, r->step->num_inputs, input,
                        r->program->requantizer, y->q, r->output);
}

const oct_step_type oct_step_concat = {
    .name = "concat", .inputs = {1, OCT_STEP_INPUTS}, .check = check_concat, .run = run_concat};
