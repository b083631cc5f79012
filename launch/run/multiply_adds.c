/* This counts multiply-adds. */
#include "launch/run/multiply_adds.h"

#include "quant/runtime/step.h"

/* Counts, along one side, the pairs of an output and a tap that fall on a value of the input. */
static int64_t count_taps(int64_t in, int64_t out, int kernel, int stride, int padding,
                          int dilation)
{
    int64_t count = 0;
    for (int64_t o = 0; o < out; o++) {
        for (int k = 0; k < kernel; k++) {
            int64_t at = o * stride - padding + k;
            count += at >= 0 && at < in && at % dilation == 0;
        }
    }
    return count;
}

int64_t oct_conv_multiply_adds(const oct_conv_shape *s, int dilation)
{
    return count_taps(s->in_h, s->out_h, s->kernel_h, s->stride, s->padding, dilation) *
           count_taps(s->in_w, s->out_w, s->kernel_w, s->stride, s->padding, dilation) *
           (s->in_c / s->groups) * s->out_c;
}

/* The gradient of a value is wanted when a step with weights lies between it and an input of the
 * program. Each value is written by the step before all that use it. */
static bool wants_gradient(const oct_program *program, int64_t end, int32_t value)
{
    for (int64_t i = end - 1; i >= 0; i--) {
        const oct_step *step = &program->steps[i];
        if (step->output != value) continue;
        if (oct_step_type_of(step->kind)->weights) return true;
        for (int k = 0; k < step->num_inputs; k++)
            if (wants_gradient(program, i, step->input[k])) return true;
        return false;
    }
    return false;
}

oct_multiply_adds oct_program_multiply_adds(const oct_program *program)
{
    oct_multiply_adds work = {0};
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = &program->steps[i];
        if (step->kind != OCT_STEP_CONV && step->kind != OCT_STEP_CONV_FLOAT) continue;
        int64_t one = oct_conv_multiply_adds(&step->conv, step->dilation);
        work.forward += one;
        work.grad_weight += one;
        if (wants_gradient(program, i, step->input[0])) work.grad_input += one;
    }
    return work;
}
