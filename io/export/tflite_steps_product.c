/* Steps that compute: each is an integer operator of TFLite with XNNPACK, whose arithmetic is the step's where the model
 * was trained for it. What TFLite has in floats alone stands between DEQUANTIZE and QUANTIZE. */
#include "io/export/tflite_form.h"

#include "core/base/int_math.h"
#include "quant/program/step.h"

#include <math.h>
#include <string.h>

enum { SAME, VALID };                       /* paddings */
enum { ACT_NONE, ACT_RELU, ACT_RELU6 = 3 }; /* activations */

static const oct_tflite_quant no_quant = {.codes = NULL};

/* The activation that clips codes to these bounds, counted from the zero point; *clip: none does, clip them after. */
static int find_activation(const oct_value *v, int32_t lo, int32_t hi, bool *clip)
{
    const int32_t zero = v->q.zero_point;
    const float six = 6.0f / v->q.scale;
    const int32_t first = lo + zero > 0 ? lo + zero : 0;
    const int32_t last = hi + zero < UINT8_MAX ? hi + zero : UINT8_MAX;
    /* Kernels round the middle between two codes in two ways. */
    const bool even = fabsf(six - floorf(six) - 0.5f) < 0.01f;
    *clip = false;
    if (first == 0 && last == UINT8_MAX) return ACT_NONE;
    if (first == zero && last == UINT8_MAX) return ACT_RELU;
    if (first == zero && !even && six < 512 && last == zero + (int32_t)lrintf(six))
        return ACT_RELU6;
    *clip = true;
    return ACT_NONE;
}

static int quantize_to(oct_to_tflite_program *p, int32_t value, int x)
{
    return oct_to_tflite_apply(p->w, OCT_TFLITE_QUANTIZE, OCT_TO_TFLITE_INPUTS(x),
                               oct_to_tflite_value(p, value), OCT_TO_TFLITE_NO_OPTIONS);
}

/* Makes a tensor of the same sizes in another type. */
static int convert_to(oct_to_tflite_writer *w, oct_tflite_operator kind, int x,
                      oct_tflite_type type, oct_tflite_quant q)
{
    if (w->status != OCT_OK) return OCT_TFLITE_NONE;
    const int y = oct_to_tflite_tensor(w, type, oct_to_tflite_at(w, x)->ndim,
                                       oct_to_tflite_at(w, x)->dims, q);
    return oct_to_tflite_apply(w, kind, OCT_TO_TFLITE_INPUTS(x), y, OCT_TO_TFLITE_NO_OPTIONS);
}

int oct_to_tflite_dequantize(oct_to_tflite_program *p, int x)
{
    return convert_to(p->w, OCT_TFLITE_DEQUANTIZE, x, OCT_TFLITE_FLOAT, no_quant);
}

/* Looks up the codes of pixels in a table for each channel: what normalising and quantizing make of 0 to 255. */
static int quantize_pixels(oct_to_tflite_program *p, const oct_step *step)
{
    const int64_t channels = p->program->values[p->program->inputs[0]].c;
    if (channels > 1 && step->input[0] != p->program->inputs[0])
        return oct_to_tflite_fail(p->w, OCT_PREPARE,
                                  "--pixels: the channels of the input do not reach %s as such; "
                                  "export it with normalised inputs",
                                  step->name);
    uint8_t *table = oct_to_tflite_alloc(p->w, NULL, (size_t)channels * OCT_EXPORT_CODES);
    if (!table) return OCT_TFLITE_NONE;
    oct_export_pixels(step, p->program->values[step->output].q, channels, p->job->mean, p->job->std,
                      table);
    /* Bytes as signed bytes of the same scale, which QUANTIZE makes without rounding: TFLM casts no others. */
    const int x = convert_to(p->w, OCT_TFLITE_QUANTIZE, p->values[step->input[0]], OCT_TFLITE_S8,
                             (oct_tflite_quant){.codes = &(oct_qparams){.scale = 1}});
    return oct_to_tflite_lookup(p, x, step->output, table, channels > 1);
}

/* Whether a step has whole multipliers, as TFLite's reference kernels or another target have them and XNNPACK has not; it is
 * noted then. */
