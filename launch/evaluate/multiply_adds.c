/* This counts multiply-adds. */
#include "launch/evaluate/multiply_adds.h"

#include "quant/program/step.h"

/* A side of a convolution; values of its input are `apart`. */
typedef struct side {
    int64_t in, out;
    int kernel, stride, pad, dilation, apart;
} side;

/* Counts the pairs of an output and a tap that fall on a value of the input. */
static int64_t count_taps(side s)
{
    int64_t count = 0;
    for (int64_t o = 0; o < s.out; o++) {
        for (int64_t k = 0; k < s.kernel; k++) {
            const int64_t at = o * s.stride - s.pad + k * s.dilation;
            count += at >= 0 && at < s.in && at % s.apart == 0;
        }
    }
    return count;
}

int64_t oct_conv_multiply_adds(const oct_conv_shape *s, int input_step_h, int input_step_w)
{
    const side h = {s->in_h,    s->out_h,      s->kernel_h, s->stride_h,
                    s->pad_top, s->dilation_h, input_step_h};
    const side w = {s->in_w,     s->out_w,      s->kernel_w, s->stride_w,
                    s->pad_left, s->dilation_w, input_step_w};
    return count_taps(h) * count_taps(w) * (s->in_c / s->groups) * s->out_c;
}

/* The gradient of a value is wanted when a step with weights is between it and an input of the
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
        int64_t one = oct_conv_multiply_adds(&step->conv.shape, step->conv.input_step_h,
                                             step->conv.input_step_w);
        work.forward += one;
        work.grad_weight += one;
        if (wants_gradient(program, i, step->input[0])) work.grad_input += one;
    }
    return work;
}
