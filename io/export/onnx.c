/* The format onnx: a float network as its operators, an int8 model with QuantizeLinear and DequantizeLinear around
 * them (onnx_program.c). */
#include "core/base/mem.h"
#include "io/export/onnx_model.h"
#include "io/export/onnx_step.h"

enum { OPSET = 13, OPSET_WIDE = 21 /* the first with codes of 16 bits */ };

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