static bool note_whole_multipliers(oct_to_tflite_program *p, const oct_step *step)
{
    const oct_rounding_row *rounding = oct_rounding_of(p->program->requantizer);
    if (!rounding->constants_of || rounding->shifts) return false;
    oct_export_note_diff(
        p->diffs, rounding->is_tflm ? OCT_TO_TFLITE_DIFF_TWICE : OCT_TO_TFLITE_DIFF_MULTIPLIER,
        step);
    return true;
}

static int write_quantize(oct_to_tflite_program *p, const oct_step *step)
{
    const oct_qparams *q = &p->program->values[step->output].q;
    const int x = p->values[step->input[0]];
    const oct_tflite_type type = oct_to_tflite_at(p->w, x)->type;
    if (type == OCT_TFLITE_U8) return quantize_pixels(p, step);
    if (type == OCT_TFLITE_S8) return x;
    if (step->quantize.quotient && !note_whole_multipliers(p, step))
        oct_export_note_diff(p->diffs, OCT_TO_TFLITE_DIFF_QUOTIENT, step);
    const int y = quantize_to(p, step->output, x);
    return oct_to_tflite_clip(p, step->output, y, q->qmin - q->zero_point, q->qmax - q->zero_point);
}

static int write_dequantize(oct_to_tflite_program *p, const oct_step *step)
{
    if (p->job->codes && step->output == p->program->output) return p->values[step->input[0]];
    return oct_to_tflite_dequantize(p, p->values[step->input[0]]);
}

/* Finds the padding before and after the rows and columns of a window: what its last window sees, and no less. */
static void find_pads(const oct_conv_shape *s, int64_t before[3], int64_t after[3])
{
    const int64_t rows = oct_conv_extent(s->kernel_h, s->dilation_h),
                  columns = oct_conv_extent(s->kernel_w, s->dilation_w);
    before[0] = s->pad_top;
    before[1] = s->pad_left;
    after[0] = oct_max_i64((s->out_h - 1) * s->stride_h + rows - s->in_h - s->pad_top, 0);
    after[1] = oct_max_i64((s->out_w - 1) * s->stride_w + columns - s->in_w - s->pad_left, 0);
    before[2] = after[2] = 0;
}

/* Whether TFLite's padding SAME is that of rows or of columns. Where a stride leaves rows over, XNNPACK's is below 0. */
static bool is_same(int64_t in, int64_t out, int64_t extent, int stride, int64_t before)
{
    const int64_t all = (out - 1) * stride + extent - in;
    return all >= 0 && out == (in + stride - 1) / stride && before == all / 2;
}

/* Whether TFLite's padding SAME gives the step's padding, in rows and in columns. */
static bool pads_same(const oct_conv_shape *s)
{
    return is_same(s->in_h, s->out_h, oct_conv_extent(s->kernel_h, s->dilation_h), s->stride_h,
                   s->pad_top) &&
           is_same(s->in_w, s->out_w, oct_conv_extent(s->kernel_w, s->dilation_w), s->stride_w,
                   s->pad_left);
}

/* Gives TFLite's padding of a window: SAME where that is the step's, otherwise VALID of x padded with this code. */
static int pad_window(oct_to_tflite_program *p, const oct_conv_shape *s, int32_t code, int *x)
{
    int64_t before[3], after[3];
    if (pads_same(s)) return SAME;
    find_pads(s, before, after);
    *x = oct_to_tflite_pad(p, *x, before, after, code);
    return VALID;
}

