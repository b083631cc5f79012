/* The format onnx: a float network as its operators, an int8 model with QuantizeLinear and DequantizeLinear around
 * them (onnx_program.c). */
#include "io/export/onnx_model.h"

#include "core/base/mem.h"
#include "io/export/program_parts.h"

#include <stdio.h>

enum { OPSET = 13, OPSET_WIDE = 21 /* the first with codes of 16 bits */ };

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

/* One call of a float network. */
static void write_call(oct_to_onnx_writer *w, const oct_float_network *network, size_t i,
                       oct_to_onnx_ref *values)
{
    const oct_trace_node *node = &network->trace.nodes[i];
    oct_to_onnx_ref input[OCT_MAX_INPUTS];
    oct_float_layer layer;
    for (int k = 0; k < node->num_inputs; k++)
        input[k] = values[node->input[k]];
    oct_float_network_layer(network, (int64_t)i, &layer);
    const oct_to_onnx_layer_call call = {.layer = &layer,
                                         .input = input,
                                         .num_inputs = node->num_inputs,
                                         .own_names =
                                             oct_float_network_is_first_call(network, (int64_t)i)};
    const oct_to_onnx_ref y = oct_to_onnx_layer_write(w, &call);
    values[node->output] = y;
    if (y.name && !oct_shape_equal(&y.tensor.shape, &network->tensors[node->output].shape))
        oct_to_onnx_fail(w, OCT_DEFECT, "%s: the shape of its output is not what ONNX would make",
                         layer.name);
}

static void write_calls(oct_to_onnx_writer *w, const oct_export *job, const bool *live,
                        oct_to_onnx_ref *values)
{
    const oct_float_network *network = job->network;
    const oct_trace *trace = &network->trace;
    for (int i = 0; i < trace->num_inputs; i++)
        values[trace->inputs[i]] =
            oct_to_onnx_model_input(w, job, i, trace->values[trace->inputs[i]].shape);
    for (size_t i = 0; i < trace->num_nodes; i++)
        if (live[i]) write_call(w, network, i, values);
    const bool classes = trace->values[trace->output].dtype == OCT_S32;
    oct_to_onnx_model_output(w, job, values[trace->output], classes ? OCT_S64 : OCT_F32);
}

static oct_status write_network(const oct_export *job, oct_exported *out)
{
    const oct_float_network *network = job->network;
    oct_to_onnx_writer *w = NULL;
    oct_to_onnx_ref *values = NULL;
    bool *live = NULL;
    oct_status status;
    OCT_TRY_OUT(oct_to_onnx_writer_create(&w, OPSET));
    OCT_TRY_OUT(oct_alloc(&values, network->trace.num_values, sizeof *values));
    OCT_TRY_OUT(oct_trace_live(&network->trace, &live));
    write_calls(w, job, live, values);
    status = oct_to_onnx_writer_end(w, job->version, &out->bytes, &out->size);
out:
    oct_free(&values);
    oct_free(&live);
    oct_to_onnx_writer_destroy(&w);
    return status;
}

static bool has_wide_codes(const oct_program *program)
{
    for (int64_t i = 0; i < program->num_values; i++)
        if (program->values[i].dtype == OCT_U16) return true;
    return false;
}

static oct_status write_model(const oct_export *job, oct_exported *out)
{
    oct_to_onnx_writer *w = NULL;
    oct_status status;
    OCT_TRY(
        oct_to_onnx_writer_create(&w, has_wide_codes(&job->model->program) ? OPSET_WIDE : OPSET));
    OCT_TRY_OUT(oct_to_onnx_program_write(w, job, &out->notices));
    status = oct_to_onnx_writer_end(w, job->version, &out->bytes, &out->size);
out:
    oct_to_onnx_writer_destroy(&w);
    return status;
}

const oct_export_format oct_export_format_onnx = {
    .name = "onnx",
    .help = "of an int8 model: QuantizeLinear and DequantizeLinear around integer layers; of a "
            "checkpoint: the float network",
    .suffix = ".onnx",
    .runs = true,
    .choices = true,
    .processors = true,
    .golden = true,
    .write_model = write_model,
    .write_network = write_network,
};
