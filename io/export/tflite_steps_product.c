/* Steps that compute: each is an integer operator of TFLite with XNNPACK, whose arithmetic is the step's where the model
 * was trained for it. What TFLite has in floats alone stands between DEQUANTIZE and QUANTIZE. */
#include "io/export/tflite_form.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "quant/program/step.h"
#include "quant/rounding/qparams.h"

#include <math.h>
#include <string.h>

enum { SAME, VALID };                       /* paddings */
enum { ACT_NONE, ACT_RELU, ACT_RELU6 = 3 }; /* activations */

static const oct_tflite_quant no_quant = {.codes = NULL};

/* The activation after which an operator's codes have these logical bounds; *cut: none has, and they are cut afterwards. */
static int activation_of(const oct_value *v, int32_t lo, int32_t hi, bool *cut)
{
    const int32_t zero = v->q.zero_point;
    const float six = 6.0f / v->q.scale;
    const int32_t first = lo + zero > 0 ? lo + zero : 0;
    const int32_t last = hi + zero < UINT8_MAX ? hi + zero : UINT8_MAX;
    /* Kernels round the middle between two codes in two ways. */
    const bool even = fabsf(six - floorf(six) - 0.5f) < 0.01f;
    *cut = false;
    if (first == 0 && last == UINT8_MAX) return ACT_NONE;
    if (first == zero && last == UINT8_MAX) return ACT_RELU;
    if (first == zero && !even && six < 512 && last == zero + (int32_t)lrintf(six))
        return ACT_RELU6;
    *cut = true;
    return ACT_NONE;
}

static int quantized(oct_to_tflite_program *p, int32_t value, int x)
{
    return oct_to_tflite_made(p->w, OCT_TFLITE_QUANTIZE, OCT_TO_TFLITE_INPUTS(x),
                              oct_to_tflite_value(p, value), OCT_TO_TFLITE_NO_OPTIONS);
}

/* A tensor of the same sizes in another type. */
static int converted(oct_to_tflite_writer *w, oct_tflite_operator kind, int x, oct_tflite_type type,
                     oct_tflite_quant q)
{
    if (oct_to_tflite_status(w) != OCT_OK) return OCT_TFLITE_NONE;
    const int y =
        oct_to_tflite_tensor(w, type, oct_to_tflite_ndim(w, x), oct_to_tflite_dims(w, x), q);
    return oct_to_tflite_made(w, kind, OCT_TO_TFLITE_INPUTS(x), y, OCT_TO_TFLITE_NO_OPTIONS);
}

int oct_to_tflite_dequantize(oct_to_tflite_program *p, int x)
{
    return converted(p->w, OCT_TFLITE_DEQUANTIZE, x, OCT_TFLITE_FLOAT, no_quant);
}

/* The code of each pixel, of more than one channel in each. */
static int quantize_pixels(oct_to_tflite_program *p, const oct_step *step)
{
    const int64_t channels = p->program->values[p->program->inputs[0]].c;
    uint8_t *table = NULL;
    if (channels > 1 && step->input[0] != p->program->inputs[0])
        return oct_to_tflite_fail(p->w, OCT_PREPARE,
                                  "--pixels: the channels of the input do not reach %s as such; "
                                  "export it with normalised inputs",
                                  step->name);
    if (oct_alloc(&table, (size_t)channels, OCT_EXPORT_CODES) != OCT_OK)
        return oct_to_tflite_fail(p->w, OCT_RESOURCE, "%s: no memory", step->name);
    oct_export_pixels(step, p->program->values[step->output].q, channels, p->job->mean, p->job->std,
                      table);
    /* Bytes as signed bytes of the same scale, which QUANTIZE makes without rounding: TFLM casts no others. */
    const int x = converted(p->w, OCT_TFLITE_QUANTIZE, p->values[step->input[0]], OCT_TFLITE_S8,
                            (oct_tflite_quant){.codes = &(oct_qparams){.scale = 1}});
    const int y = oct_to_tflite_lookup(p, x, step->output, table, channels > 1);
    oct_free(&table);
    return y;
}

