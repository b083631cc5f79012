/* This finds the kinds of steps, and reads and writes their numbers and arrays by the lists of the kinds. */
#include "quant/program/step.h"

#include <string.h>

static const int64_t max_weight_bytes = INT64_C(1) << 31; /* of one step */

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

static int64_t get_cell(const oct_step *step, const oct_step_field *field)
{
    const void *at = (const char *)step + field->offset;
    if (field->type == OCT_FIELD_BOOL) return *(const bool *)at;
    return field->type == OCT_FIELD_S64 ? *(const int64_t *)at : *(const int32_t *)at;
}

static void set_cell(oct_step *step, const oct_step_field *field, int64_t value)
{
    void *at = (char *)step + field->offset;
    if (field->type == OCT_FIELD_BOOL)
        *(bool *)at = value != 0;
    else if (field->type == OCT_FIELD_S64)
        *(int64_t *)at = value;
    else
        *(int32_t *)at = (int32_t)value;
}

static float *factor_of(oct_step *step, const oct_step_field *field)
{
    return (float *)(void *)((char *)step + field->offset);
}

void oct_step_get_fields(const oct_step *step, int64_t *cells, float *factors)
{
    const oct_step_type *type = oct_step_type_of(step->kind);
    oct_step copy = *step;
    memset(cells, 0, OCT_STEP_CELLS * sizeof *cells);
    memset(factors, 0, OCT_STEP_FACTORS * sizeof *factors);
    for (int i = 0; i < type->num_fields; i++) {
        const oct_step_field *field = &type->fields[i];
        if (field->type == OCT_FIELD_F32)
            factors[field->cell] = *factor_of(&copy, field);
        else
            cells[field->cell] = get_cell(step, field);
    }
}

oct_status oct_step_set_fields(oct_step *step, const int64_t *cells, const float *factors)
{
    const oct_step_type *type = oct_step_type_of(step->kind);
    int64_t rest[OCT_STEP_CELLS];
    float other[OCT_STEP_FACTORS];
    memcpy(rest, cells, sizeof rest);
    memcpy(other, factors, sizeof other);
    for (int i = 0; i < type->num_fields; i++) {
        const oct_step_field *field = &type->fields[i];
        const int64_t cell = cells[field->cell];
        if (field->type == OCT_FIELD_F32) {
            *factor_of(step, field) = factors[field->cell];
            other[field->cell] = 0;
            continue;
        }
        OCT_CHECK(cell >= field->min && cell <= field->max, OCT_DATA, "its %s is %lld", field->name,
                  (long long)cell);
        set_cell(step, field, cell);
        rest[field->cell] = 0;
    }
    for (int i = 0; i < OCT_STEP_CELLS; i++)
        OCT_CHECK(rest[i] == 0, OCT_DATA, "its number %d is %lld, but a %s has no such number", i,
                  (long long)rest[i], type->name);
    for (int i = 0; i < OCT_STEP_FACTORS; i++)
        OCT_CHECK(other[i] == 0.0f, OCT_DATA, "its factor %d is %g, but a %s has no such factor", i,
                  (double)other[i], type->name);
    return OCT_OK;
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

/* Nothing overflows: each factor is at most OCT_DIM_MAX and the first product at most max_weight_bytes. */
static oct_status weight_shape(const oct_step *step, oct_shape *shape)
{
    const oct_conv_shape *s = &step->conv.shape;
    const bool sizes = oct_is_size(s->out_c) && oct_is_size(s->kernel_h) &&
                       oct_is_size(s->kernel_w) && oct_is_size(s->in_c) && s->groups >= 1 &&
                       s->in_c % s->groups == 0;
    if (sizes) *shape = OCT_SHAPE(s->out_c, s->kernel_h, s->kernel_w, s->in_c / s->groups);
    const int64_t numel = sizes ? oct_shape_numel(shape) : 0;
    OCT_CHECK(numel > 0 && numel <= max_weight_bytes, OCT_DATA,
              "its sizes are not those of a convolution");
    return OCT_OK;
}

static oct_status channel_shape(const oct_step *step, oct_shape *shape)
{
    *shape = OCT_SHAPE(step->conv.shape.out_c);
    return OCT_OK;
}

#define OCT_CONV_ARRAY(in_file, type, member, of, counted)                                         \
    {                                                                                              \
        .group = "weights", .name = in_file, .dtype = type, .parameters = counted,                 \
        .offset = offsetof(oct_step, member), .shape = of                                          \
    }
const oct_step_array oct_conv_arrays[OCT_CONV_ARRAYS] = {
    OCT_CONV_ARRAY("codes", OCT_S8, conv.weight, weight_shape, true),
    OCT_CONV_ARRAY("bias", OCT_S64, conv.bias, channel_shape, true),
    OCT_CONV_ARRAY("multiplier", OCT_F32, conv.multiplier, channel_shape, false),
    OCT_CONV_ARRAY("scale", OCT_F32, conv.weight_scale, channel_shape, false),
};
