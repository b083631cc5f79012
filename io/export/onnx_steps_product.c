/* Steps that compute: DequantizeLinear, an operator, QuantizeLinear.
 *
 * Weights are written as unsigned codes, 128 higher, with zero points of 128: pairs of products of unsigned and signed
 * bytes overflow 16 bits on processors without instructions for them, where ONNX Runtime saturates; sums of
 * products of unsigned ones are exact on all. Who has those instructions may ask for signed ones. */
#include "io/export/onnx_form.h"

#include "quant/program/step.h"

#include <string.h>

enum { WEIGHT_ZERO = 128 };

oct_to_onnx_ref oct_to_onnx_input_plane(oct_to_onnx_program *p, const oct_step *step)
{
    const oct_value *in = oct_step_input(p->program, step, 0);
    return oct_to_onnx_view(p->w, p->values[step->input[0]], oct_value_shape(in, 4));
}

/* The scale and zero point of a value, which are constants made once. */
static const oct_to_onnx_qparams *find_qparams(oct_to_onnx_program *p, int32_t value)
{
    oct_to_onnx_qparams *made = &p->params[value];
    const oct_value *v = &p->program->values[value];
    if (made->scale) return made;
    made->scale = oct_to_onnx_constant(p->w, NULL, OCT_F32, 0, NULL, &v->q.scale);
    const uint8_t byte = (uint8_t)v->q.zero_point;
    const uint16_t word = (uint16_t)v->q.zero_point;
    made->zero_point = v->dtype == OCT_U8
                           ? oct_to_onnx_constant(p->w, NULL, OCT_U8, 0, NULL, &byte)
                           : oct_to_onnx_constant(p->w, NULL, OCT_U16, 0, NULL, &word);
    return made;
}

const char *oct_to_onnx_dequantize(oct_to_onnx_program *p, int32_t value, const char *x)
{
    const oct_to_onnx_qparams *q = find_qparams(p, value);
    return OCT_TO_ONNX(p->w, "DequantizeLinear", x, q->scale, q->zero_point);
}

const char *oct_to_onnx_widen(oct_to_onnx_program *p, int32_t value, const char *x)
{
    return p->program->values[value].dtype == OCT_U16 ? oct_to_onnx_cast(p->w, x, OCT_F32) : x;
}

const char *oct_to_onnx_narrow(oct_to_onnx_program *p, int32_t value, const char *x)
{
    return p->program->values[value].dtype == OCT_U16 ? oct_to_onnx_cast(p->w, x, OCT_U16) : x;
}

const char *oct_to_onnx_code(oct_to_onnx_program *p, int32_t value, int32_t code)
{
    const uint8_t byte = (uint8_t)code;
    return p->program->values[value].dtype == OCT_U16
               ? oct_to_onnx_scalar(p->w, (float)code)
               : oct_to_onnx_constant(p->w, NULL, OCT_U8, 0, NULL, &byte);
}

oct_to_onnx_ref oct_to_onnx_clip(oct_to_onnx_program *p, int32_t value, oct_to_onnx_ref x,
                                 int32_t lo, int32_t hi)
{
    const oct_value *v = &p->program->values[value];
    const int32_t zero = v->q.zero_point, most = v->dtype == OCT_U8 ? UINT8_MAX : UINT16_MAX;
    if (lo + zero <= 0 && hi + zero >= most) return x;
    const char *least = oct_to_onnx_code(p, value, lo + zero),
               *greatest = oct_to_onnx_code(p, value, hi + zero);
    x.name = OCT_TO_ONNX(p->w, "Clip", oct_to_onnx_widen(p, value, x.name), least, greatest);
    x.name = oct_to_onnx_narrow(p, value, x.name);
    return x;
}

oct_to_onnx_ref oct_to_onnx_quantize(oct_to_onnx_program *p, int32_t value, oct_to_onnx_ref x,
                                     int32_t lo, int32_t hi)
{
    const oct_to_onnx_qparams *q = find_qparams(p, value);
    x.name = OCT_TO_ONNX(p->w, "QuantizeLinear", x.name, q->scale, q->zero_point);
    return oct_to_onnx_clip(p, value, x, lo, hi);
}