/* Notes a step with whole multipliers, as TFLite's reference kernels or another target have them and XNNPACK has not. */
static bool rounds_twice(oct_to_tflite_program *p, const oct_step *step)
{
    const oct_rounding_row *by = oct_rounding_of(p->program->requantizer);
    if (!by->constants_of || by->shifts) return false;
    oct_to_tflite_lose(p, by->is_tflm ? OCT_TO_TFLITE_LOSS_TWICE : OCT_TO_TFLITE_LOSS_MULTIPLIER,
                       step);
    return true;
}

static int quantize(oct_to_tflite_program *p, const oct_step *step)
{
    const oct_qparams *q = &p->program->values[step->output].q;
    const int x = p->values[step->input[0]];
    const oct_tflite_type type = oct_to_tflite_type(p->w, x);
    if (type == OCT_TFLITE_U8) return quantize_pixels(p, step);
    if (type == OCT_TFLITE_S8) return x;
    if (step->quantize.quotient && !rounds_twice(p, step))
        oct_to_tflite_lose(p, OCT_TO_TFLITE_LOSS_QUOTIENT, step);
    const int y = quantized(p, step->output, x);
    return oct_to_tflite_cut(p, step->output, y, q->qmin - q->zero_point, q->qmax - q->zero_point);
}

static int dequantize(oct_to_tflite_program *p, const oct_step *step)
{
    if (p->job->codes && step->output == p->program->output) return p->values[step->input[0]];
    return oct_to_tflite_dequantize(p, p->values[step->input[0]]);
}

/* Padding before and after the rows and columns of a window: what its last window sees, and no less. */
static void pads_of(const oct_conv_shape *s, int64_t before[3], int64_t after[3])
{
    const int64_t rows = oct_conv_extent(s->kernel_h, s->dilation_h),
                  columns = oct_conv_extent(s->kernel_w, s->dilation_w);
    before[0] = s->pad_top;
    before[1] = s->pad_left;
    after[0] = oct_max_i64((s->out_h - 1) * s->stride_h + rows - s->in_h - s->pad_top, 0);
    after[1] = oct_max_i64((s->out_w - 1) * s->stride_w + columns - s->in_w - s->pad_left, 0);
    before[2] = after[2] = 0;
}

/* Whether TFLite's padding SAME is that of a side. Where a stride leaves rows over, XNNPACK's is below 0. */
static bool is_same(int64_t in, int64_t out, int64_t extent, int stride, int64_t before)
{
    const int64_t all = (out - 1) * stride + extent - in;
    return all >= 0 && out == (in + stride - 1) / stride && before == all / 2;
}

static bool pads_same(const oct_conv_shape *s)
{
    return is_same(s->in_h, s->out_h, oct_conv_extent(s->kernel_h, s->dilation_h), s->stride_h,
                   s->pad_top) &&
           is_same(s->in_w, s->out_w, oct_conv_extent(s->kernel_w, s->dilation_w), s->stride_w,
                   s->pad_left);
}

/* Gives the padding of a window, and puts what it has not around x with this code. */
static int pad_window(oct_to_tflite_program *p, const oct_conv_shape *s, int32_t code, int *x)
{
    int64_t before[3], after[3];
    if (pads_same(s)) return SAME;
    pads_of(s, before, after);
    *x = oct_to_tflite_pad(p, *x, before, after, code);
    return VALID;
}

