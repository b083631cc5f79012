/* The kinds of steps: their list, the arrays that they own, and the checks that several kinds share. */
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

oct_shape oct_value_shape(const oct_value *value, int dims)
{
    const int64_t size[] = {1, value->h, value->w, value->c};
    oct_shape shape = {.ndim = dims, .dim = {1}};
    for (int d = 1; d < dims; d++)
        shape.dim[d] = size[4 - dims + d];
    return shape;
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

/* Checks. */

static const int64_t max_dilated = INT64_C(1) << 28; /* codes */

static bool is_window_side(int side)
{
    return side >= 1 && side <= OCT_WINDOW_MAX;
}

static bool is_pad(int pad, int most)
{
    return pad >= 0 && pad <= most;
}

/* The shape with the output plane that follows from the rest of it; ceil: of a pool that rounds up. */
static oct_conv_shape with_expected_output(oct_conv_shape s, bool ceil)
{
    oct_conv_set_out(&s);
    if (!ceil) return s;
    return oct_pool_shape_of(s.in_h, s.in_w, s.in_c,
                             (oct_pool_geometry){.kernel_h = s.kernel_h,
                                                 .kernel_w = s.kernel_w,
                                                 .stride_h = s.stride_h,
                                                 .stride_w = s.stride_w,
                                                 .pad_top = s.pad_top,
                                                 .pad_left = s.pad_left,
                                                 .pad_bottom = s.pad_bottom,
                                                 .pad_right = s.pad_right,
                                                 .ceil = true});
}

oct_status oct_check_window(const oct_conv_shape *s, bool ceil, int max_padding)
{
    OCT_CHECK(oct_is_size(s->in_h) && oct_is_size(s->in_w) && oct_is_size(s->in_c) &&
                  oct_is_size(s->out_h) && oct_is_size(s->out_w) && oct_is_size(s->out_c),
              OCT_DATA, "its sizes are not within 1 to %d", OCT_DIM_MAX);
    OCT_CHECK(is_window_side(s->kernel_h) && is_window_side(s->kernel_w) &&
                  is_window_side(s->stride_h) && is_window_side(s->stride_w) &&
                  is_window_side(s->dilation_h) && is_window_side(s->dilation_w),
              OCT_DATA, "its kernel, stride and dilation are not within 1 to %d", OCT_WINDOW_MAX);
    OCT_CHECK(is_pad(s->pad_top, max_padding) && is_pad(s->pad_left, max_padding) &&
                  is_pad(s->pad_bottom, max_padding) && is_pad(s->pad_right, max_padding),
              OCT_DATA, "padding %d above, %d left, %d below, %d right is not within 0 to %d",
              s->pad_top, s->pad_left, s->pad_bottom, s->pad_right, max_padding);
    const oct_conv_shape follows = with_expected_output(*s, ceil);
    OCT_CHECK(follows.out_h >= 1 && follows.out_w >= 1, OCT_DATA,
              "its kernel is larger than its input");
    OCT_CHECK(s->out_h == follows.out_h && s->out_w == follows.out_w, OCT_DATA,
              "output plane %lld x %lld does not follow from its input, kernel, stride and padding",
              (long long)s->out_h, (long long)s->out_w);
    return OCT_OK;
}

/* Checks that a convolution's input plane is the value with zeros between its rows and columns. */
static oct_status check_dilated(const oct_step *step, const oct_value *value)
{
    const oct_conv_shape *s = &step->conv.shape;
    OCT_CHECK(step->conv.input_step_h >= 1 && step->conv.input_step_h <= OCT_WINDOW_MAX &&
                  step->conv.input_step_w >= 1 && step->conv.input_step_w <= OCT_WINDOW_MAX &&
                  (step->kind == OCT_STEP_CONV || step->kind == OCT_STEP_CONV_FLOAT),
              OCT_DATA, "its input cannot be dilated by %d x %d", step->conv.input_step_h,
              step->conv.input_step_w);
    OCT_CHECK(s->in_c == value->c && s->in_h == (value->h - 1) * step->conv.input_step_h + 1 &&
                  s->in_w == (value->w - 1) * step->conv.input_step_w + 1,
              OCT_DATA, "its input shape is not that of value %d dilated by %d x %d",
              step->input[0], step->conv.input_step_h, step->conv.input_step_w);
    OCT_CHECK(s->in_h * s->in_w <= max_dilated / s->in_c, OCT_DATA,
              "one sample of its dilated input has more than 2^28 codes");
    return OCT_OK;
}

oct_status oct_check_step_shape(const oct_program *program, const oct_step *step,
                                const oct_conv_shape *s)
{
    const oct_value *in = oct_step_input(program, step, 0), *out = oct_step_output(program, step);
    const bool dilated = oct_step_type_of(step->kind)->weights &&
                         (step->conv.input_step_h > 1 || step->conv.input_step_w > 1);
    /* A value may enter flattened: NHWC makes that a mere view. */
    const bool same = s->in_h == in->h && s->in_w == in->w && s->in_c == in->c;
    const bool flat = s->in_h == 1 && s->in_w == 1 && s->in_c == oct_value_numel(in);
    if (dilated)
        OCT_TRY(check_dilated(step, in));
    else
        OCT_CHECK(same || flat, OCT_DATA, "its input shape is not that of value %d",
                  step->input[0]);
    OCT_CHECK(s->out_h == out->h && s->out_w == out->w && s->out_c == out->c, OCT_DATA,
              "its output shape is not that of value %d", step->output);
    return OCT_OK;
}

oct_status oct_check_pool(const oct_program *program, const oct_step *step)
{
    const oct_conv_shape *s = &step->pool.shape;
    OCT_TRY(oct_check_window(s, step->pool.ceil, OCT_WINDOW_MAX));
    OCT_TRY(oct_check_step_shape(program, step, s));
    OCT_CHECK(s->pad_top < s->kernel_h && s->pad_bottom < s->kernel_h &&
                  s->pad_left < s->kernel_w && s->pad_right < s->kernel_w,
              OCT_DATA, "a window of it would lie in the padding alone");
    OCT_CHECK(s->dilation_h == 1 && s->dilation_w == 1, OCT_DATA, "its window is dilated");
    OCT_CHECK(s->in_c == s->out_c, OCT_DATA, "its output has other channels than its input");
    return oct_check_same_qparams(program, step);
}

oct_status oct_check_table(const oct_program *program, const oct_step *step, const void *table,
                           int64_t size)
{
    const int64_t codes = oct_qtable_size(oct_step_input(program, step, 0)->q);
    OCT_CHECK(table && size == codes, OCT_DATA, "its table is missing or has not %lld entries",
              (long long)codes);
    return OCT_OK;
}

oct_status oct_check_same_shape(const oct_program *program, const oct_step *step, int i)
{
    const oct_value *x = oct_step_input(program, step, i), *y = oct_step_output(program, step);
    OCT_CHECK(x->h == y->h && x->w == y->w && x->c == y->c, OCT_DATA,
              "its input %d and output differ in shape", i);
    return OCT_OK;
}

oct_status oct_check_bounds(const oct_program *program, const oct_step *step, int32_t lo,
                            int32_t hi)
{
    const oct_qparams *q = &oct_step_output(program, step)->q;
    OCT_CHECK(lo <= hi && lo >= q->qmin - q->zero_point && hi <= q->qmax - q->zero_point, OCT_DATA,
              "bounds %d to %d are not within the codes of value %d", lo, hi, step->output);
    return OCT_OK;
}

oct_status oct_check_same_qparams(const oct_program *program, const oct_step *step)
{
    OCT_CHECK(
        oct_qparams_equal(oct_step_input(program, step, 0)->q, oct_step_output(program, step)->q),
        OCT_DATA, "its output is quantized otherwise than its input");
    return OCT_OK;
}