/* Makes codes of a value, cut to its own codes alone. */
static oct_to_onnx_ref quantize_to_value(oct_to_onnx_program *p, int32_t value, oct_to_onnx_ref x)
{
    const oct_qparams *q = &p->program->values[value].q;
    return oct_to_onnx_quantize(p, value, x, q->qmin - q->zero_point, q->qmax - q->zero_point);
}

static int weight_zero(const oct_to_onnx_program *p)
{
    return p->job->signed_weights ? 0 : WEIGHT_ZERO;
}

static oct_dtype weight_type(const oct_to_onnx_program *p)
{
    return p->job->signed_weights ? OCT_S8 : OCT_U8;
}

static const char *dequantize_rows(oct_to_onnx_writer *w, const char *x, const char *scale,
                                   const char *zero)
{
    const char *y = OCT_TO_ONNX(w, "DequantizeLinear", x, scale, zero);
    oct_to_onnx_int_set(w, "axis", 0);
    return y;
}

/* Writes weight and bias of a layer as nodes: ndim and dims of the weight, (O, I/groups, kh, kw), or (O, C H W) for
 * a row that was flattened from `plane`. made: both, or NULL. */
static void write_weights(oct_to_onnx_program *p, const oct_step *step, int ndim,
                          const int64_t *dims, const oct_shape *plane, const char *made[2])
{
    const oct_conv_shape *s = &step->conv.shape;
    const int64_t n = s->out_c, depth = oct_conv_depth(s);
    const int64_t channels = plane->ndim == 4 ? plane->dim[3] : s->in_c / s->groups;
    const int zero = weight_zero(p);
    const oct_dtype dtype = weight_type(p);
    oct_to_onnx_writer *w = p->w;
    uint8_t *codes = oct_to_onnx_alloc(w, (size_t)(n * depth)),
            *zeros = oct_to_onnx_alloc(w, (size_t)n);
    int32_t *bias = oct_to_onnx_alloc(w, (size_t)n * sizeof *bias);
    int32_t *bias_zeros = oct_to_onnx_alloc(w, (size_t)n * sizeof *bias_zeros);
    float *bias_scale = oct_to_onnx_alloc(w, (size_t)n * sizeof *bias_scale);
    made[0] = made[1] = NULL;
    if (oct_to_onnx_status(w) != OCT_OK) return;
    if (!oct_export_biases(step, oct_step_input(p->program, step, 0)->q, bias, bias_scale)) {
        oct_to_onnx_fail(w, OCT_PREPARE, "%s: its bias does not fit into 32 bits, which ONNX has",
                         step->name);
        return;
    }
    oct_export_weights(step, channels, (int64_t[]){depth, 1, depth / channels}, zero, codes);
    memset(zeros, zero, (size_t)n);
    made[0] =
        dequantize_rows(w, oct_to_onnx_kept_constant(w, NULL, dtype, ndim, dims, codes),
                        oct_to_onnx_constant(w, NULL, OCT_F32, 1, &n, step->conv.weight_scale),
                        oct_to_onnx_kept_constant(w, NULL, dtype, 1, &n, zeros));
    made[1] = dequantize_rows(w, oct_to_onnx_kept_constant(w, NULL, OCT_S32, 1, &n, bias),
                              oct_to_onnx_kept_constant(w, NULL, OCT_F32, 1, &n, bias_scale),
                              oct_to_onnx_kept_constant(w, NULL, OCT_S32, 1, &n, bias_zeros));
}

/* Adds the sums of a layer over rows x (N, I), as a Gemm. */
static const char *add_gemm(oct_to_onnx_program *p, const oct_step *step, const oct_to_onnx_ref *x)
{
    const oct_conv_shape *s = &step->conv.shape;
    const char *weights[2];
    write_weights(p, step, 2, (int64_t[]){s->out_c, oct_conv_depth(s)}, &x->tensor.plane, weights);
    const char *y = OCT_TO_ONNX(p->w, "Gemm", oct_to_onnx_dequantize(p, step->input[0], x->name),
                                weights[0], weights[1]);
    oct_to_onnx_int_set(p->w, "transB", 1);
    return y;
}

/* Puts input_step - 1 rows and columns of zero points after each one of a transposed convolution's codes: as the
 * ends of dimensions of their own, and the Slice removes what is after the last row and column. */