/* Puts input_step - 1 rows and columns of a code after each one of a transposed convolution's input. */
static int dilate_input(oct_to_tflite_program *p, const oct_step *step, int x, int32_t code)
{
    const int64_t steps[2] = {step->conv.input_step_h, step->conv.input_step_w};
    if (steps[0] <= 1 && steps[1] <= 1) return x;
    if (p->w->status != OCT_OK) return OCT_TFLITE_NONE;
    const int64_t *dims = oct_to_tflite_at(p->w, x)->dims, h = dims[1], w = dims[2], c = dims[3];
    const int64_t out_h = step->conv.shape.in_h, out_w = step->conv.shape.in_w;
    x = oct_to_tflite_reshape(p->w, x, 4, (int64_t[]){1, h * w, 1, c});
    x = oct_to_tflite_pad(p, x, (int64_t[3]){0}, (int64_t[]){0, steps[1] - 1, 0}, code);
    x = oct_to_tflite_reshape(p->w, x, 4, (int64_t[]){1, h, 1, w * steps[1] * c});
    x = oct_to_tflite_pad(p, x, (int64_t[3]){0}, (int64_t[]){0, steps[0] - 1, 0}, code);
    x = oct_to_tflite_reshape(p->w, x, 4, (int64_t[]){1, h * steps[0], w * steps[1], c});
    return oct_to_tflite_apply(p->w, OCT_TFLITE_SLICE,
                               OCT_TO_TFLITE_INPUTS(x, OCT_TO_TFLITE_LIST(p->w, 0, 0, 0, 0),
                                                    OCT_TO_TFLITE_LIST(p->w, 1, (int32_t)out_h,
                                                                       (int32_t)out_w, (int32_t)c)),
                               oct_to_tflite_like(p->w, x, 4, (int64_t[]){1, out_h, out_w, c}),
                               OCT_TO_TFLITE_NO_OPTIONS);
}

/* How the groups of a convolution are written: one operator for all channels, or one for each group. */
typedef struct layer {
    oct_to_tflite_program *p;
    const oct_step *step;
    bool depthwise, floats;
    int activation, padding;
    /* Weights and biases, in memory of the writer: codes or, of a layer in floats, numbers. */
    int8_t *codes;
    int32_t *bias_codes;
    float *weights, *biases, *bias_scales;
} layer;

/* Makes weights and biases in TFLite's layout, as codes or floats; false when the writer has failed. */
static bool make_constants(layer *l)
{
    oct_to_tflite_writer *w = l->p->w;
    const oct_step *step = l->step;
    const size_t n = (size_t)step->conv.shape.out_c;
    const size_t depth = (size_t)oct_conv_depth(&step->conv.shape);
    l->codes = oct_to_tflite_alloc(w, NULL, n * depth);
    l->bias_codes = oct_to_tflite_alloc(w, NULL, n * sizeof *l->bias_codes);
    l->bias_scales = oct_to_tflite_alloc(w, NULL, n * sizeof *l->bias_scales);
    if (l->floats) {
        l->weights = oct_to_tflite_alloc(w, NULL, n * depth * sizeof *l->weights);
        l->biases = oct_to_tflite_alloc(w, NULL, n * sizeof *l->biases);
    }
    if (w->status != OCT_OK) return false;
    if (!oct_export_biases(step, l->p->program->values[step->input[0]].q, l->bias_codes,
                           l->bias_scales)) {
        oct_to_tflite_fail(w, OCT_PREPARE,
                           "%s: its bias does not fit into 32 bits, which TFLite has", step->name);
        return false;
    }
    /* Those of a depthwise convolution stand channels last. */
    const int64_t strides[3] = {l->depthwise ? 1 : (int64_t)depth, l->depthwise ? (int64_t)n : 1,
                                0};
    oct_export_weights(step, 1, strides, 0, (uint8_t *)l->codes);
    for (size_t o = 0; l->floats && o < n; o++) {
        l->biases[o] = (float)l->bias_codes[o] * l->bias_scales[o];
        for (size_t i = 0; i < depth; i++) {
            const size_t at = l->depthwise ? i * n + o : o * depth + i;
            l->weights[at] = (float)l->codes[at] * step->conv.weight_scale[o];
        }
    }
    return true;
}

