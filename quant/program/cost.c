/* Estimates what a program takes before it is run, since programs may come from others. */
#include "quant/program/planner.h"
#include "quant/program/step.h"

#include "core/base/mem.h"

#include <string.h>

/* The time of a number read or written, and of a multiply-add of a float layer, in multiply-adds of codes. */
enum { NUMBER = 16, FLOAT_PRODUCT = 4 };

static double input_numbers(const oct_program *program, const oct_step *step)
{
    int64_t numbers = 0;
    for (int i = 0; i < step->num_inputs; i++)
        numbers += oct_value_numel(oct_step_input(program, step, i));
    return (double)numbers;
}

/* The terms of a window that lies inside a plane. */
static double window_terms(double kernel_h, double kernel_w, const oct_value *plane)
{
    const double h = (double)plane->h, w = (double)plane->w;
    return (kernel_h < h ? kernel_h : h) * (kernel_w < w ? kernel_w : w);
}

/* The work of one number of a float layer: a row of its largest array or, of a product of two values, of the first,
 * or the window whose sides are the first arguments of a pooling layer. */
static double fallback_terms(const oct_program *program, const oct_step *step)
{
    const oct_fallback *fallback = step->fallback;
    double terms = 1;
    for (int64_t i = 0; i < fallback->num_arrays; i++) {
        const oct_shape *shape = &fallback->arrays[i].shape;
        const double rows = shape->ndim > 0 && shape->dim[0] > 0 ? (double)shape->dim[0] : 1;
        const double row = (double)oct_shape_numel(shape) / rows;
        if (row > terms) terms = row;
    }
    if (strcmp(fallback->type, "matmul") == 0) terms = (double)oct_step_input(program, step, 0)->c;
    if (strcmp(fallback->type, "max_pool") == 0 || strcmp(fallback->type, "avg_pool") == 0)
        terms =
            window_terms(fallback->args[0], fallback->args[1], oct_step_input(program, step, 0));
    return FLOAT_PRODUCT * terms;
}

static double step_work(const oct_program *program, const oct_step *step)
{
    const double made = (double)oct_value_numel(oct_step_output(program, step));
    const double numbers = NUMBER * (made + input_numbers(program, step));
    if (oct_step_type_of(step->kind)->weights)
        return numbers + made * (double)oct_conv_depth(&step->conv.shape);
    const oct_conv_shape *window = oct_step_window(step);
    if (window)
        return numbers + NUMBER * made *
                             window_terms(window->kernel_h, window->kernel_w,
                                          oct_step_input(program, step, 0));
    return step->kind == OCT_STEP_FLOAT ? numbers + made * fallback_terms(program, step) : numbers;
}

oct_status oct_program_costs(const oct_program *program, oct_program_cost *cost)
{
    int64_t *offsets;
    *cost = (oct_program_cost){0};
    for (int64_t i = 0; i < program->num_steps; i++)
        cost->work += step_work(program, &program->steps[i]);
    OCT_TRY(oct_alloc(&offsets, (size_t)program->num_values, sizeof *offsets));
    oct_status status = oct_plan_values(program, offsets, &cost->bytes);
    oct_free(&offsets);
    return status;
}
