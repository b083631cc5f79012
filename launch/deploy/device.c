/* Flash is what the C form has as constants, scratch what it and the runtime plan for one sample. */
#include "launch/deploy/device.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "io/export/format.h"
#include "quant/program/step.h"

const char *const oct_device_figure_names[OCT_DEVICE_FIGURES] = {"flash", "scratch",
                                                                 "multiply-adds"};

int64_t oct_float_bytes(oct_module *root)
{
    int64_t numel = 0;
    for (size_t i = 0; i < root->num_params; i++)
        numel += oct_numel(&root->params[i]->value);
    int64_t bytes = numel * (int64_t)sizeof(float);
    for (size_t i = 0; i < root->num_children; i++)
        bytes += oct_float_bytes(*root->children[i].slot);
    return bytes;
}

int64_t oct_step_bytes(const oct_program *program, const oct_step *step)
{
    const oct_step_type *type = oct_step_type_of(step->kind);
    const oct_conv_shape *s = &step->conv.shape;
    const oct_fallback *fallback = step->kind == OCT_STEP_FLOAT ? step->fallback : NULL;
    int64_t bytes = 0;
    if (type->weights) {
        const bool wide = oct_step_input(program, step, 0)->dtype == OCT_U16;
        const int64_t bias = wide ? sizeof(int64_t) : sizeof(int32_t);
        bytes = s->out_c * (oct_conv_depth(s) + bias + (int64_t)sizeof(*step->conv.multiplier));
    }
    for (int i = 0; i < type->num_arrays && !type->weights; i++)
        bytes += oct_step_array_numel(step, &type->arrays[i]) *
                 (int64_t)oct_dtype_bytes(type->arrays[i].dtype);
    for (int64_t i = 0; fallback && i < fallback->num_arrays; i++)
        bytes += oct_shape_numel(&fallback->arrays[i].shape) *
                 (int64_t)oct_dtype_bytes(fallback->arrays[i].dtype);
    return bytes;
}

int64_t oct_int8_bytes(const oct_program *program)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < program->num_steps; i++)
        bytes += oct_step_bytes(program, &program->steps[i]);
    return bytes;
}

/* The end in planned memory of the values that are alive while a step runs; last: the last step that uses each. */
static int64_t bytes_reached(const oct_program *program, const int64_t *offsets,
                             const int64_t *last, int64_t number)
{
    int64_t end = 0;
    for (int64_t i = 0; i <= number; i++) {
        const int32_t value = program->steps[i].output;
        if (last[value] < number || offsets[value] < 0) continue;
        end = oct_max_i64(end, offsets[value] + (int64_t)oct_value_bytes(&program->values[value]));
    }
    return end;
}

oct_status oct_device_of(oct_device *d, const oct_program *program)
{
    OCT_OWNED(oct_free) int64_t *offsets = NULL, *last = NULL, *constants = NULL;
    oct_status status = OCT_OK;
    *d = (oct_device){.program = program};
    OCT_TRY_OUT(oct_alloc(&d->of, (size_t)program->num_steps, sizeof *d->of));
    OCT_TRY_OUT(oct_alloc(&offsets, (size_t)program->num_values, sizeof *offsets));
    OCT_TRY_OUT(oct_alloc(&last, (size_t)program->num_values, sizeof *last));
    OCT_TRY_OUT(oct_alloc(&constants, (size_t)program->num_steps, sizeof *constants));
    OCT_TRY_OUT(oct_plan_values(program, offsets, &d->all[OCT_DEVICE_SCRATCH]));
    OCT_TRY_OUT(oct_c_constant_bytes(program, constants));
    oct_find_last_uses(program, last);
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = &program->steps[i];
        int64_t *figure = d->of[i];
        figure[OCT_DEVICE_FLASH] = constants[i] < 0 ? oct_step_bytes(program, step) : constants[i];
        figure[OCT_DEVICE_SCRATCH] = bytes_reached(program, offsets, last, i);
        /* Of codes and weights; of a transposed convolution without those of the zeros that dilate its input. */
        if (oct_step_type_of(step->kind)->weights)
            figure[OCT_DEVICE_PRODUCTS] =
                oct_conv_out_numel(&step->conv.shape) * oct_conv_depth(&step->conv.shape) /
                (oct_max_i64(step->conv.input_step_h, 1) * oct_max_i64(step->conv.input_step_w, 1));
        d->all[OCT_DEVICE_FLASH] += figure[OCT_DEVICE_FLASH];
        d->all[OCT_DEVICE_PRODUCTS] += figure[OCT_DEVICE_PRODUCTS];
    }