/* Adds the convolution that computes output channels [first, first + n) from x. */
static int convolve_group(const layer *l, int x, int64_t first, int64_t n, int y)
{
    oct_to_tflite_writer *w = l->p->w;
    const oct_conv_shape *s = &l->step->conv.shape;
    const int64_t taps[] = {s->kernel_h, s->kernel_w}, depth = oct_conv_depth(s);
    const int64_t dims[] = {l->depthwise ? 1 : n, taps[0], taps[1],
                            l->depthwise ? n : s->in_c / s->groups};
    const oct_tflite_quant q = {.scales = l->step->conv.weight_scale + first,
                                .axis = l->depthwise ? 3 : 0};
    const oct_tflite_quant bias = {.scales = l->bias_scales + first};
    const int weight =
        l->floats ? oct_to_tflite_constant(w, OCT_TFLITE_FLOAT, 4, dims, no_quant,
                                           l->weights + first * depth)
                  : oct_to_tflite_constant(w, OCT_TFLITE_S8, 4, dims, q, l->codes + first * depth);
    const int added =
        l->floats ? oct_to_tflite_constant(w, OCT_TFLITE_FLOAT, 1, &n, no_quant, l->biases + first)
                  : oct_to_tflite_constant(w, OCT_TFLITE_S32, 1, &n, bias, l->bias_codes + first);
    const int inputs[] = {x, weight, added};
    if (l->depthwise)
        return oct_to_tflite_apply(
            w, OCT_TFLITE_DEPTHWISE_CONV_2D, 3, inputs, y,
            OCT_TO_TFLITE_OPTIONS({0, 1, l->padding}, {1, 4, s->stride_w}, {2, 4, s->stride_h},
                                  {3, 4, s->out_c / s->in_c}, {4, 1, l->activation},
                                  {5, 4, s->dilation_w}, {6, 4, s->dilation_h}));
    return oct_to_tflite_apply(w, OCT_TFLITE_CONV_2D, 3, inputs, y,
                               OCT_TO_TFLITE_OPTIONS({0, 1, l->padding}, {1, 4, s->stride_w},
                                                     {2, 4, s->stride_h}, {3, 1, l->activation},
                                                     {4, 4, s->dilation_w}, {5, 4, s->dilation_h}));
}

/* Makes a tensor for `c` channels of the layer's output. */
static int make_output(const layer *l, int64_t c)
{
    const oct_conv_shape *s = &l->step->conv.shape;
    const int64_t dims[] = {1, s->out_h, s->out_w, c};
    const oct_tflite_quant q = {.codes = &l->p->program->values[l->step->output].q};
    return l->floats ? oct_to_tflite_tensor(l->p->w, OCT_TFLITE_FLOAT, 4, dims, no_quant)
                     : oct_to_tflite_tensor(l->p->w, OCT_TFLITE_S8, 4, dims, q);
}

/* TFLite's kernels have no groups: each is a convolution of its own over its share of the channels. */
static int convolve_groups(const layer *l, int x)
{
    oct_to_tflite_writer *w = l->p->w;
    const int64_t groups = l->step->conv.shape.groups, each = l->step->conv.shape.out_c / groups;
    const int32_t axis = 3;
    int *in = oct_to_tflite_alloc(w, NULL, (size_t)groups * sizeof *in);
    int *out = oct_to_tflite_alloc(w, NULL, (size_t)groups * sizeof *out);
    if (w->status != OCT_OK) return OCT_TFLITE_NONE;
    int64_t dims[4];
    memcpy(dims, oct_to_tflite_at(w, x)->dims, sizeof dims);
    dims[3] /= groups;
    for (int64_t g = 0; g < groups; g++)
        in[g] = oct_to_tflite_like(w, x, 4, dims);
    oct_to_tflite_operator(w, OCT_TFLITE_SPLIT,
                           OCT_TO_TFLITE_INPUTS(oct_to_tflite_list(w, 0, &axis), x), (int)groups,
                           in, OCT_TO_TFLITE_OPTIONS({0, 4, groups}));
    for (int64_t g = 0; g < groups; g++)
        out[g] = convolve_group(l, in[g], g * each, each, make_output(l, each));
    return oct_to_tflite_concat(l->p, (int)groups, out, make_output(l, l->step->conv.shape.out_c));
}