/* Puts rows and columns of a code between those of a transposed convolution's input. */
static int dilate(oct_to_tflite_program *p, const oct_step *step, int x, int32_t code)
{
    const int64_t steps[2] = {step->conv.input_step_h, step->conv.input_step_w};
    if (steps[0] <= 1 && steps[1] <= 1) return x;
    if (oct_to_tflite_status(p->w) != OCT_OK) return OCT_TFLITE_NONE;
    const int64_t *dims = oct_to_tflite_dims(p->w, x), h = dims[1], w = dims[2], c = dims[3];
    const int64_t out_h = step->conv.shape.in_h, out_w = step->conv.shape.in_w;
    x = oct_to_tflite_reshape(p->w, x, 4, (int64_t[]){1, h * w, 1, c});
    x = oct_to_tflite_pad(p, x, (int64_t[3]){0}, (int64_t[]){0, steps[1] - 1, 0}, code);
    x = oct_to_tflite_reshape(p->w, x, 4, (int64_t[]){1, h, 1, w * steps[1] * c});
    x = oct_to_tflite_pad(p, x, (int64_t[3]){0}, (int64_t[]){0, steps[0] - 1, 0}, code);
    x = oct_to_tflite_reshape(p->w, x, 4, (int64_t[]){1, h * steps[0], w * steps[1], c});
    return oct_to_tflite_made(p->w, OCT_TFLITE_SLICE,
                              OCT_TO_TFLITE_INPUTS(x, OCT_TO_TFLITE_LIST(p->w, 0, 0, 0, 0),
                                                   OCT_TO_TFLITE_LIST(p->w, 1, (int32_t)out_h,
                                                                      (int32_t)out_w, (int32_t)c)),
                              oct_to_tflite_like(p->w, x, 4, (int64_t[]){1, out_h, out_w, c}),
                              OCT_TO_TFLITE_NO_OPTIONS);
}

/* Weights and biases of a layer, as bytes or as floats. */
typedef struct constants {
    int8_t *codes;
    float *weights, *scales, *biases;
    int32_t *bias;
} constants;

static oct_status make_constants(const oct_to_tflite_program *p, const oct_step *step,
                                 bool depthwise, constants *k)
{
    const oct_conv_shape *s = &step->conv.shape;
    const size_t n = (size_t)s->out_c, depth = (size_t)oct_conv_depth(s);
    OCT_TRY(oct_alloc(&k->codes, n * depth, 1));
    OCT_TRY(oct_alloc(&k->weights, n * depth, sizeof *k->weights));
    OCT_TRY(oct_alloc(&k->scales, n, sizeof *k->scales));
    OCT_TRY(oct_alloc(&k->biases, n, sizeof *k->biases));
    OCT_TRY(oct_alloc(&k->bias, n, sizeof *k->bias));
    OCT_CHECK(oct_export_biases(step, p->program->values[step->input[0]].q, k->bias, k->scales),
              OCT_PREPARE, "%s: its bias does not fit into 32 bits, which TFLite has", step->name);
    /* Those of a depthwise convolution stand channels last. */
    const int64_t strides[3] = {depthwise ? 1 : (int64_t)depth, depthwise ? (int64_t)n : 1, 0};
    oct_export_weights(step, 1, strides, 0, (uint8_t *)k->codes);
    for (size_t o = 0; o < n; o++) {
        k->biases[o] = (float)k->bias[o] * k->scales[o];
        for (size_t i = 0; i < depth; i++) {
            const size_t at = depthwise ? i * n + o : o * depth + i;
            k->weights[at] = (float)k->codes[at] * step->conv.weight_scale[o];
        }
    }
    return OCT_OK;
}

/* How the groups of a convolution are written: one operator for all channels, or one for each group. */
typedef struct layer {
    oct_to_tflite_program *p;
    const oct_step *step;
    bool depthwise, floats;
    int activation, padding;
} layer;