out:
    if (status != OCT_OK) oct_device_free(d);
    return status;
}

void oct_device_free(oct_device *device)
{
    oct_free(&device->of);
}

oct_status oct_device_largest(const oct_device *d, oct_device_figure figure, oct_text *text)
{
    enum { SHOWN = 3 };
    int64_t best[SHOWN];
    int count = 0;
    for (int64_t i = 0; i < d->program->num_steps; i++) {
        int rank = count; /* of the step among the largest so far */
        while (rank > 0 && d->of[best[rank - 1]][figure] < d->of[i][figure])
            rank--;
        if (rank == SHOWN || d->of[i][figure] == 0) continue;
        if (count < SHOWN) count++;
        for (int k = count - 1; k > rank; k--)
            best[k] = best[k - 1];
        best[rank] = i;
    }
    for (int k = 0; k < count; k++)
        OCT_TRY(oct_text_add(text, "%s%s %.0f %%", k ? ", " : "", d->program->steps[best[k]].name,
                             100.0 * (double)d->of[best[k]][figure] / (double)d->all[figure]));
    return OCT_OK;
}

/* A convolution along one axis; values of its input are input_step apart. */
typedef struct conv_axis {
    int64_t in, out;
    int kernel, stride, pad, dilation, input_step;
} conv_axis;

/* Counts the pairs of an output and a tap that fall on a value of the input. */
static int64_t count_taps(conv_axis a)
{
    const int64_t input_step = oct_max_i64(a.input_step, 1);
    int64_t count = 0;
    for (int64_t o = 0; o < a.out; o++) {
        for (int64_t k = 0; k < a.kernel; k++) {
            const int64_t i = o * a.stride - a.pad + k * a.dilation;
            count += i >= 0 && i < a.in && i % input_step == 0;
        }
    }
    return count;
}

int64_t oct_conv_multiply_adds(const oct_conv_shape *s, int input_step_h, int input_step_w)
{
    const conv_axis h = {s->in_h,    s->out_h,      s->kernel_h, s->stride_h,
                         s->pad_top, s->dilation_h, input_step_h};
    const conv_axis w = {s->in_w,     s->out_w,      s->kernel_w, s->stride_w,
                         s->pad_left, s->dilation_w, input_step_w};
    return count_taps(h) * count_taps(w) * (s->in_c / s->groups) * s->out_c;
}

int64_t oct_step_multiply_adds(const oct_step *step)
{
    if (step->kind != OCT_STEP_CONV && step->kind != OCT_STEP_CONV_FLOAT) return 0;
    return oct_conv_multiply_adds(&step->conv.shape, step->conv.input_step_h,
                                  step->conv.input_step_w);
}

oct_status oct_program_multiply_adds(const oct_program *program, oct_multiply_adds *work)
{
    OCT_OWNED(oct_free) bool *after_weights = NULL; /* by value */
    *work = (oct_multiply_adds){0};
    OCT_TRY(oct_alloc(&after_weights, (size_t)program->num_values, sizeof *after_weights));
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = &program->steps[i];
        const int64_t one = oct_step_multiply_adds(step);
        bool *after = &after_weights[step->output];
        work->forward += one;
        work->grad_weight += one;
        work->grad_input += after_weights[step->input[0]] ? one : 0;
        *after = oct_step_type_of(step->kind)->weights;
        for (int k = 0; k < step->num_inputs; k++)
            *after |= after_weights[step->input[k]];
    }
    return OCT_OK;
}
