/* The memory plan is a first fit over intervals. A value lives from the step that makes it to its last use; in order of
 * creation each takes the lowest offset where it overlaps no value that lives at the same time. */
#include "quant/program/program.h"

#include "core/tensor/op_args.h"
#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "quant/program/step.h"

#include <string.h>

enum { UNIT = 64 }; /* bytes */

void oct_find_last_uses(const oct_program *program, int64_t *last)
{
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = &program->steps[i];
        for (int k = 0; k < step->num_inputs; k++)
            last[step->input[k]] = i;
        last[step->output] = i;
    }
}

/* Moves after each obstacle until none is left; obstacles only push upwards, so this ends, at the lowest
 * offset that is free, whatever their order. */
int64_t oct_lowest_fit(const oct_interval *placed, int64_t count, const oct_interval *x)
{
    int64_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int64_t i = 0; i < count; i++) {
            const oct_interval *p = &placed[i];
            const bool together = p->first <= x->last && x->first <= p->last;
            if (together && p->offset < offset + x->bytes && offset < p->offset + p->bytes) {
                offset = p->offset + p->bytes;
                moved = true;
            }
        }
    }
    return offset;
}

oct_status oct_plan_values(const oct_program *program, int64_t *offsets, int64_t *bytes)
{
    OCT_OWNED(oct_free) oct_interval *placed = NULL;
    OCT_OWNED(oct_free) int64_t *last = NULL;
    OCT_TRY(oct_alloc(&placed, (size_t)program->num_steps, sizeof *placed));
    OCT_TRY(oct_alloc(&last, (size_t)program->num_values, sizeof *last));
    oct_find_last_uses(program, last);
    for (int64_t v = 0; v < program->num_values; v++)
        offsets[v] = -1;
    int64_t count = 0;
    *bytes = 0;
    for (int64_t i = 0; i < program->num_steps; i++) {
        const int32_t value = program->steps[i].output;
        if (value == program->output) continue;
        const int64_t size = (int64_t)oct_value_bytes(&program->values[value]);
        oct_interval *x = &placed[count];
        *x = (oct_interval){.first = i, .last = last[value], .bytes = oct_round_up(size, UNIT)};
        x->offset = oct_lowest_fit(placed, count, x);
        offsets[value] = x->offset;
        *bytes = oct_max_i64(*bytes, x->offset + x->bytes);
        count++;
    }
    return OCT_OK;
}

/* What a program takes before it is run, since programs may come from others. */

/* The time of a number read or written, and of a multiply-add of a float layer, in multiply-adds of codes. */
enum { NUMBER = 16, FLOAT_PRODUCT = 4 };

/* The terms of a window that lies inside a plane. */
static double window_terms(double kernel_h, double kernel_w, const oct_value *plane)
{
    const double h = (double)plane->h, w = (double)plane->w;
    return (kernel_h < h ? kernel_h : h) * (kernel_w < w ? kernel_w : w);
}

/* The positions in a window of a float pooling layer; where its arguments cannot be, those of the whole plane. */
static double pool_terms(const oct_fallback *fallback, const oct_arg_list *list,
                         const oct_value *plane)
{
    oct_pool_geometry g;
    if (oct_args_read(list, fallback->type, &fallback->args, &g) == OCT_OK)
        return window_terms(g.kernel_h, g.kernel_w, plane);
    oct_fail_clear();
    return (double)plane->h * (double)plane->w;
}

/* The work of one number of a float layer: a row of its largest array or, of a product of two values, of the first,
 * or the window of a pooling layer. */
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
    const bool max = strcmp(fallback->type, "max_pool") == 0;
    if (max || strcmp(fallback->type, "avg_pool") == 0)
        terms = pool_terms(fallback, max ? &oct_max_pool_arg_list : &oct_avg_pool_arg_list,
                           oct_step_input(program, step, 0));
    return FLOAT_PRODUCT * terms;
}

/* The time of a step, in multiply-adds of codes: NUMBER for each number read or made, and what its sums take. */
static double step_work(const oct_program *program, const oct_step *step)
{
    const double made = (double)oct_value_numel(oct_step_output(program, step));
    int64_t read = 0;
    for (int i = 0; i < step->num_inputs; i++)
        read += oct_value_numel(oct_step_input(program, step, i));
    const double numbers = NUMBER * (made + (double)read);
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
    OCT_OWNED(oct_free) int64_t *offsets = NULL;
    *cost = (oct_program_cost){0};
    for (int64_t i = 0; i < program->num_steps; i++)
        cost->work += step_work(program, &program->steps[i]);
    OCT_TRY(oct_alloc(&offsets, (size_t)program->num_values, sizeof *offsets));
    return oct_plan_values(program, offsets, &cost->bytes);
}

oct_status oct_program_check_costs(const oct_program *program, int64_t golden)
{
    oct_program_cost cost;
    OCT_TRY(oct_program_costs(program, &cost));
    OCT_CHECK(cost.bytes <= OCT_PROGRAM_BYTES, OCT_DATA,
              "the values of one sample take %s, more than %s" OCT_ALLOW_LARGE,
              oct_text_size(cost.bytes).text, oct_text_size(OCT_PROGRAM_BYTES).text);
    const double all = cost.work * (double)(golden > 0 ? golden : 1);
    OCT_CHECK(cost.work <= OCT_PROGRAM_WORK && all <= 2 * OCT_PROGRAM_WORK, OCT_DATA,
              "one sample takes as long as %.3g multiply-adds and %lld golden inputs as long as "
              "%.3g, more than %.3g and %.3g" OCT_ALLOW_LARGE,
              cost.work, (long long)golden, all, OCT_PROGRAM_WORK, 2 * OCT_PROGRAM_WORK);
    return OCT_OK;
}