/* One operator over the output channels from `first` on. */
static int convolve_group(const layer *l, const constants *k, int x, int64_t first, int64_t n,
                          int y)
{
    oct_to_tflite_writer *w = l->p->w;
    const oct_conv_shape *s = &l->step->conv.shape;
    const int64_t taps[] = {s->kernel_h, s->kernel_w}, depth = oct_conv_depth(s);
    const int64_t dims[] = {l->depthwise ? 1 : n, taps[0], taps[1],
                            l->depthwise ? n : s->in_c / s->groups};
    const oct_tflite_quant q = {.scales = l->step->conv.weight_scale + first,
                                .axis = l->depthwise ? 3 : 0};
    const oct_tflite_quant bias = {.scales = k->scales + first};
    const int weight =
        l->floats ? oct_to_tflite_constant(w, OCT_TFLITE_FLOAT, 4, dims, no_quant,
                                           k->weights + first * depth)
                  : oct_to_tflite_constant(w, OCT_TFLITE_S8, 4, dims, q, k->codes + first * depth);
    const int added =
        l->floats ? oct_to_tflite_constant(w, OCT_TFLITE_FLOAT, 1, &n, no_quant, k->biases + first)
                  : oct_to_tflite_constant(w, OCT_TFLITE_S32, 1, &n, bias, k->bias + first);
    const int inputs[] = {x, weight, added};
    if (l->depthwise)
        return oct_to_tflite_made(
            w, OCT_TFLITE_DEPTHWISE_CONV_2D, 3, inputs, y,
            OCT_TO_TFLITE_OPTIONS({0, 1, l->padding}, {1, 4, s->stride_w}, {2, 4, s->stride_h},
                                  {3, 4, s->out_c / s->in_c}, {4, 1, l->activation},
                                  {5, 4, s->dilation_w}, {6, 4, s->dilation_h}));
    return oct_to_tflite_made(w, OCT_TFLITE_CONV_2D, 3, inputs, y,
                              OCT_TO_TFLITE_OPTIONS({0, 1, l->padding}, {1, 4, s->stride_w},
                                                    {2, 4, s->stride_h}, {3, 1, l->activation},
                                                    {4, 4, s->dilation_w}, {5, 4, s->dilation_h}));
}

/* A tensor for `c` channels of the layer's output. */
static int output_of(const layer *l, int64_t c)
{
    const oct_conv_shape *s = &l->step->conv.shape;
    const int64_t dims[] = {1, s->out_h, s->out_w, c};
    const oct_tflite_quant q = {.codes = &l->p->program->values[l->step->output].q};
    return l->floats ? oct_to_tflite_tensor(l->p->w, OCT_TFLITE_FLOAT, 4, dims, no_quant)
                     : oct_to_tflite_tensor(l->p->w, OCT_TFLITE_S8, 4, dims, q);
}

/* TFLite's kernels have no groups: each is a convolution of its own over its part of the channels. */
static int convolve_groups(const layer *l, const constants *k, int x)
{
    oct_to_tflite_writer *w = l->p->w;
    const int64_t groups = l->step->conv.shape.groups, each = l->step->conv.shape.out_c / groups;
    const int32_t axis = 3;
    int *parts = NULL, *made = NULL, y = OCT_TFLITE_NONE;
    if (oct_to_tflite_status(w) != OCT_OK) return OCT_TFLITE_NONE;
    int64_t dims[4];
    memcpy(dims, oct_to_tflite_dims(w, x), sizeof dims);
    dims[3] /= groups;
    if (oct_alloc(&parts, (size_t)groups, sizeof *parts) != OCT_OK ||
        oct_alloc(&made, (size_t)groups, sizeof *made) != OCT_OK) {
        oct_to_tflite_fail(w, OCT_RESOURCE, "%s: no memory", l->step->name);
    } else {
        for (int64_t g = 0; g < groups; g++)
            parts[g] = oct_to_tflite_like(w, x, 4, dims);
        oct_to_tflite_operator(w, OCT_TFLITE_SPLIT,
                               OCT_TO_TFLITE_INPUTS(oct_to_tflite_list(w, 0, &axis), x),
                               (int)groups, parts, OCT_TO_TFLITE_OPTIONS({0, 4, groups}));
        for (int64_t g = 0; g < groups; g++)
            made[g] = convolve_group(l, k, parts[g], g * each, each, output_of(l, each));
        y = oct_to_tflite_concat(l->p, (int)groups, made, output_of(l, l->step->conv.shape.out_c));
    }
    oct_free(&parts);
    oct_free(&made);
    return y;
}

