/* The format onnx: a float network as its operators, an int8 model with QuantizeLinear and DequantizeLinear around
 * them. */
#include "io/export/onnx_form.h"

#include "core/base/mem.h"
#include "io/export/program_parts.h"
#include "quant/program/step.h"

/* Adds mean or std of the input's channels to the model's properties. */
static void add_channel_numbers(oct_to_onnx_writer *w, const char *key, const float *values,
                                int64_t channels)
{
    OCT_OWNED(oct_text_free) oct_text text = {0};
    const oct_status status = oct_export_numbers(&text, values, channels);
    if (status == OCT_OK)
        oct_to_onnx_property(w, key, text.data);
    else
        oct_to_onnx_fail(w, status, "%s: no memory", key);
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
    const char *x = oct_to_onnx_cast(w, pixels, OCT_F32);
    x = OCT_TO_ONNX(w, "Mul", x, oct_to_onnx_scalar(w, 1.0f / 255.0f));
    x = OCT_TO_ONNX(w, "Sub", x, channel_constant(w, job->mean, shape));
    return OCT_TO_ONNX(w, "Mul", x, channel_constant(w, inverse_std, shape));
}

/* Declares input `number` of a model and returns it as values that the network takes. */
static oct_to_onnx_ref declare_model_input(oct_to_onnx_writer *w, const oct_export *job, int number,
                                           oct_shape shape)
{
    const int64_t channels = shape.dim[shape.ndim - 1];
    const bool row = shape.ndim == 4 && shape.dim[1] * shape.dim[2] == 1;
    const oct_shape given = row ? OCT_SHAPE(1, channels) : shape;
    const oct_shape file_shape = oct_to_onnx_shape(&given);
    const bool pixels = job->pixels && number == 0;
    oct_to_onnx_ref x = {.tensor = {.shape = given}};
    if (number == 0) {
        x.name = oct_to_onnx_keep_name(w, oct_export_port(job, false).text);
        oct_to_onnx_keep_name(w, oct_export_port(job, true).text);
    } else {
        x.name = oct_to_onnx_name(w, "input%d", number);
    }
    oct_to_onnx_declare(w, false, x.name, pixels ? OCT_U8 : OCT_F32, &file_shape);
    if (number > 0) return oct_to_onnx_view(w, x, shape);
    if (job->class_names) oct_to_onnx_property(w, "octet.class_names", job->class_names);
    oct_to_onnx_layer_begin(w, "input");
    if (pixels) {
        x.name = normalise(w, job, x.name, &given);
    } else {
        add_channel_numbers(w, "octet.mean", job->mean, channels);
        add_channel_numbers(w, "octet.std", job->std, channels);
    }
    return oct_to_onnx_view(w, x, shape);
}

/* Declares the model's output under its name, which an Identity gives it without renaming what makes it. */
static void declare_model_output(oct_to_onnx_writer *w, const oct_export *job, oct_to_onnx_ref y,
                                 oct_dtype dtype)
{
    y = oct_to_onnx_ordered(w, y);
    const oct_shape shape = oct_to_onnx_shape(&y.tensor.shape);
    oct_to_onnx_layer_begin(w, "output");
    const char *identity = OCT_TO_ONNX(w, "Identity", y.name);
    if (identity) y.name = oct_to_onnx_output_named(w, identity, oct_export_port(job, true).text);
    oct_to_onnx_declare(w, true, y.name, dtype, &shape);
}

/* In an int8 model tensors are the codes themselves, and DequantizeLinear and QuantizeLinear stand around each
 * layer that computes (Conv, Gemm, Add, Mul), from which runtimes make integer operators. What only moves codes works
 * on them as they are, and so does a function that is a table (Gather).
 *
 * A form is taken where it computes the step's own arithmetic, code for code, in ONNX Runtime's kernels; what is
 * only close to it is said in a notice. */

/* Writes the operators of a step; its output gets the step's name where a node made it. */
static void write_step(oct_to_onnx_program *p, int64_t number)
{
    const oct_step *step = &p->program->steps[number];
    oct_to_onnx_write *product = oct_to_onnx_product_steps[step->kind];
    oct_to_onnx_write *write = product ? product : oct_to_onnx_code_steps[step->kind];
    for (int i = 0; i < step->num_inputs; i++)
        if (!p->values[step->input[i]].name) return;
    if (!write) {
        oct_to_onnx_fail(p->w, OCT_PREPARE, "%s: ONNX has no form for the step %s", step->name,
                         oct_step_type_of(step->kind)->name);
        return;
    }
    oct_to_onnx_layer_begin(p->w, step->name);
    oct_to_onnx_ref y = write(p, step);
    const oct_value *value = &p->program->values[step->output];
    if (y.name && oct_shape_numel(&y.tensor.shape) != oct_value_numel(value)) {
        oct_to_onnx_fail(p->w, OCT_DEFECT, "%s: its output is not of %lld numbers in ONNX",
                         step->name, (long long)oct_value_numel(value));
        return;
    }
    p->values[step->output] = y;
    for (int i = 0; i < step->num_inputs; i++)
        if (y.name == p->values[step->input[i]].name) return; /* it is handed on */
    const char *named = oct_to_onnx_output_named(
        p->w, y.name, oct_to_onnx_name(p->w, "%s", oct_export_step_name(p->program, number).text));
    p->fresh[step->output] = named != NULL;
    if (named) p->values[step->output].name = named;
}

static oct_dtype file_dtype(const oct_value *value)
{
    return value->dtype == OCT_S32 ? OCT_S64 : value->dtype; /* ONNX counts classes in s64 */
}

