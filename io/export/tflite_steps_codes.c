/* Steps that move codes, look them up or compare them: operators on the codes themselves, exact in every kernel. */
#include "io/export/tflite_form.h"

#include "quant/kernel/qcodes.h"
#include "quant/program/step.h"

#include <math.h>
#include <string.h>

static const oct_tflite_quant no_quant = {.codes = NULL};

int oct_to_tflite_clip(oct_to_tflite_program *p, int32_t value, int x, int32_t lo, int32_t hi)
{
    const oct_value *v = &p->program->values[value];
    const int32_t ends[] = {lo + v->q.zero_point, hi + v->q.zero_point};
    const oct_tflite_operator kinds[] = {OCT_TFLITE_MAXIMUM, OCT_TFLITE_MINIMUM};
    for (int i = 0; i < 2; i++) {
        if (i == 0 ? ends[0] <= 0 : ends[1] >= UINT8_MAX) continue;
        const int8_t end = (int8_t)(ends[i] - OCT_TFLITE_SIGN);
        const int bound = oct_to_tflite_constant(p->w, OCT_TFLITE_S8, 1, (int64_t[]){1},
                                                 (oct_tflite_quant){.codes = &v->q},
                                                 oct_to_tflite_alloc(p->w, &end, sizeof end));
        x = oct_to_tflite_apply(p->w, kinds[i], OCT_TO_TFLITE_INPUTS(x, bound),
                                oct_to_tflite_value(p, value), OCT_TO_TFLITE_NO_OPTIONS);
    }
    return x;
}

/* TFLite's GATHER reads single entries at places of 32 bits. */
int oct_to_tflite_lookup(oct_to_tflite_program *p, int x, int32_t value, const uint8_t *table,
                         bool channels)
{
    oct_to_tflite_writer *w = p->w;
    if (w->status != OCT_OK) return OCT_TFLITE_NONE;
    const int64_t *dims = oct_to_tflite_at(w, x)->dims, tables = channels ? dims[3] : 1;
    const int64_t size = tables * OCT_EXPORT_CODES, shape[] = {1, dims[1], dims[2], dims[3]};
    const oct_tflite_quant q = {.codes = &p->program->values[value].q};
    int8_t *entries = oct_to_tflite_alloc(w, NULL, (size_t)size);
    for (int64_t i = 0; entries && i < size; i++)
        entries[i] = (int8_t)(table[i] - OCT_TFLITE_SIGN);
    const int codes = oct_to_tflite_constant(w, OCT_TFLITE_S8, 1, &size, q, entries);
    int places =
        oct_to_tflite_apply(w, OCT_TFLITE_CAST, OCT_TO_TFLITE_INPUTS(x),
                            oct_to_tflite_tensor(w, OCT_TFLITE_S32, 4, shape, no_quant),
                            OCT_TO_TFLITE_OPTIONS({0, 1, OCT_TFLITE_S8}, {1, 1, OCT_TFLITE_S32}));
    /* Where each channel's table begins, and how far codes are from it. */
    int32_t *first = oct_to_tflite_alloc(w, NULL, (size_t)tables * sizeof *first);
    for (int64_t c = 0; first && c < tables; c++)
        first[c] = (int32_t)(c * OCT_EXPORT_CODES) + OCT_TFLITE_SIGN;
    const int begins =
        oct_to_tflite_constant(w, OCT_TFLITE_S32, 4, (int64_t[]){1, 1, 1, tables}, no_quant, first);
    places = oct_to_tflite_apply(w, OCT_TFLITE_ADD, OCT_TO_TFLITE_INPUTS(places, begins),
                                 oct_to_tflite_tensor(w, OCT_TFLITE_S32, 4, shape, no_quant),
                                 OCT_TO_TFLITE_OPTIONS({0, 1, 0}));
    return oct_to_tflite_apply(w, OCT_TFLITE_GATHER, OCT_TO_TFLITE_INPUTS(codes, places),
                               oct_to_tflite_tensor(w, OCT_TFLITE_S8, 4, shape, q),
                               OCT_TO_TFLITE_OPTIONS({0, 4, 0}));
}