/* The layer's products and sums on x, codes or floats. */
static int convolve(oct_to_tflite_program *p, const oct_step *step, int x, bool floats,
                    int activation)
{
    const oct_conv_shape *s = &step->conv.shape;
    const bool depthwise = s->groups > 1 && s->groups == s->in_c;
    const int32_t zero = p->program->values[step->input[0]].q.zero_point;
    constants k = {0};
    layer l = {p, step, depthwise, floats, activation, VALID};
    int y = OCT_TFLITE_NONE;
    const oct_status status = make_constants(p, step, depthwise, &k);
    x = dilate(p, step, x, zero);
    l.padding = pad_window(p, s, zero, &x);
    if (status != OCT_OK)
        oct_to_tflite_fail(p->w, status, "%s: its weights cannot be written", step->name);
    else if (s->groups > 1 && !depthwise)
        y = convolve_groups(&l, &k, x);
    else
        y = convolve_group(&l, &k, x, 0, s->out_c, output_of(&l, s->out_c));
    oct_free(&k.codes);
    oct_free(&k.weights);
    oct_free(&k.scales);
    oct_free(&k.biases);
    oct_free(&k.bias);
    return y;
}

/* The input as planes of the layer's, before it is dilated. */
static int plane_of(oct_to_tflite_program *p, const oct_step *step)
{
    const oct_conv_shape *s = &step->conv.shape;
    const int64_t down = oct_max_i64(step->conv.input_step_h, 1),
                  across = oct_max_i64(step->conv.input_step_w, 1);
    return oct_to_tflite_input(p, step, 0, (s->in_h - 1) / down + 1, (s->in_w - 1) / across + 1,
                               s->in_c);
}

/* A layer in floats, with its second addend. */
static int compute_in_float(oct_to_tflite_program *p, const oct_step *step, int activation)
{
    const oct_conv_shape *s = &step->conv.shape;
    const int x = oct_to_tflite_dequantize(p, plane_of(p, step));
    if (step->num_inputs == 1) return convolve(p, step, x, true, activation);
    const int y = convolve(p, step, x, true, ACT_NONE);
    const int addend = oct_to_tflite_input(p, step, 1, s->out_h, s->out_w, s->out_c);
    oct_to_tflite_lose(p, OCT_TO_TFLITE_LOSS_ADDEND, step);
    const layer l = {.p = p, .step = step, .floats = true};
    return oct_to_tflite_made(p->w, OCT_TFLITE_ADD,
                              OCT_TO_TFLITE_INPUTS(y, oct_to_tflite_dequantize(p, addend)),
                              output_of(&l, s->out_c), OCT_TO_TFLITE_OPTIONS({0, 1, activation}));
}

static int as_value(oct_to_tflite_program *p, const oct_step *step, int y)
{
    const oct_value *v = &p->program->values[step->output];
    return oct_to_tflite_reshape(p->w, y, 4, (int64_t[]){1, v->h, v->w, v->c});
}

/* XNNPACK takes multipliers in [2^-32, 2^8) and ratios of sums in [2^-10, 2^8). */
static void check_ratio(oct_to_tflite_program *p, const oct_step *step, float ratio, float least)
{
    if (!(ratio >= least && ratio < 256.0f)) oct_to_tflite_lose(p, OCT_TO_TFLITE_LOSS_RATIO, step);
}

static int conv(oct_to_tflite_program *p, const oct_step *step)
{
    bool cut;
    const int activation =
        activation_of(oct_step_output(p->program, step), step->conv.lo, step->conv.hi, &cut);
    float ends[2] = {INFINITY, 0};
    if (step->num_inputs > 1) {
        const int y = quantized(p, step->output, as_value(p, step, compute_in_float(p, step, 0)));
        return oct_to_tflite_cut(p, step->output, y, step->conv.lo, step->conv.hi);
    }
    if (oct_export_halves_differ(p->program, step))
        oct_to_tflite_lose(p, OCT_TO_TFLITE_LOSS_SHIFT, step);
    for (int64_t o = 0; o < step->conv.shape.out_c; o++) {
        ends[0] = fminf(ends[0], step->conv.multiplier[o]);
        ends[1] = fmaxf(ends[1], step->conv.multiplier[o]);
    }
    if (!rounds_twice(p, step))
        check_ratio(p, step, ends[0] < 0x1p-32f ? ends[0] : ends[1], 0x1p-32f);
    const int y = as_value(p, step, convolve(p, step, plane_of(p, step), false, activation));
    return cut ? oct_to_tflite_cut(p, step->output, y, step->conv.lo, step->conv.hi) : y;
}

