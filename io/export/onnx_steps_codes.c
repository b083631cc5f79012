/* Steps that move codes, look them up or compare them: operators on the codes themselves, exact everywhere. */
#include "io/export/onnx_form.h"

#include "quant/program/step.h"

/* Replaces each code by its entry in the table of all channels, or of its own channel (`channels`): then where this begins
 * among the tables is added to the code. */
static oct_to_onnx_ref lookup(oct_to_onnx_program *p, oct_to_onnx_ref x, oct_dtype dtype,
                              const void *table, int64_t size, bool channels)
{
    oct_to_onnx_writer *w = p->w;
    if (channels) x = oct_to_onnx_ordered(w, x);
    const char *codes = oct_to_onnx_cast(w, x.name, OCT_S32);
    if (channels) {
        const oct_shape *s = &x.tensor.shape;
        const int64_t dims[3] = {s->dim[s->ndim - 1], 1, 1};
        int32_t *first = oct_to_onnx_alloc(w, (size_t)dims[0] * sizeof *first);
        for (int64_t c = 0; first && c < dims[0]; c++)
            first[c] = (int32_t)(c * (size / dims[0]));
        codes = OCT_TO_ONNX(
            w, "Add", codes,
            oct_to_onnx_kept_constant(w, NULL, OCT_S32, s->ndim == 4 ? 3 : 1, dims, first));
    }
    x.name = OCT_TO_ONNX(w, "Gather", oct_to_onnx_constant(w, NULL, dtype, 1, &size, table), codes);
    return x;
}

static oct_to_onnx_ref write_lut(oct_to_onnx_program *p, const oct_step *step)
{
    const oct_value *in = oct_step_input(p->program, step, 0);
    const oct_dtype dtype = oct_step_output(p->program, step)->dtype;
    const int64_t size = step->lut.size;
    const void *table = step->lut.table;
    if (dtype == OCT_U8) {
        uint8_t *bytes = oct_to_onnx_alloc(p->w, (size_t)size);
        for (int64_t i = 0; bytes && i < size; i++)
            bytes[i] = (uint8_t)step->lut.table[i];
        table = bytes;
    }
    return lookup(p, p->values[step->input[0]], dtype, table, size, size > oct_qtable_size(in->q));
}

/* A batch norm on its own has sums finer than any runtime's, so it is a table for each channel. */
static oct_to_onnx_ref write_affine(oct_to_onnx_program *p, const oct_step *step)
{
    const int64_t size = step->conv.shape.in_c * OCT_EXPORT_CODES;
    uint8_t *table = oct_to_onnx_alloc(p->w, (size_t)size);
    if (oct_step_input(p->program, step, 0)->dtype != OCT_U8 ||
        oct_step_output(p->program, step)->dtype != OCT_U8)
        return OCT_TO_ONNX_REFUSE(
            p->w, "%s: ONNX has no form for a batch norm of its own on codes of 16 bits",
            step->name);
    if (table && oct_export_table(p->program, step, table) != OCT_OK)
        oct_to_onnx_fail(p->w, OCT_RESOURCE, "%s: its table cannot be made", step->name);
    return lookup(p, p->values[step->input[0]], OCT_U8, table, size, true);
}

static oct_to_onnx_ref write_pad(oct_to_onnx_program *p, const oct_step *step)
{
    const char *constant = oct_to_onnx_code(p, step->input[0], step->pad.fill);
    oct_to_onnx_ref x = oct_to_onnx_input_plane(p, step);
    x.name = oct_to_onnx_widen(p, step->input[0], x.name);
    x = oct_to_onnx_pad(p->w, x, &step->pad.shape, constant);
    x.name = oct_to_onnx_narrow(p, step->output, x.name);
    return x;
}

static oct_to_onnx_ref write_max_pool(oct_to_onnx_program *p, const oct_step *step)
{
    const oct_conv_shape *s = &step->pool.shape;
    const oct_to_onnx_ref x = oct_to_onnx_input_plane(p, step);
    const char *y = OCT_TO_ONNX(p->w, "MaxPool", oct_to_onnx_widen(p, step->input[0], x.name));
    oct_to_onnx_windows_set(p->w, s);
    oct_to_onnx_int_set(p->w, "ceil_mode", step->pool.ceil);
    y = oct_to_onnx_narrow(p, step->output, y);
    return (oct_to_onnx_ref){y, {.shape = OCT_SHAPE(1, s->out_h, s->out_w, s->out_c)}};
}

static oct_to_onnx_ref write_relu(oct_to_onnx_program *p, const oct_step *step)
{
    return oct_to_onnx_clip(p, step->output, p->values[step->input[0]], step->relu.lo,
                            step->relu.hi);
}

