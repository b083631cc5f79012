/* This finds the kinds of steps, and reads and writes their numbers and arrays by the lists of the kinds. */
#include "quant/program/step.h"

#include <string.h>

/* program.h: the first payload is the largest. */
_Static_assert(sizeof(oct_step) - offsetof(oct_step, conv) == sizeof(oct_conv_step),
               "conv is smaller than another kind");

static const oct_step_type *const types[OCT_STEP_KINDS] = {
#define X(kind, name) [OCT_STEP_##kind] = &oct_step_##name,
    OCT_STEP_LIST(X)
#undef X
};

const oct_step_type *oct_step_type_of(oct_step_kind kind)
{
    return (int)kind >= 0 && kind < OCT_STEP_KINDS ? types[kind] : NULL;
}

const oct_conv_shape *oct_step_window(const oct_step *step)
{
    if (step->kind == OCT_STEP_CONV || step->kind == OCT_STEP_CONV_FLOAT) return &step->conv.shape;
    const bool pool = step->kind == OCT_STEP_MAX_POOL || step->kind == OCT_STEP_AVG_POOL;
    return pool ? &step->pool.shape : NULL;
}

const char *oct_step_window_text(const oct_step *step, char text[OCT_WINDOW_TEXT])
{
    const oct_conv_shape *window = oct_step_window(step);
    text[0] = '\0';
    return window ? oct_window_text(window, text) : text;
}

const char *oct_step_operation(const oct_step *step)
{
    return step->kind == OCT_STEP_FLOAT ? step->fallback->type : oct_step_type_of(step->kind)->name;
}

void oct_value_set_plane(oct_value *value, const oct_shape *shape)
{
    const int n = shape->ndim;
    value->h = n == 4 ? shape->dim[1] : 1;
    value->w = n >= 3 ? shape->dim[n - 2] : 1;
    value->c = n >= 2 ? shape->dim[n - 1] : 1;
}

int64_t oct_value_numel(const oct_value *value)
{
    return value->h * value->w * value->c;
}

size_t oct_value_bytes(const oct_value *value)
{
    return (size_t)oct_value_numel(value) * oct_dtype_bytes(value->dtype);
}

int64_t oct_inputs_numel(const oct_program *program)
{
    int64_t numel = 0;
    for (int i = 0; i < program->num_inputs; i++)
        numel += oct_value_numel(&program->values[program->inputs[i]]);
    return numel;
}

int64_t oct_step_array_numel(const oct_step *step, const oct_step_array *array)
{
    oct_shape shape;
    return array->shape(step, &shape) == OCT_OK ? oct_shape_numel(&shape) : 0;
}

void *oct_step_slot(oct_step *step, const oct_step_array *array)
{
    return (char *)step + array->offset;
}

const void *oct_step_data(const oct_step *step, const oct_step_array *array)
{
    const void *data;
    memcpy(&data, (const char *)step + array->offset, sizeof data);
    return data;
}