static oct_to_onnx_ref dilate_input(oct_to_onnx_program *p, const oct_step *step, oct_to_onnx_ref x)
{
    oct_to_onnx_writer *w = p->w;
    const oct_shape s = x.tensor.shape;
    const int64_t h = s.dim[1], width = s.dim[2], c = s.dim[3];
    const int64_t down = step->conv.input_step_h, across = step->conv.input_step_w;
    if (down <= 1 && across <= 1) return x;
    const int32_t value = step->input[0];
    const char *y = OCT_TO_ONNX(w, "Reshape", oct_to_onnx_widen(p, value, x.name),
                                OCT_TO_ONNX_LIST(w, 0, c, h, 1, width, 1));
    y = OCT_TO_ONNX(w, "Pad", y,
                    OCT_TO_ONNX_LIST(w, 0, 0, 0, 0, 0, 0, 0, 0, 0, down - 1, 0, across - 1),
                    oct_to_onnx_code(p, value, p->program->values[value].q.zero_point));
    y = OCT_TO_ONNX(w, "Reshape", y, OCT_TO_ONNX_LIST(w, 0, c, h * down, width * across));
    const int64_t out_h = step->conv.shape.in_h, out_w = step->conv.shape.in_w;
    y = OCT_TO_ONNX(w, "Slice", y, OCT_TO_ONNX_LIST(w, 0, 0), OCT_TO_ONNX_LIST(w, out_h, out_w),
                    OCT_TO_ONNX_LIST(w, 2, 3));
    return (oct_to_onnx_ref){oct_to_onnx_narrow(p, value, y),
                             {.shape = OCT_SHAPE(s.dim[0], out_h, out_w, c)}};
}

/* Writes the sums of a layer over planes, as a Conv. */
static oct_to_onnx_ref add_conv(oct_to_onnx_program *p, const oct_step *step, oct_to_onnx_ref x)
{
    const oct_conv_shape *s = &step->conv.shape;
    const oct_shape none = {.ndim = 0};
    const char *weights[2];
    x = dilate_input(p, step, x);
    write_weights(p, step, 4, (int64_t[]){s->out_c, s->in_c / s->groups, s->kernel_h, s->kernel_w},
                  &none, weights);
    const char *y = OCT_TO_ONNX(p->w, "Conv", oct_to_onnx_dequantize(p, step->input[0], x.name),
                                weights[0], weights[1]);
    oct_to_onnx_conv_set(p->w, s);
    return (oct_to_onnx_ref){y, {.shape = OCT_SHAPE(1, s->out_h, s->out_w, s->out_c)}};
}

/* Notes where the arithmetic of a step is not that of runtimes, so that codes may differ. */
static void note_arithmetic_diffs(oct_to_onnx_program *p, const oct_step *step)
{
    const oct_program *program = p->program;
    if (oct_export_halves_differ(program, step))
        oct_export_note_diff(p->diffs, OCT_TO_ONNX_DIFF_SHIFT, step);
    const oct_rounding_row *rounding = oct_rounding_of(program->requantizer);
    if (rounding->constants_of && !rounding->shifts)
        oct_export_note_diff(p->diffs, OCT_TO_ONNX_DIFF_MULTIPLIER, step);
    bool wide = oct_step_output(program, step)->dtype == OCT_U16;
    for (int i = 0; i < step->num_inputs; i++)
        wide |= oct_step_input(program, step, i)->dtype == OCT_U16;
    if (wide) oct_export_note_diff(p->diffs, OCT_TO_ONNX_DIFF_WIDE, step);
}

/* Adds the second input of a layer that is fused with a sum, in floats. */
static oct_to_onnx_ref add_second(oct_to_onnx_program *p, const oct_step *step, oct_to_onnx_ref x)
{
    if (step->num_inputs == 1) return x;
    const oct_to_onnx_ref addend =
        oct_to_onnx_view(p->w, p->values[step->input[1]], x.tensor.shape);
    x.name =
        OCT_TO_ONNX(p->w, "Add", x.name, oct_to_onnx_dequantize(p, step->input[1], addend.name));
    oct_export_note_diff(p->diffs, OCT_TO_ONNX_DIFF_ADDEND, step);
    return x;
}