int oct_to_tflite_pad(oct_to_tflite_program *p, int x, const int64_t before[3],
                      const int64_t after[3], int32_t code)
{
    oct_to_tflite_writer *w = p->w;
    int32_t ends[8] = {0};
    int64_t dims[4] = {1};
    bool pads = false;
    if (w->status != OCT_OK) return OCT_TFLITE_NONE;
    for (int i = 0; i < 3; i++) {
        ends[2 * i + 2] = (int32_t)before[i];
        ends[2 * i + 3] = (int32_t)after[i];
        dims[i + 1] = oct_to_tflite_at(w, x)->dims[i + 1] + before[i] + after[i];
        pads |= before[i] > 0 || after[i] > 0;
    }
    if (!pads) return x;
    const int sizes = oct_to_tflite_constant(w, OCT_TFLITE_S32, 2, (int64_t[]){4, 2}, no_quant,
                                             oct_to_tflite_alloc(w, ends, sizeof ends));
    /* The fill is a number like those of x: a code, or 0 of floats. */
    const int fill = oct_to_tflite_like(w, x, 1, (int64_t[]){1});
    if (w->status != OCT_OK) return OCT_TFLITE_NONE;
    oct_tflite_tensor *number = oct_to_tflite_at(w, fill);
    const float zero = 0;
    const int8_t byte = (int8_t)(code - OCT_TFLITE_SIGN);
    const bool floats = number->type == OCT_TFLITE_FLOAT;
    number->data = oct_to_tflite_alloc(w, floats ? (const void *)&zero : &byte, number->bytes);
    return oct_to_tflite_apply(w, OCT_TFLITE_PADV2, OCT_TO_TFLITE_INPUTS(x, sizes, fill),
                               oct_to_tflite_like(w, x, 4, dims), OCT_TO_TFLITE_NO_OPTIONS);
}

int oct_to_tflite_gather(oct_to_tflite_writer *w, int x, int axis, int64_t n, const int32_t *places)
{
    int64_t dims[OCT_TFLITE_DIMS];
    if (w->status != OCT_OK) return OCT_TFLITE_NONE;
    const int ndim = oct_to_tflite_at(w, x)->ndim;
    memcpy(dims, oct_to_tflite_at(w, x)->dims, (size_t)ndim * sizeof *dims);
    dims[axis] = n;
    return oct_to_tflite_apply(
        w, OCT_TFLITE_GATHER, OCT_TO_TFLITE_INPUTS(x, oct_to_tflite_list(w, (int)n, places)),
        oct_to_tflite_like(w, x, ndim, dims), OCT_TO_TFLITE_OPTIONS({0, 4, axis}));
}

/* The operator that makes a table's codes by itself in the kernels that the model is for; OCT_TFLITE_KINDS: none. */
static oct_tflite_operator find_operator(const oct_program *program, const oct_step *step)
{
    static const oct_tflite_operator kinds[] = {
        [OCT_FIXED_LOGISTIC] = OCT_TFLITE_LOGISTIC, [OCT_FIXED_TANH] = OCT_TFLITE_TANH};
    const oct_qparams x = program->values[step->input[0]].q, y = program->values[step->output].q;
    uint16_t table[OCT_FIXED_CODES];
    if (!oct_rounding_of(program->requantizer)->is_tflm || step->lut.size != OCT_FIXED_CODES ||
        !oct_fixed_function_takes(x))
        return OCT_TFLITE_KINDS;
    for (int f = 0; f < OCT_FIXED_FUNCTIONS; f++) {
        oct_fixed_function_table((oct_fixed_function)f, x, table);
        if (oct_qparams_equal(y, oct_fixed_function_output((oct_fixed_function)f)) &&
            memcmp(table, step->lut.table, sizeof table) == 0)
            return kinds[f];
    }
    return OCT_TFLITE_KINDS;
}

static int write_lut(oct_to_tflite_program *p, const oct_step *step)
{
    const oct_tflite_operator kind = find_operator(p->program, step);
    if (kind != OCT_TFLITE_KINDS)
        return oct_to_tflite_apply(p->w, kind, OCT_TO_TFLITE_INPUTS(p->values[step->input[0]]),
                                   oct_to_tflite_value(p, step->output), OCT_TO_TFLITE_NO_OPTIONS);
    uint8_t *table = oct_to_tflite_alloc(p->w, NULL, (size_t)step->lut.size);
    for (int64_t i = 0; table && i < step->lut.size; i++)
        table[i] = (uint8_t)step->lut.table[i];
    return oct_to_tflite_lookup(p, p->values[step->input[0]], step->output, table,
                                step->lut.size > OCT_EXPORT_CODES);
}