static int conv_float(oct_to_tflite_program *p, const oct_step *step)
{
    const int activation = step->conv.hi == 6   ? ACT_RELU6
                           : step->conv.hi != 0 ? ACT_RELU
                                                : ACT_NONE;
    oct_to_tflite_lose(p, OCT_TO_TFLITE_LOSS_FLOAT, step);
    return as_value(p, step, compute_in_float(p, step, activation));
}

/* An operator of two values of codes; one of them may repeat. */
static int pair(oct_to_tflite_program *p, const oct_step *step, oct_tflite_operator kind,
                int32_t lo, int32_t hi)
{
    const oct_value *a = &p->program->values[step->input[0]];
    const oct_value *b = &p->program->values[step->input[1]];
    const oct_value *v = &p->program->values[step->output];
    bool cut;
    const int activation = activation_of(v, lo, hi, &cut);
    const int x[] = {p->values[step->input[0]],
                     oct_value_numel(a) == oct_value_numel(b)
                         ? oct_to_tflite_input(p, step, 1, a->h, a->w, a->c)
                         : p->values[step->input[1]]};
    const int y = oct_to_tflite_made(p->w, kind, 2, x, oct_to_tflite_value(p, step->output),
                                     OCT_TO_TFLITE_OPTIONS({0, 1, activation}));
    return cut ? oct_to_tflite_cut(p, step->output, y, lo, hi) : y;
}

static int add(oct_to_tflite_program *p, const oct_step *step)
{
    const oct_qparams a = p->program->values[step->input[0]].q,
                      b = p->program->values[step->input[1]].q,
                      y = p->program->values[step->output].q;
    const oct_qadd *sum = &step->add, there = oct_qadd_of_floats(a, b, y, sum->relu);
    const bool one_scale =
        a.scale == y.scale && b.scale == y.scale; /* exact with any multipliers */
    if (!rounds_twice(p, step)) {
        if (!one_scale && (sum->ma != there.ma || sum->shift != there.shift ||
                           (sum->mb < 0 ? -sum->mb : sum->mb) != there.mb))
            oct_to_tflite_lose(p, OCT_TO_TFLITE_LOSS_SUM, step);
        check_ratio(p, step, a.scale / y.scale, 0x1p-10f);
        check_ratio(p, step, b.scale / y.scale, 0x1p-10f);
    }
    return pair(p, step, sum->mb < 0 ? OCT_TFLITE_SUB : OCT_TFLITE_ADD, sum->lo, sum->hi);
}

static int mul(oct_to_tflite_program *p, const oct_step *step)
{
    const oct_qparams a = p->program->values[step->input[0]].q,
                      b = p->program->values[step->input[1]].q,
                      y = p->program->values[step->output].q;
    if (!rounds_twice(p, step)) {
        if (oct_export_halves_differ(p->program, step))
            oct_to_tflite_lose(p, OCT_TO_TFLITE_LOSS_SHIFT, step);
        else if (step->mul.offset_first || step->mul.factor != oct_qmul_factor_float(a, b, y))
            oct_to_tflite_lose(p, OCT_TO_TFLITE_LOSS_PRODUCT, step);
        check_ratio(p, step, step->mul.factor, 0x1p-16f);
    }
    return pair(p, step, OCT_TFLITE_MUL, y.qmin - y.zero_point, y.qmax - y.zero_point);
}