/* Computes the sums of a layer, without rounding and activation. A value of two dimensions is a row, as is an image
 * that the layer takes flattened (`flat`). */
static oct_to_onnx_ref compute_sums(oct_to_onnx_program *p, const oct_step *step)
{
    const oct_conv_shape *s = &step->conv.shape;
    oct_to_onnx_ref x = p->values[step->input[0]];
    const oct_value *in = &p->program->values[step->input[0]];
    note_arithmetic_diffs(p, step);
    const bool flat = s->in_h == 1 && s->in_w == 1 && s->in_c != in->c;
    if (flat) x = oct_to_onnx_view(p->w, x, OCT_SHAPE(1, s->in_c));
    if (x.tensor.shape.ndim != 2)
        return add_conv(p, step, oct_to_onnx_view(p->w, x, oct_value_shape(in, 4)));
    if (s->groups > 1)
        return add_conv(p, step, oct_to_onnx_view(p->w, x, OCT_SHAPE(1, 1, 1, s->in_c)));
    return (oct_to_onnx_ref){add_gemm(p, step, &x), {.shape = OCT_SHAPE(1, s->out_c)}};
}

static oct_to_onnx_ref write_conv(oct_to_onnx_program *p, const oct_step *step)
{
    const bool row = p->values[step->input[0]].tensor.shape.ndim == 2;
    oct_to_onnx_ref y = add_second(p, step, compute_sums(p, step));
    y = oct_to_onnx_quantize(p, step->output, y, step->conv.lo, step->conv.hi);
    return row ? oct_to_onnx_view(p->w, y, OCT_SHAPE(1, step->conv.shape.out_c)) : y;
}

/* Adds the activation of a layer with float outputs, which its upper bound states: 6 ReLU6, 0 none, others ReLU. */
static oct_to_onnx_ref add_activation(oct_to_onnx_program *p, const oct_step *step,
                                      oct_to_onnx_ref y)
{
    if (step->conv.hi == 6)
        y.name = OCT_TO_ONNX(p->w, "Clip", y.name, oct_to_onnx_scalar(p->w, 0),
                             oct_to_onnx_scalar(p->w, 6));
    else if (step->conv.hi != 0)
        y.name = OCT_TO_ONNX(p->w, "Relu", y.name);
    return y;
}

static bool is_pointwise(const oct_step *step)
{
    const oct_conv_shape *s = &step->conv.shape;
    return step->conv.input_step_h <= 1 && step->conv.input_step_w <= 1 && s->groups == 1 &&
           oct_conv_is_pointwise(s);
}

/* Runtimes have integer products with float results for matrices alone, so the pixels of a 1x1 convolution go in as
 * rows of one matrix. */
static oct_to_onnx_ref write_conv_float(oct_to_onnx_program *p, const oct_step *step)
{
    const oct_conv_shape *s = &step->conv.shape;
    const oct_to_onnx_ref x = p->values[step->input[0]];
    const oct_shape plane = OCT_SHAPE(1, s->out_h, s->out_w, s->out_c);
    const bool flat = s->in_h == 1 && s->in_w == 1;
    if (flat || x.tensor.shape.ndim == 2 || !is_pointwise(step)) {
        if (!flat) oct_export_note_diff(p->diffs, OCT_TO_ONNX_DIFF_FLOAT_CONV, step);
        const oct_to_onnx_ref row = flat ? oct_to_onnx_view(p->w, x, OCT_SHAPE(1, s->in_c)) : x;
        p->values[step->input[0]] = row; /* for compute_sums alone */
        const oct_to_onnx_ref y =
            add_activation(p, step, add_second(p, step, compute_sums(p, step)));
        p->values[step->input[0]] = x;
        return y;
    }
    note_arithmetic_diffs(p, step);
    oct_to_onnx_ref rows = {OCT_TO_ONNX(p->w, "Reshape", oct_to_onnx_channels_last(p->w, x),
                                        OCT_TO_ONNX_LIST(p->w, -1, s->in_c)),
                            {.shape = OCT_SHAPE(1, s->in_c)}};
    const char *y = OCT_TO_ONNX(p->w, "Reshape", add_gemm(p, step, &rows),
                                OCT_TO_ONNX_LIST(p->w, -1, s->out_h, s->out_w, s->out_c));
    return add_activation(p, step, add_second(p, step, oct_to_onnx_channels_first(p->w, y, plane)));
}