/* Adds the layer's convolution of x, codes or floats, with its padding and activation. */
static int add_conv(oct_to_tflite_program *p, const oct_step *step, int x, bool floats,
                    int activation)
{
    const oct_conv_shape *s = &step->conv.shape;
    const int32_t zero = p->program->values[step->input[0]].q.zero_point;
    layer l = {.p = p,
               .step = step,
               .depthwise = s->groups > 1 && s->groups == s->in_c,
               .floats = floats,
               .activation = activation};
    if (!make_constants(&l)) return OCT_TFLITE_NONE;
    x = dilate_input(p, step, x, zero);
    l.padding = pad_window(p, s, zero, &x);
    if (s->groups > 1 && !l.depthwise) return convolve_groups(&l, x);
    return convolve_group(&l, x, 0, s->out_c, make_output(&l, s->out_c));
}

/* The input as planes of the layer's, before it is dilated. */
static int input_plane(oct_to_tflite_program *p, const oct_step *step)
{
    const oct_conv_shape *s = &step->conv.shape;
    const int64_t down = oct_max_i64(step->conv.input_step_h, 1),
                  across = oct_max_i64(step->conv.input_step_w, 1);
    return oct_to_tflite_input(p, step, 0, (s->in_h - 1) / down + 1, (s->in_w - 1) / across + 1,
                               s->in_c);
}

/* Computes a layer in floats; the second input of a fused sum is added before the activation. */
static int compute_in_float(oct_to_tflite_program *p, const oct_step *step, int activation)
{
    const oct_conv_shape *s = &step->conv.shape;
    const int x = oct_to_tflite_dequantize(p, input_plane(p, step));
    if (step->num_inputs == 1) return add_conv(p, step, x, true, activation);
    const int y = add_conv(p, step, x, true, ACT_NONE);
    const int addend = oct_to_tflite_input(p, step, 1, s->out_h, s->out_w, s->out_c);
    oct_export_note_diff(p->diffs, OCT_TO_TFLITE_DIFF_ADDEND, step);
    const layer l = {.p = p, .step = step, .floats = true};
    return oct_to_tflite_apply(
        p->w, OCT_TFLITE_ADD, OCT_TO_TFLITE_INPUTS(y, oct_to_tflite_dequantize(p, addend)),
        make_output(&l, s->out_c), OCT_TO_TFLITE_OPTIONS({0, 1, activation}));
}

/* XNNPACK takes multipliers in [2^-32, 2^8) and ratios of sums in [2^-10, 2^8). */
static void check_ratio(oct_to_tflite_program *p, const oct_step *step, float ratio, float least)
{
    if (!(ratio >= least && ratio < 256.0f))
        oct_export_note_diff(p->diffs, OCT_TO_TFLITE_DIFF_RATIO, step);
}

static int write_conv(oct_to_tflite_program *p, const oct_step *step)
{
    bool clip;
    const int activation =
        find_activation(oct_step_output(p->program, step), step->conv.lo, step->conv.hi, &clip);
    float range[2] = {INFINITY, 0}; /* least and greatest multiplier */
    if (step->num_inputs > 1) {
        const int y = quantize_to(p, step->output,
                                  oct_to_tflite_output(p, step, compute_in_float(p, step, 0)));
        return oct_to_tflite_clip(p, step->output, y, step->conv.lo, step->conv.hi);
    }
    if (oct_export_halves_differ(p->program, step))
        oct_export_note_diff(p->diffs, OCT_TO_TFLITE_DIFF_SHIFT, step);
    for (int64_t o = 0; o < step->conv.shape.out_c; o++) {
        range[0] = fminf(range[0], step->conv.multiplier[o]);
        range[1] = fmaxf(range[1], step->conv.multiplier[o]);
    }
    if (!note_whole_multipliers(p, step))
        check_ratio(p, step, range[0] < 0x1p-32f ? range[0] : range[1], 0x1p-32f);
    const int y =
        oct_to_tflite_output(p, step, add_conv(p, step, input_plane(p, step), false, activation));
    return clip ? oct_to_tflite_clip(p, step->output, y, step->conv.lo, step->conv.hi) : y;
}

static int write_conv_float(oct_to_tflite_program *p, const oct_step *step)
{
    const int activation = step->conv.hi == 6   ? ACT_RELU6
                           : step->conv.hi != 0 ? ACT_RELU
                                                : ACT_NONE;
    oct_export_note_diff(p->diffs, OCT_TO_TFLITE_DIFF_FLOAT, step);
    return oct_to_tflite_output(p, step, compute_in_float(p, step, activation));
}