static int pool(oct_to_tflite_program *p, const oct_step *step, oct_tflite_operator kind, int x,
                int padding)
{
    const oct_conv_shape *s = &step->pool.shape;
    const int y = oct_to_tflite_made(
        p->w, kind, OCT_TO_TFLITE_INPUTS(x),
        oct_to_tflite_like(p->w, x, 4, (int64_t[]){1, s->out_h, s->out_w, s->out_c}),
        OCT_TO_TFLITE_OPTIONS({0, 1, padding}, {1, 4, s->stride_w}, {2, 4, s->stride_h},
                              {3, 4, s->kernel_w}, {4, 4, s->kernel_h}, {5, 1, ACT_NONE}));
    return as_value(p, step, y);
}

static int max_pool(oct_to_tflite_program *p, const oct_step *step)
{
    const oct_conv_shape *s = &step->pool.shape;
    int x = oct_to_tflite_input(p, step, 0, s->in_h, s->in_w, s->in_c);
    const int padding = pad_window(p, s, 0, &x);
    return pool(p, step, OCT_TFLITE_MAX_POOL_2D, x, padding);
}

static int avg_pool(oct_to_tflite_program *p, const oct_step *step)
{
    const oct_conv_shape *s = &step->pool.shape;
    const bool pads = oct_conv_sees_padding(s);
    int x = oct_to_tflite_input(p, step, 0, s->in_h, s->in_w, s->in_c), padding = VALID;
    int64_t before[3], after[3];
    pads_of(s, before, after);
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
    if (!step->pool.of_codes) oct_to_tflite_lose(p, OCT_TO_TFLITE_LOSS_AVERAGE, step);
    return pool(p, step, OCT_TFLITE_AVERAGE_POOL_2D, x, padding);
}

static int soften(oct_to_tflite_program *p, int x)
{
    enum { BETA = 0x3f800000 }; /* the bits of 1.0f */
    if (oct_to_tflite_status(p->w) != OCT_OK) return OCT_TFLITE_NONE;
    return oct_to_tflite_made(
        p->w, OCT_TFLITE_SOFTMAX, OCT_TO_TFLITE_INPUTS(x),
        oct_to_tflite_like(p->w, x, oct_to_tflite_ndim(p->w, x), oct_to_tflite_dims(p->w, x)),
        OCT_TO_TFLITE_OPTIONS({0, 4, BETA}));
}

static int softmax(oct_to_tflite_program *p, const oct_step *step)
{
    oct_to_tflite_lose(p, OCT_TO_TFLITE_LOSS_SOFTMAX, step);
    const int y = soften(p, oct_to_tflite_dequantize(p, p->values[step->input[0]]));
    return quantized(p, step->output, as_value(p, step, y));
}

/* Of float layers, TFLite's files of Octet's have what classifiers end with. */
static int float_fallback(oct_to_tflite_program *p, const oct_step *step)
{
    if (strcmp(step->fallback->type, "softmax") != 0)
        return oct_to_tflite_fail(p->w, OCT_PREPARE,
                                  "%s: stays float, and no operator of TFLite is written for %s; "
                                  "quantize it, or take --format onnx, which has float layers",
                                  step->name, step->fallback->type);
    oct_to_tflite_lose(p, OCT_TO_TFLITE_LOSS_FALLBACK, step);
    return as_value(p, step, soften(p, p->values[step->input[0]]));
}

oct_to_tflite_write *const oct_to_tflite_product_steps[OCT_STEP_KINDS] = {
    [OCT_STEP_QUANTIZE] = quantize, [OCT_STEP_DEQUANTIZE] = dequantize,
    [OCT_STEP_CONV] = conv,         [OCT_STEP_CONV_FLOAT] = conv_float,
    [OCT_STEP_ADD] = add,           [OCT_STEP_MUL] = mul,
    [OCT_STEP_MAX_POOL] = max_pool, [OCT_STEP_AVG_POOL] = avg_pool,
    [OCT_STEP_SOFTMAX] = softmax,   [OCT_STEP_FLOAT] = float_fallback,
};