/* Writes an operator of two values of codes. Where neither repeats, both have one shape: tokens are (N, T, C) after a
 * float layer, and an image of one row after a convolution. */
static oct_to_onnx_ref write_binary(oct_to_onnx_program *p, const oct_step *step, const char *type,
                                    int32_t lo, int32_t hi)
{
    oct_to_onnx_ref x[2] = {p->values[step->input[0]], p->values[step->input[1]]};
    if (oct_shape_numel(&x[0].tensor.shape) == oct_shape_numel(&x[1].tensor.shape))
        x[1] = oct_to_onnx_view(p->w, x[1], x[0].tensor.shape);
    for (int i = 0; i < 2; i++)
        x[i].name = oct_to_onnx_dequantize(p, step->input[i], x[i].name);
    note_arithmetic_diffs(p, step);
    return oct_to_onnx_quantize(p, step->output, oct_to_onnx_binary(p->w, type, x), lo, hi);
}

static oct_to_onnx_ref write_add(oct_to_onnx_program *p, const oct_step *step)
{
    const oct_value *values = p->program->values;
    const float scale = values[step->output].q.scale;
    if (values[step->input[0]].q.scale != scale || values[step->input[1]].q.scale != scale)
        oct_export_note_diff(p->diffs, OCT_TO_ONNX_DIFF_SCALES, step);
    return write_binary(p, step, step->add.mb < 0 ? "Sub" : "Add", step->add.lo, step->add.hi);
}

static oct_to_onnx_ref write_mul(oct_to_onnx_program *p, const oct_step *step)
{
    const oct_qparams *q = &p->program->values[step->output].q;
    const oct_value *values = p->program->values;
    if (oct_qmul_overflows(values[step->input[0]].q, values[step->input[1]].q, step->mul.factor))
        oct_to_onnx_fail(p->w, OCT_PREPARE, "%s: " OCT_QMUL_OVERFLOW, step->name);
    if (!step->mul.offset_first) oct_export_note_diff(p->diffs, OCT_TO_ONNX_DIFF_PRODUCT, step);
    return write_binary(p, step, "Mul", q->qmin - q->zero_point, q->qmax - q->zero_point);
}

static oct_to_onnx_ref write_quantize(oct_to_onnx_program *p, const oct_step *step)
{
    if (!step->quantize.quotient) oct_export_note_diff(p->diffs, OCT_TO_ONNX_DIFF_QUOTIENT, step);
    return quantize_to_value(p, step->output, p->values[step->input[0]]);
}

static oct_to_onnx_ref write_dequantize(oct_to_onnx_program *p, const oct_step *step)
{
    oct_to_onnx_ref y = p->values[step->input[0]];
    y.name = oct_to_onnx_dequantize(p, step->input[0], y.name);
    return y;
}

/* Sums of a window times a factor are a depthwise convolution whose weights are 1. */
static const char *average_by_sums(oct_to_onnx_program *p, const oct_step *step, const char *x)
{
    const oct_conv_shape *s = &step->pool.shape;
    const int64_t dims[] = {s->in_c, 1, s->kernel_h, s->kernel_w};
    const uint8_t zero = (uint8_t)weight_zero(p);
    const float share = 1.0f / (float)(s->kernel_h * s->kernel_w);
    const size_t numel = (size_t)(s->in_c * s->kernel_h * s->kernel_w);
    uint8_t *ones = oct_to_onnx_alloc(p->w, numel);
    if (ones) memset(ones, zero + 1, numel);
    const char *weights =
        OCT_TO_ONNX(p->w, "DequantizeLinear",
                    oct_to_onnx_kept_constant(p->w, NULL, weight_type(p), 4, dims, ones),
                    oct_to_onnx_scalar(p->w, share),
                    oct_to_onnx_constant(p->w, NULL, weight_type(p), 0, NULL, &zero));
    const char *y = OCT_TO_ONNX(p->w, "Conv", x, weights);
    oct_to_onnx_windows_set(p->w, s);
    oct_to_onnx_int_set(p->w, "group", s->in_c);
    return y;
}

