#include "io/export/onnx_model.h"

#include "io/export/program_parts.h"

static void add_numbers(oct_to_onnx_writer *w, const char *key, const float *values,
                        int64_t channels)
{
    oct_text text = {0};
    const oct_status status = oct_export_numbers(&text, values, channels);
    if (status == OCT_OK)
        oct_to_onnx_property(w, key, text.data);
    else
        oct_to_onnx_fail(w, status, "%s: no memory", key);
    oct_text_free(&text);
}

/* A constant (C, 1, 1), or (C) for rows, of values of channels. */
static const char *channel_constant(oct_to_onnx_writer *w, const float *values,
                                    const oct_shape *shape)
{
    const int64_t dims[] = {oct_export_channels(shape->dim[shape->ndim - 1]), 1, 1};
    return oct_to_onnx_constant(w, NULL, OCT_F32, shape->ndim == 4 ? 3 : 1, dims, values);
}

/* (x * unit - mean) * (1 / std), each operation rounded, as the loader has it. */
static const char *normalise(oct_to_onnx_writer *w, const oct_export *job, const char *pixels,
                             const oct_shape *shape)
{
    float inverse_std[OCT_REALS_MAX];
    for (int64_t c = 0; c < oct_export_channels(shape->dim[shape->ndim - 1]); c++)
        inverse_std[c] = 1.0f / job->std[c];
    const char *x = OCT_TO_ONNX(w, "Cast", pixels);
    oct_to_onnx_int_set(w, "to", 1); /* float */
    x = OCT_TO_ONNX(w, "Mul", x, oct_to_onnx_scalar(w, 1.0f / 255.0f));
    x = OCT_TO_ONNX(w, "Sub", x, channel_constant(w, job->mean, shape));
    return OCT_TO_ONNX(w, "Mul", x, channel_constant(w, inverse_std, shape));
}

oct_to_onnx_ref oct_to_onnx_model_input(oct_to_onnx_writer *w, const oct_export *job, int number,
                                        oct_shape shape)
{
    const int64_t channels = shape.dim[shape.ndim - 1];
    const bool row = shape.ndim == 4 && shape.dim[1] * shape.dim[2] == 1;
    const oct_shape given = row ? OCT_SHAPE(1, channels) : shape, there = oct_to_onnx_shape(&given);
    const bool pixels = job->pixels && number == 0;
    char name[OCT_PORT_BYTES];
    oct_to_onnx_ref x = {.tensor = {.shape = given}};
    if (number == 0) {
        x.name = oct_to_onnx_keep_name(w, oct_export_port(job, false, name));
        oct_to_onnx_keep_name(w, oct_export_port(job, true, name));
    } else {
        x.name = oct_to_onnx_name(w, "input%d", number);
    }
    oct_to_onnx_declare_input(w, x.name, pixels ? OCT_U8 : OCT_F32, &there);
    if (number > 0) return oct_to_onnx_view(w, x, shape);
    if (job->class_names) oct_to_onnx_property(w, "octet.class_names", job->class_names);
    oct_to_onnx_layer_begin(w, "input");
    if (pixels) {
        x.name = normalise(w, job, x.name, &given);
    } else {
        add_numbers(w, "octet.mean", job->mean, channels);
        add_numbers(w, "octet.std", job->std, channels);
    }
    return oct_to_onnx_view(w, x, shape);
}

void oct_to_onnx_model_output(oct_to_onnx_writer *w, const oct_export *job, oct_to_onnx_ref y,
                              oct_dtype dtype)
{
    char name[OCT_PORT_BYTES];
    y = oct_to_onnx_ordered(w, y);
    const oct_shape shape = oct_to_onnx_shape(&y.tensor.shape);
    oct_to_onnx_layer_begin(w, "output");
    if (y.name && OCT_TO_ONNX(w, "Identity", y.name))
        y.name = oct_to_onnx_output_named(w, oct_export_port(job, true, name));
    oct_to_onnx_declare_output(w, y.name, dtype, &shape);
}
