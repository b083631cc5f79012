/* An int8 model as ONNX: tensors are the codes themselves, and DequantizeLinear and QuantizeLinear stand around each
 * layer that computes (Conv, Gemm, Add, Mul), from which runtimes make integer operators. What only moves codes works
 * on them as they are, and so does a function that is a table (Gather).
 *
 * A form is taken where it computes the step's own arithmetic, code for code, in ONNX Runtime's kernels; what is
 * only close to it is said in a notice. */
#include "io/export/onnx_step.h"

#include "core/base/mem.h"
#include "quant/program/step.h"

#include <stdio.h>
#include <string.h>

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
    p->fresh[step->output] = y.name && y.name == oct_to_onnx_last_output(p->w);
    char name[OCT_STEP_NAME_BYTES];
    for (int i = 0; i < step->num_inputs; i++) /* handed on */
        if (y.name == p->values[step->input[i]].name) p->fresh[step->output] = false;
    if (p->fresh[step->output])
        p->values[step->output].name = oct_to_onnx_output_named(
            p->w, oct_to_onnx_name(p->w, "%s", oct_export_step_name(p->program, number, name)));
}

static oct_dtype dtype_there(const oct_value *value)
{
    return value->dtype == OCT_S32 ? OCT_S64 : value->dtype; /* ONNX counts classes in s64 */
}

/* Each tensor of codes that a node has made under its step's name is an output. */
static void declare_values(oct_to_onnx_program *p)
{
    for (int64_t i = 0; i < p->program->num_steps; i++) {
        const int32_t v = p->program->steps[i].output;
        const oct_value *value = &p->program->values[v];
        const oct_to_onnx_ref *x = &p->values[v];
        const oct_shape shape = oct_to_onnx_shape(&x->tensor.shape);
        if (p->fresh[v] && x->tensor.plane.ndim != 4 && v != p->program->output)
            oct_to_onnx_declare_output(p->w, x->name, dtype_there(value), &shape);
    }
}

static void declare_output(oct_to_onnx_program *p)
{
    const oct_value *value = &p->program->values[p->program->output];
    oct_to_onnx_ref y = p->values[p->program->output];
    oct_to_onnx_layer_begin(p->w, "output");
    if (value->h == 1 && value->w == 1)
        y = oct_to_onnx_view(p->w, y, oct_to_onnx_value_shape(value));
    oct_to_onnx_model_output(p->w, p->job, y, dtype_there(value));
}

static void write_program(oct_to_onnx_program *p)
{
    const oct_program *program = p->program;
    for (int i = 0; i < program->num_inputs; i++)
        p->values[program->inputs[i]] = oct_to_onnx_model_input(
            p->w, p->job, i, oct_to_onnx_value_shape(&program->values[program->inputs[i]]));
    oct_to_onnx_property(p->w, "octet.target", program->target);
    for (int64_t i = 0; i < program->num_steps; i++)
        write_step(p, i);
    if (oct_to_onnx_status(p->w) != OCT_OK) return;
    declare_output(p);
    if (p->job->all_values) declare_values(p);
}

oct_status oct_to_onnx_program_write(oct_to_onnx_writer *w, const oct_export *job,
                                     oct_text *notices)
{
    oct_to_onnx_program p = {.w = w, .job = job, .program = &job->model->program};
    const size_t count = (size_t)p.program->num_values;
    oct_status status;
    OCT_TRY_OUT(oct_alloc(&p.values, count, sizeof *p.values));
    OCT_TRY_OUT(oct_alloc(&p.params, count, sizeof *p.params));
    OCT_TRY_OUT(oct_alloc(&p.fresh, count, sizeof *p.fresh));
    write_program(&p);
    OCT_TRY_OUT(oct_to_onnx_status(w));
    status = oct_export_losses_say(OCT_TO_ONNX_LOSSES, p.losses, oct_to_onnx_loss_words, notices);
out:
    oct_free(&p.values);
    oct_free(&p.params);
    oct_free(&p.fresh);
    return status;
}