static const char *average_in_float(oct_to_onnx_program *p, const oct_step *step, const char *x)
{
    const char *y = OCT_TO_ONNX(p->w, "AveragePool", x);
    oct_to_onnx_windows_set(p->w, &step->pool.shape);
    oct_to_onnx_int_set(p->w, "ceil_mode", step->pool.ceil);
    oct_to_onnx_int_set(p->w, "count_include_pad", step->pool.count_include_pad);
    oct_export_note_diff(p->diffs,
                         step->pool.ceil && step->pool.count_include_pad
                             ? OCT_TO_ONNX_DIFF_AVERAGE_CEIL
                             : OCT_TO_ONNX_DIFF_AVERAGE,
                         step);
    return y;
}

/* An average that is a sum times one factor is exact as a convolution; others are taken in float. */
static oct_to_onnx_ref write_avg_pool(oct_to_onnx_program *p, const oct_step *step)
{
    const oct_conv_shape *s = &step->pool.shape;
    const float in_scale = oct_step_input(p->program, step, 0)->q.scale;
    const char *x =
        oct_to_onnx_dequantize(p, step->input[0], oct_to_onnx_input_plane(p, step).name);
    const bool sums = step->pool.factor != 0 &&
                      step->pool.factor == oct_qavg_factor(in_scale, s->kernel_h * s->kernel_w);
    const char *y = sums ? average_by_sums(p, step, x) : average_in_float(p, step, x);
    return quantize_to_value(
        p, step->output,
        (oct_to_onnx_ref){y, {.shape = OCT_SHAPE(1, s->out_h, s->out_w, s->out_c)}});
}

static oct_to_onnx_ref write_softmax(oct_to_onnx_program *p, const oct_step *step)
{
    oct_to_onnx_ref x = p->values[step->input[0]];
    x.name = oct_to_onnx_dequantize(p, step->input[0], x.name);
    const oct_float_layer layer = {.type = "softmax", .name = step->name};
    const oct_to_onnx_ref y = oct_to_onnx_layer_write(p->w, &layer, 1, &x, false);
    oct_export_note_diff(p->diffs, OCT_TO_ONNX_DIFF_SOFTMAX, step);
    return quantize_to_value(p, step->output, y);
}

/* A layer that stays float is written as in a float network. */
static oct_to_onnx_ref write_float_fallback(oct_to_onnx_program *p, const oct_step *step)
{
    const oct_fallback *fallback = step->fallback;
    oct_to_onnx_ref input[OCT_STEP_INPUTS];
    oct_float_layer layer = {.type = fallback->type, .name = step->name, .args = fallback->args};
    for (int64_t i = 0; i < fallback->num_arrays && i < OCT_LAYER_ARRAYS; i++)
        if (fallback->arrays[i].dtype == OCT_F32)
            layer.array[layer.num_arrays++] = (oct_layer_array){.name = fallback->arrays[i].name,
                                                                .shape = fallback->arrays[i].shape,
                                                                .data = fallback->arrays[i].data};
    for (int i = 0; i < step->num_inputs; i++)
        input[i] = oct_to_onnx_view(
            p->w, p->values[step->input[i]],
            oct_value_shape(oct_step_input(p->program, step, i), fallback->dims[i]));
    oct_export_note_diff(p->diffs, OCT_TO_ONNX_DIFF_FALLBACK, step);
    return oct_to_onnx_layer_write(p->w, &layer, step->num_inputs, input, false);
}

oct_to_onnx_write *const oct_to_onnx_product_steps[OCT_STEP_KINDS] = {
    [OCT_STEP_QUANTIZE] = write_quantize,
    [OCT_STEP_DEQUANTIZE] = write_dequantize,
    [OCT_STEP_CONV] = write_conv,
    [OCT_STEP_CONV_FLOAT] = write_conv_float,
    [OCT_STEP_ADD] = write_add,
    [OCT_STEP_MUL] = write_mul,
    [OCT_STEP_AVG_POOL] = write_avg_pool,
    [OCT_STEP_SOFTMAX] = write_softmax,
    [OCT_STEP_FLOAT] = write_float_fallback,
};