static oct_to_onnx_ref write_reshape(oct_to_onnx_program *p, const oct_step *step)
{
    return oct_to_onnx_view(p->w, p->values[step->input[0]],
                            oct_to_onnx_value_shape(&p->program->values[step->output]));
}

/* An input of other qparams than the output is rescaled by a table of its own. */
static oct_to_onnx_ref rescale_input(oct_to_onnx_program *p, const oct_step *step, int i)
{
    const oct_value *from = &p->program->values[step->input[i]];
    const oct_value *to = &p->program->values[step->output];
    const oct_to_onnx_ref x = p->values[step->input[i]];
    if (oct_qparams_equal(from->q, to->q)) return x;
    if (from->dtype != OCT_U8 || to->dtype != OCT_U8)
        return OCT_TO_ONNX_REFUSE(
            p->w, "%s: ONNX has no form for joining codes of 16 bits and of another scale",
            step->name);
    uint8_t out[OCT_EXPORT_CODES];
    oct_export_rescale(p->program, from->q, to->q, out);
    return lookup(p, x, OCT_U8, out, OCT_EXPORT_CODES, false);
}

static oct_to_onnx_ref write_move(oct_to_onnx_program *p, const oct_step *step)
{
    const oct_value *in = &p->program->values[step->input[0]];
    const oct_value *out = &p->program->values[step->output];
    oct_move_map map = step->move;
    map.out = oct_to_onnx_value_shape(out);
    return oct_to_onnx_move(
        p->w, oct_to_onnx_view(p->w, p->values[step->input[0]], oct_to_onnx_value_shape(in)), &map);
}

static oct_to_onnx_ref write_concat(oct_to_onnx_program *p, const oct_step *step)
{
    oct_to_onnx_ref input[OCT_STEP_INPUTS];
    const oct_float_layer layer = {.type = "concat", .name = step->name};
    for (int i = 0; i < step->num_inputs; i++)
        input[i] = oct_to_onnx_view(p->w, rescale_input(p, step, i),
                                    oct_to_onnx_value_shape(&p->program->values[step->input[i]]));
    return oct_to_onnx_layer_write(p->w, &layer, step->num_inputs, input, false);
}

static oct_to_onnx_ref write_argmax(oct_to_onnx_program *p, const oct_step *step)
{
    const oct_float_layer layer = {.type = "argmax", .name = step->name};
    oct_to_onnx_ref x = p->values[step->input[0]];
    x.name = oct_to_onnx_widen(p, step->input[0], x.name);
    oct_to_onnx_ref y = oct_to_onnx_layer_write(p->w, &layer, 1, &x, false);
    const oct_value *out = &p->program->values[step->output];
    if (y.name && y.tensor.shape.ndim == 3)
        y = oct_to_onnx_view(p->w, y, OCT_SHAPE(1, oct_value_numel(out)));
    return y;
}

static oct_to_onnx_ref write_interpolate(oct_to_onnx_program *p, const oct_step *step)
{
    const oct_conv_shape *s = &step->interpolate.shape;
    const oct_float_layer layer = {.type = "interpolate",
                                   .name = step->name,
                                   .args = *OCT_ARGS(interpolate, s->out_h, s->out_w,
                                                     (oct_interpolation)step->interpolate.mode)};
    oct_to_onnx_ref x = p->values[step->input[0]];
    const oct_qparams *q = &p->program->values[step->output].q;
    const bool mixes = oct_is_bilinear((oct_interpolation)step->interpolate.mode);
    x.name = mixes ? oct_to_onnx_dequantize(p, step->input[0], x.name)
                   : oct_to_onnx_widen(p, step->input[0], x.name);
    oct_to_onnx_ref y = oct_to_onnx_layer_write(p->w, &layer, 1, &x, false);
    if (!mixes) {
        y.name = oct_to_onnx_narrow(p, step->output, y.name);
        return y;
    }
    oct_export_note_diff(p->diffs, OCT_TO_ONNX_DIFF_BILINEAR, step);
    return oct_to_onnx_quantize(p, step->output, y, q->qmin - q->zero_point,
                                q->qmax - q->zero_point);
}

oct_to_onnx_write *const oct_to_onnx_code_steps[OCT_STEP_KINDS] = {
    [OCT_STEP_LUT] = write_lut,       [OCT_STEP_AFFINE] = write_affine,
    [OCT_STEP_PAD] = write_pad,       [OCT_STEP_MAX_POOL] = write_max_pool,
    [OCT_STEP_RELU] = write_relu,     [OCT_STEP_RESHAPE] = write_reshape,
    [OCT_STEP_MOVE] = write_move,     [OCT_STEP_CONCAT] = write_concat,
    [OCT_STEP_ARGMAX] = write_argmax, [OCT_STEP_INTERPOLATE] = write_interpolate,
};