/* A batch norm on its own has sums finer than any kernel's, so it is a table for each channel. */
static int write_affine(oct_to_tflite_program *p, const oct_step *step)
{
    uint8_t *table =
        oct_to_tflite_alloc(p->w, NULL, (size_t)step->conv.shape.in_c * OCT_EXPORT_CODES);
    if (table && oct_export_table(p->program, step, table) != OCT_OK)
        return oct_to_tflite_fail(p->w, OCT_RESOURCE, "%s: its table cannot be made", step->name);
    return oct_to_tflite_lookup(p, p->values[step->input[0]], step->output, table, true);
}

static int write_relu(oct_to_tflite_program *p, const oct_step *step)
{
    return oct_to_tflite_clip(p, step->output, p->values[step->input[0]], step->relu.lo,
                              step->relu.hi);
}

static int write_reshape(oct_to_tflite_program *p, const oct_step *step)
{
    return oct_to_tflite_output(p, step, p->values[step->input[0]]);
}

/* A constant is put around by PADV2; in other modes each row, column and channel is read by its place. */
static int write_pad(oct_to_tflite_program *p, const oct_step *step)
{
    const oct_pad_shape *s = &step->pad.shape;
    int x = oct_to_tflite_input(p, step, 0, s->in[0], s->in[1], s->in[2]);
    int64_t after[3];
    for (int i = 0; i < 3; i++)
        after[i] = s->out[i] - s->in[i] - s->before[i];
    if (s->mode == OCT_PAD_CONSTANT)
        return oct_to_tflite_pad(p, x, s->before, after, step->pad.fill);
    for (int i = 0; i < 3; i++) {
        if (s->out[i] == s->in[i]) continue;
        int32_t *places = oct_to_tflite_alloc(p->w, NULL, (size_t)s->out[i] * sizeof *places);
        for (int64_t at = 0; places && at < s->out[i]; at++)
            places[at] = (int32_t)oct_pad_source(s, i, at);
        x = oct_to_tflite_gather(p->w, x, i + 1, s->out[i], places);
    }
    return x;
}

/* Reads some channels of every pixel; the flat sample is one pixel. */
static int slice_channels(oct_to_tflite_writer *w, int x, int64_t pixels, int64_t channels,
                          int64_t first, int64_t n)
{
    x = oct_to_tflite_reshape(w, x, 2, (int64_t[]){pixels, channels});
    return oct_to_tflite_apply(
        w, OCT_TFLITE_SLICE,
        OCT_TO_TFLITE_INPUTS(x, OCT_TO_TFLITE_LIST(w, 0, (int32_t)first),
                             OCT_TO_TFLITE_LIST(w, (int32_t)pixels, (int32_t)n)),
        oct_to_tflite_like(w, x, 2, (int64_t[]){pixels, n}), OCT_TO_TFLITE_NO_OPTIONS);
}

/* Reads x in the sizes dims and transposes these. */
static int transpose(oct_to_tflite_writer *w, int x, int n, const int64_t *dims,
                     const int64_t *perm)
{
    int32_t order[OCT_TFLITE_DIMS];
    int64_t moved[OCT_TFLITE_DIMS];
    x = oct_to_tflite_reshape(w, x, n, dims);
    for (int i = 0; i < n; i++) {
        order[i] = (int32_t)perm[i];
        moved[i] = dims[perm[i]];
    }
    return oct_to_tflite_apply(w, OCT_TFLITE_TRANSPOSE,
                               OCT_TO_TFLITE_INPUTS(x, oct_to_tflite_list(w, n, order)),
                               oct_to_tflite_like(w, x, n, moved), OCT_TO_TFLITE_NO_OPTIONS);
}

enum { TRANSPOSE_DIMS = 5 };

/* Reads n numbers of x's sample by their indices, in the cheapest form that gives these. */
static int read_by_index(oct_to_tflite_writer *w, int x, int64_t numel, int64_t channels,
                         const int32_t *index, int64_t n)
{
    int64_t dims[OCT_LOOPS], perm[OCT_LOOPS];
    oct_loops l;
    const bool found = oct_loops_find(&l, index, n);
    if (found && (l.count == 0 || (l.count == 1 && l.stride[0] == 1)))
        return slice_channels(w, x, 1, numel, l.first, n);
    if (found && l.count <= TRANSPOSE_DIMS && oct_loops_transpose(&l, numel, dims, perm))
        return transpose(w, x, l.count, dims, perm);
    /* Neighbouring channels of all pixels. */
    if (found && l.count == 2 && l.stride[0] == 1 && l.stride[1] == channels &&
        l.size[1] == numel / channels && l.first + l.size[0] <= channels)
        return slice_channels(w, x, numel / channels, channels, l.first, l.size[0]);
    return oct_to_tflite_gather(w, oct_to_tflite_reshape(w, x, 2, (int64_t[]){1, numel}), 1, n,
                                index);
}