/* Writes an operator of two values of codes; either may be broadcast to the other. */
static int write_binary(oct_to_tflite_program *p, const oct_step *step, oct_tflite_operator kind,
                        int32_t lo, int32_t hi)
{
    const oct_value *a = &p->program->values[step->input[0]];
    const oct_value *b = &p->program->values[step->input[1]];
    const oct_value *v = &p->program->values[step->output];
    bool clip;
    const int activation = find_activation(v, lo, hi, &clip);
    const int x[] = {p->values[step->input[0]],
                     oct_value_numel(a) == oct_value_numel(b)
                         ? oct_to_tflite_input(p, step, 1, a->h, a->w, a->c)
                         : p->values[step->input[1]]};
    const int y = oct_to_tflite_apply(p->w, kind, 2, x, oct_to_tflite_value(p, step->output),
                                      OCT_TO_TFLITE_OPTIONS({0, 1, activation}));
    return clip ? oct_to_tflite_clip(p, step->output, y, lo, hi) : y;
}

static int write_add(oct_to_tflite_program *p, const oct_step *step)
{
    const oct_qparams a = p->program->values[step->input[0]].q,
                      b = p->program->values[step->input[1]].q,
                      y = p->program->values[step->output].q;
    const oct_qadd *sum = &step->add, tflite_sum = oct_qadd_of_floats(a, b, y, sum->relu);
    const bool one_scale =
        a.scale == y.scale && b.scale == y.scale; /* exact with any multipliers */
    if (!note_whole_multipliers(p, step)) {
        if (!one_scale && (sum->ma != tflite_sum.ma || sum->shift != tflite_sum.shift ||
                           (sum->mb < 0 ? -sum->mb : sum->mb) != tflite_sum.mb))
            oct_export_note_diff(p->diffs, OCT_TO_TFLITE_DIFF_SUM, step);
        check_ratio(p, step, a.scale / y.scale, 0x1p-10f);
        check_ratio(p, step, b.scale / y.scale, 0x1p-10f);
    }
    return write_binary(p, step, sum->mb < 0 ? OCT_TFLITE_SUB : OCT_TFLITE_ADD, sum->lo, sum->hi);
}

static int write_mul(oct_to_tflite_program *p, const oct_step *step)
{
    const oct_qparams a = p->program->values[step->input[0]].q,
                      b = p->program->values[step->input[1]].q,
                      y = p->program->values[step->output].q;
    if (!note_whole_multipliers(p, step)) {
        if (oct_export_halves_differ(p->program, step))
            oct_export_note_diff(p->diffs, OCT_TO_TFLITE_DIFF_SHIFT, step);
        else if (step->mul.offset_first || step->mul.factor != oct_qmul_factor_float(a, b, y))
            oct_export_note_diff(p->diffs, OCT_TO_TFLITE_DIFF_PRODUCT, step);
        check_ratio(p, step, step->mul.factor, 0x1p-16f);
    }
    return write_binary(p, step, OCT_TFLITE_MUL, y.qmin - y.zero_point, y.qmax - y.zero_point);
}

/* Adds a pool of x with this padding. */
static int add_pool(oct_to_tflite_program *p, const oct_step *step, oct_tflite_operator kind, int x,
                    int padding)
{
    const oct_conv_shape *s = &step->pool.shape;
    const int y = oct_to_tflite_apply(
        p->w, kind, OCT_TO_TFLITE_INPUTS(x),
        oct_to_tflite_like(p->w, x, 4, (int64_t[]){1, s->out_h, s->out_w, s->out_c}),
        OCT_TO_TFLITE_OPTIONS({0, 1, padding}, {1, 4, s->stride_w}, {2, 4, s->stride_h},
                              {3, 4, s->kernel_w}, {4, 4, s->kernel_h}, {5, 1, ACT_NONE}));
    return oct_to_tflite_output(p, step, y);
}