/* Declares as outputs the tensors that nodes made under steps' names, but none in a flattened order of the file. */
static void declare_values(oct_to_onnx_program *p)
{
    for (int64_t i = 0; i < p->program->num_steps; i++) {
        const int32_t v = p->program->steps[i].output;
        const oct_value *value = &p->program->values[v];
        const oct_to_onnx_ref *x = &p->values[v];
        const oct_shape shape = oct_to_onnx_shape(&x->tensor.shape);
        if (p->fresh[v] && x->tensor.plane.ndim != 4 && v != p->program->output)
            oct_to_onnx_declare(p->w, true, x->name, file_dtype(value), &shape);
    }
}

static const char *const diff_words[] = {
#define X(id, words) words,
    OCT_TO_ONNX_DIFF_LIST(X)
#undef X
};

enum { OPSET = 13, OPSET_WIDE = 21 /* the first with codes of 16 bits */ };

/* Writes the operators of call i of a float network, and checks the shape of its output. */
static void write_call(oct_to_onnx_writer *w, const oct_float_network *network, size_t i,
                       oct_to_onnx_ref *values)
{
    const oct_trace_node *node = &network->trace.nodes[i];
    oct_to_onnx_ref input[OCT_MAX_INPUTS];
    oct_float_layer layer = {.type = node->op, .name = node->path, .args = node->args};
    bool is_first =
        true; /* of the calls of its module: it writes the module's arrays, which later ones name */
    for (size_t k = 0; k < i; k++)
        is_first &= network->owner_of[k] != network->owner_of[i];
    for (int k = 0; k < node->num_inputs; k++)
        input[k] = values[node->input[k]];
    if (network->owner_of[i] >= 0)
        oct_float_network_owner_layer(network, network->owner_of[i], &layer);
    const oct_to_onnx_ref y = oct_to_onnx_layer_write(w, &layer, node->num_inputs, input, is_first);
    values[node->output] = y;
    if (y.name && !oct_shape_equal(&y.tensor.shape, &network->tensors[node->output].shape))
        oct_to_onnx_fail(w, OCT_DEFECT, "%s: the shape of its output is not what ONNX would make",
                         layer.name);
}

/* Writes the calls of a float network that its output depends on, between its inputs and output. */
static oct_status write_network(const oct_export *job, oct_exported *out)
{
    const oct_float_network *network = job->network;
    const oct_trace *trace = &network->trace;
    OCT_OWNED(oct_to_onnx_writer_destroy) oct_to_onnx_writer *w = NULL;
    OCT_OWNED(oct_free) oct_to_onnx_ref *values = NULL;
    OCT_OWNED(oct_free) bool *live = NULL;
    OCT_TRY(oct_to_onnx_writer_create(&w, OPSET));
    OCT_TRY(oct_alloc(&values, trace->num_values, sizeof *values));
    OCT_TRY(oct_trace_live(trace, &live));
    for (int i = 0; i < trace->num_inputs; i++)
        values[trace->inputs[i]] =
            declare_model_input(w, job, i, trace->values[trace->inputs[i]].shape);
    for (size_t i = 0; i < trace->num_nodes; i++)
        if (live[i]) write_call(w, network, i, values);
    const bool classes = trace->values[trace->output].dtype == OCT_S32;
    declare_model_output(w, job, values[trace->output], classes ? OCT_S64 : OCT_F32);
    return oct_to_onnx_writer_end(w, job->version, &out->bytes, &out->size);
}

static bool has_wide_codes(const oct_program *program)
{
    for (int64_t i = 0; i < program->num_values; i++)
        if (program->values[i].dtype == OCT_U16) return true;
    return false;
}

static oct_status write_model(const oct_export *job, oct_exported *out)
{
    oct_to_onnx_program p = {.job = job, .program = &job->model->program};
    const oct_program *program = p.program;
    const oct_value *output = &program->values[program->output];
    const size_t count = (size_t)program->num_values;
    oct_status status;
    OCT_TRY(oct_to_onnx_writer_create(&p.w, has_wide_codes(program) ? OPSET_WIDE : OPSET));
    OCT_TRY_OUT(oct_alloc(&p.values, count, sizeof *p.values));
    OCT_TRY_OUT(oct_alloc(&p.params, count, sizeof *p.params));
    OCT_TRY_OUT(oct_alloc(&p.fresh, count, sizeof *p.fresh));
    for (int i = 0; i < program->num_inputs; i++)
        p.values[program->inputs[i]] = declare_model_input(
            p.w, job, i, oct_to_onnx_value_shape(&program->values[program->inputs[i]]));
    oct_to_onnx_property(p.w, "octet.target", program->target);
    for (int64_t i = 0; i < program->num_steps; i++)
        write_step(&p, i);
    OCT_TRY_OUT(oct_to_onnx_status(p.w));
    oct_to_onnx_ref y = p.values[program->output];
    oct_to_onnx_layer_begin(p.w, "output");
    if (output->h == 1 && output->w == 1)
        y = oct_to_onnx_view(p.w, y, oct_to_onnx_value_shape(output));
    declare_model_output(p.w, job, y, file_dtype(output));
    if (job->all_values) declare_values(&p);
    OCT_TRY_OUT(oct_to_onnx_status(p.w));
    OCT_TRY_OUT(oct_export_report_diffs(OCT_TO_ONNX_DIFFS, p.diffs, diff_words, &out->notices));
    status = oct_to_onnx_writer_end(p.w, job->version, &out->bytes, &out->size);
out:
    OCT_FREE_ALL(&p.values, &p.params, &p.fresh);
    oct_to_onnx_writer_destroy(&p.w);
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