static int write_move(oct_to_tflite_program *p, const oct_step *step)
{
    const oct_value *in = &p->program->values[step->input[0]];
    const int64_t n = oct_value_numel(&p->program->values[step->output]);
    int32_t *index = oct_to_tflite_alloc(p->w, NULL, (size_t)n * sizeof *index);
    if (!index) return OCT_TFLITE_NONE;
    for (int64_t i = 0; i < n; i++)
        index[i] = (int32_t)oct_move_source(&step->move, i);
    const int y =
        read_by_index(p->w, p->values[step->input[0]], oct_value_numel(in), in->c, index, n);
    return oct_to_tflite_output(p, step, y);
}

/* Gives input i of a concat in codes of the output, by a table where their qparams differ. */
static int rescale_input(oct_to_tflite_program *p, const oct_step *step, int i)
{
    const oct_qparams from = p->program->values[step->input[i]].q;
    const oct_qparams to = p->program->values[step->output].q;
    uint8_t table[OCT_EXPORT_CODES];
    if (oct_qparams_equal(from, to)) return p->values[step->input[i]];
    oct_export_rescale(p->program, from, to, table);
    return oct_to_tflite_lookup(p, p->values[step->input[i]], step->output, table, false);
}

int oct_to_tflite_concat(oct_to_tflite_program *p, int n, int *x, int y)
{
    oct_to_tflite_writer *w = p->w;
    const int most = OCT_TFLM_CONCATENATED;
    while (w->status == OCT_OK && n > most) { /* what n ends with becomes one */
        int64_t dims[OCT_TFLITE_DIMS];
        const int first = n - most, count = oct_to_tflite_at(w, x[first])->ndim;
        memcpy(dims, oct_to_tflite_at(w, x[first])->dims, sizeof dims);
        for (int i = first + 1; i < n; i++)
            dims[3] += oct_to_tflite_at(w, x[i])->dims[3];
        x[first] = oct_to_tflite_apply(w, OCT_TFLITE_CONCATENATION, most, x + first,
                                       oct_to_tflite_like(w, x[first], count, dims),
                                       OCT_TO_TFLITE_OPTIONS({0, 4, 3}, {1, 1, 0}));
        n = first + 1;
    }
    return oct_to_tflite_apply(w, OCT_TFLITE_CONCATENATION, n, x, y,
                               OCT_TO_TFLITE_OPTIONS({0, 4, 3}, {1, 1, 0}));
}

static int write_concat(oct_to_tflite_program *p, const oct_step *step)
{
    int input[OCT_STEP_INPUTS];
    for (int i = 0; i < step->num_inputs; i++)
        input[i] = rescale_input(p, step, i);
    return oct_to_tflite_concat(p, step->num_inputs, input, oct_to_tflite_value(p, step->output));
}

static int write_argmax(oct_to_tflite_program *p, const oct_step *step)
{
    const oct_value *in = &p->program->values[step->input[0]];
    const int32_t axis = 3;
    const int y = oct_to_tflite_apply(
        p->w, OCT_TFLITE_ARG_MAX,
        OCT_TO_TFLITE_INPUTS(p->values[step->input[0]], oct_to_tflite_list(p->w, 0, &axis)),
        oct_to_tflite_tensor(p->w, OCT_TFLITE_S32, 3, (int64_t[]){1, in->h, in->w}, no_quant),
        OCT_TO_TFLITE_OPTIONS({0, 1, OCT_TFLITE_S32}));
    return oct_to_tflite_output(p, step, y);
}

/* The position on a side of `in` pixels, in floats, from which TFLite reads output pixel `at`. */
static float tflite_place(oct_interpolation mode, int64_t at, int64_t in, int64_t out)
{
    const bool corners = mode == OCT_BILINEAR_CORNERS && out > 1;
    const float scale = corners ? (float)(in - 1) / (float)(out - 1) : (float)in / (float)out;
    if (mode != OCT_BILINEAR) return (float)at * scale;
    return fmaxf(((float)at + 0.5f) * scale - 0.5f, 0.0f);
}