static int write_max_pool(oct_to_tflite_program *p, const oct_step *step)
{
    const oct_conv_shape *s = &step->pool.shape;
    int x = oct_to_tflite_input(p, step, 0, s->in_h, s->in_w, s->in_c);
    const int padding = pad_window(p, s, 0, &x);
    return add_pool(p, step, OCT_TFLITE_MAX_POOL_2D, x, padding);
}

/* TFLite averages what lies inside of the input; padding that counts is put around it before. */
static int write_avg_pool(oct_to_tflite_program *p, const oct_step *step)
{
    const oct_conv_shape *s = &step->pool.shape;
    const bool pads = oct_conv_sees_padding(s);
    int x = oct_to_tflite_input(p, step, 0, s->in_h, s->in_w, s->in_c), padding = VALID;
    int64_t before[3], after[3];
    find_pads(s, before, after);
    const bool beyond = after[0] > s->pad_bottom || after[1] > s->pad_right;
    if (beyond || (pads && !step->pool.count_include_pad && !pads_same(s)))
        return oct_to_tflite_fail(p->w, OCT_PREPARE,
                                  "%s: averages fewer positions at the edges than TFLite's pool "
                                  "does; set count_include_pad and leave ceil off",
                                  step->name);
    if (pads && step->pool.count_include_pad)
        x = oct_to_tflite_pad(p, x, before, after,
                              oct_step_input(p->program, step, 0)->q.zero_point);
    else if (pads)
        padding = SAME;
    if (!step->pool.of_codes) oct_export_note_diff(p->diffs, OCT_TO_TFLITE_DIFF_AVERAGE, step);
    return add_pool(p, step, OCT_TFLITE_AVERAGE_POOL_2D, x, padding);
}

static int write_softmax(oct_to_tflite_program *p, int x)
{
    enum { BETA = 0x3f800000 }; /* the bits of 1.0f */
    if (p->w->status != OCT_OK) return OCT_TFLITE_NONE;
    return oct_to_tflite_apply(p->w, OCT_TFLITE_SOFTMAX, OCT_TO_TFLITE_INPUTS(x),
                               oct_to_tflite_like(p->w, x, oct_to_tflite_at(p->w, x)->ndim,
                                                  oct_to_tflite_at(p->w, x)->dims),
                               OCT_TO_TFLITE_OPTIONS({0, 4, BETA}));
}

static int write_softmax_step(oct_to_tflite_program *p, const oct_step *step)
{
    oct_export_note_diff(p->diffs, OCT_TO_TFLITE_DIFF_SOFTMAX, step);
    const int y = write_softmax(p, oct_to_tflite_dequantize(p, p->values[step->input[0]]));
    return quantize_to(p, step->output, oct_to_tflite_output(p, step, y));
}

/* Writes a float layer: only of softmax, with which classifiers end. */
static int write_float_fallback(oct_to_tflite_program *p, const oct_step *step)
{
    if (strcmp(step->fallback->type, "softmax") != 0)
        return oct_to_tflite_fail(p->w, OCT_PREPARE,
                                  "%s: stays float, and no operator of TFLite is written for %s; "
                                  "quantize it, or take --format onnx, which has float layers",
                                  step->name, step->fallback->type);
    oct_export_note_diff(p->diffs, OCT_TO_TFLITE_DIFF_FALLBACK, step);
    return oct_to_tflite_output(p, step, write_softmax(p, p->values[step->input[0]]));
}

oct_to_tflite_write *const oct_to_tflite_product_steps[OCT_STEP_KINDS] = {
    [OCT_STEP_QUANTIZE] = write_quantize,
    [OCT_STEP_DEQUANTIZE] = write_dequantize,
    [OCT_STEP_CONV] = write_conv,
    [OCT_STEP_CONV_FLOAT] = write_conv_float,
    [OCT_STEP_ADD] = write_add,
    [OCT_STEP_MUL] = write_mul,
    [OCT_STEP_MAX_POOL] = write_max_pool,
    [OCT_STEP_AVG_POOL] = write_avg_pool,
    [OCT_STEP_SOFTMAX] = write_softmax_step,
    [OCT_STEP_FLOAT] = write_float_fallback,
};