/* Whether TFLite interpolates along a side with the same pixels and weights as Octet. */
static bool mixes_equally(oct_interpolation mode, int64_t in, int64_t out)
{
    bool equal = true;
    for (int64_t i = 0; i < out; i++) {
        const oct_qtap tap = oct_qtap_of(mode, i, in, out);
        const float place = fminf(tflite_place(mode, i, in, out), (float)(in - 1));
        const int64_t low = (int64_t)place;
        const float part = (place - (float)low) * OCT_QTAP_ONE;
        equal &= low * OCT_QTAP_ONE + lrintf(part) == tap.low * OCT_QTAP_ONE + tap.weight;
    }
    return equal;
}

/* Whether TFLite takes the same nearest pixels along a side as Octet. */
static bool takes_equally(int64_t in, int64_t out)
{
    bool equal = true;
    for (int64_t i = 0; i < out; i++)
        equal &= (int64_t)floorf(tflite_place(OCT_NEAREST, i, in, out)) ==
                 oct_resize_place_of(OCT_NEAREST, i, in, out).low;
    return equal;
}

/* Reads the nearest of `in` rows or columns for each of `out`. */
static int gather_nearest(oct_to_tflite_program *p, const oct_step *step, int x, int axis,
                          int64_t in, int64_t out)
{
    if (in == out) return x;
    int32_t *places = oct_to_tflite_alloc(p->w, NULL, (size_t)out * sizeof *places);
    for (int64_t i = 0; places && i < out; i++)
        places[i] =
            (int32_t)oct_resize_place_of((oct_interpolation)step->interpolate.mode, i, in, out).low;
    return oct_to_tflite_gather(p->w, x, axis, out, places);
}

/* TFLite's own resize is taken where it reads the same pixels, otherwise GATHER. */
static int write_interpolate(oct_to_tflite_program *p, const oct_step *step)
{
    const oct_conv_shape *s = &step->interpolate.shape;
    const oct_interpolation mode = (oct_interpolation)step->interpolate.mode;
    int x = oct_to_tflite_input(p, step, 0, s->in_h, s->in_w, s->in_c);
    const bool nearest =
        mode == OCT_NEAREST && takes_equally(s->in_h, s->out_h) && takes_equally(s->in_w, s->out_w);
    if (!oct_is_bilinear(mode) && !nearest) {
        x = gather_nearest(p, step, x, 1, s->in_h, s->out_h);
        return gather_nearest(p, step, x, 2, s->in_w, s->out_w);
    }
    if (oct_is_bilinear(mode) &&
        !(mixes_equally(mode, s->in_h, s->out_h) && mixes_equally(mode, s->in_w, s->out_w)))
        oct_export_note_diff(p->diffs, OCT_TO_TFLITE_DIFF_BILINEAR, step);
    const int size = OCT_TO_TFLITE_LIST(p->w, (int32_t)s->out_h, (int32_t)s->out_w);
    const int first = nearest ? 0 : 2; /* two fields of linear ones are gone */
    return oct_to_tflite_apply(
        p->w, nearest ? OCT_TFLITE_RESIZE_NEAREST_NEIGHBOR : OCT_TFLITE_RESIZE_BILINEAR,
        OCT_TO_TFLITE_INPUTS(x, size), oct_to_tflite_value(p, step->output),
        OCT_TO_TFLITE_OPTIONS({first, 1, mode == OCT_BILINEAR_CORNERS},
                              {first + 1, 1, mode == OCT_BILINEAR}));
}

oct_to_tflite_write *const oct_to_tflite_code_steps[OCT_STEP_KINDS] = {
    [OCT_STEP_LUT] = write_lut,         [OCT_STEP_AFFINE] = write_affine,
    [OCT_STEP_PAD] = write_pad,         [OCT_STEP_RELU] = write_relu,
    [OCT_STEP_MOVE] = write_move,       [OCT_STEP_CONCAT] = write_concat,
    [OCT_STEP_ARGMAX] = write_argmax,   [OCT_STEP_INTERPOLATE] = write_interpolate,
    [OCT_STEP_RESHAPE] = write_reshape,
};
