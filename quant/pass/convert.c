/* Convert: the trace of the prepared model in eval mode, node by node, as steps of the integer
 * program. All constants come from the modules' own routines, so the program cannot differ from the
 * evaluation; oct_program_check proves the rest (shapes, overflow bounds).
 */
#include "quant/pass/convert.h"

#include "core/base/mem.h"

#include <stdio.h>
#include <string.h>

typedef struct builder {
    oct_program *program;
    const oct_trace *trace;
    int32_t *value_of; /* program value of a trace value; -1 none yet */
    size_t cap_steps, cap_values;
    oct_text *islands;
} builder;

static oct_status note_island(builder *b, const oct_trace_node *node)
{
    if (b->islands) OCT_TRY(oct_text_add(b->islands, "%s\n", node->path));
    return oct_fail_add(
        OCT_PREPARE,
        "%s: %s stays float and cannot be part of the integer program; quantize it or "
        "move it out of the model",
        node->path[0] ? node->path : "the model", node->op);
}

static oct_status new_value(builder *b, int64_t traced, oct_dtype dtype, oct_qparams q,
                            int32_t *number)
{
    const oct_shape *shape = &b->trace->values[traced].shape; /* batch of 1 */
    oct_value value = {.dtype = dtype, .h = 1, .w = 1, .c = shape->dim[shape->ndim - 1], .q = q};
    if (shape->ndim == 4) {
        value.h = shape->dim[1];
        value.w = shape->dim[2];
    }
    size_t count = (size_t)b->program->num_values;
    OCT_TRY(oct_grow(&b->program->values, &b->cap_values, count + 1, sizeof value));
    b->program->values[count] = value;
    b->program->num_values++;
    *number = (int32_t)count;
    b->value_of[traced] = *number;
    return OCT_OK;
}

static oct_status new_step(builder *b, oct_step_kind kind, const oct_trace_node *node,
                           oct_step **step)
{
    size_t count = (size_t)b->program->num_steps;
    OCT_TRY(oct_grow(&b->program->steps, &b->cap_steps, count + 1, sizeof **step));
    *step = &b->program->steps[count];
    memset(*step, 0, sizeof **step);
    (*step)->kind = kind;
    snprintf((*step)->name, sizeof(*step)->name, "%s", node->path);
    for (int i = 0; i < 2; i++)
        (*step)->input[i] = i < node->num_inputs ? b->value_of[node->input[i]] : -1;
    b->program->num_steps++;
    return OCT_OK;
}

static const oct_value *input_value(const builder *b, const oct_trace_node *node, int i)
{
    return &b->program->values[b->value_of[node->input[i]]];
}

static oct_status emit_stub(builder *b, const oct_trace_node *node)
{
    const oct_quant_stub *stub = (const oct_quant_stub *)node->module;
    oct_step *step;
    OCT_TRY(new_step(b, OCT_STEP_QUANTIZE, node, &step));
    return new_value(b, node->output, OCT_U8,
                     oct_fake_quant_qparams((const oct_fake_quant *)stub->fake_quant),
                     &step->output);
}

static oct_status emit_conv(builder *b, const oct_trace_node *node)
{
    oct_qat_conv *conv = (oct_qat_conv *)node->module;
    oct_step *step;
    OCT_TRY(new_step(b, OCT_STEP_CONV, node, &step));
    const oct_value *in = input_value(b, node, 0);
    bool linear = conv->layer->type == &oct_linear_type;
    OCT_TRY(oct_qat_conv_emit(conv, in->q, linear ? 1 : in->h, linear ? 1 : in->w, step));
    const oct_fake_quant *fq = (const oct_fake_quant *)conv->fake_quant;
    return new_value(b, node->output, fq ? OCT_U8 : OCT_F32,
                     fq ? oct_fake_quant_qparams(fq) : (oct_qparams){0}, &step->output);
}

static oct_status emit_add(builder *b, const oct_trace_node *node)
{
    const oct_qat_add *add = (const oct_qat_add *)node->module;
    oct_qparams q = oct_fake_quant_qparams((const oct_fake_quant *)add->fake_quant);
    oct_step *step;
    OCT_TRY(new_step(b, OCT_STEP_ADD, node, &step));
    step->add = oct_qadd_of(input_value(b, node, 0)->q, input_value(b, node, 1)->q, q, add->relu);
    return new_value(b, node->output, OCT_U8, q, &step->output);
}

static oct_status emit_pool(builder *b, const oct_trace_node *node, oct_step_kind kind, int kernel,
                            int stride, int padding)
{
    oct_step *step;
    OCT_TRY(new_step(b, kind, node, &step));
    oct_value in = *input_value(b, node, 0);
    OCT_TRY(new_value(b, node->output, OCT_U8, in.q, &step->output));
    const oct_value *out = &b->program->values[step->output];
    step->conv = (oct_conv_shape){.in_h = in.h,
                                  .in_w = in.w,
                                  .in_c = in.c,
                                  .out_h = out->h,
                                  .out_w = out->w,
                                  .out_c = out->c,
                                  .kernel_h = kernel ? kernel : (int)in.h,
                                  .kernel_w = kernel ? kernel : (int)in.w,
                                  .stride = stride,
                                  .padding = padding,
                                  .groups = 1};
    return OCT_OK;
}

static oct_status emit_dequant(builder *b, const oct_trace_node *node)
{
    if (input_value(b, node, 0)->dtype == OCT_F32) { /* the layer before hands over float */
        b->value_of[node->output] = b->value_of[node->input[0]];
        return OCT_OK;
    }
    oct_step *step;
    OCT_TRY(new_step(b, OCT_STEP_DEQUANTIZE, node, &step));
    return new_value(b, node->output, OCT_F32, (oct_qparams){0}, &step->output);
}

static oct_status emit(builder *b, const oct_trace_node *node)
{
    const oct_module_type *type = node->module ? node->module->type : NULL;
    if (type == &oct_quant_stub_type && ((const oct_quant_stub *)node->module)->fake_quant)
        return emit_stub(b, node);
    if (type == &oct_dequant_stub_type) return emit_dequant(b, node);
    if (type == &oct_identity_type) { /* on float too: a batch norm fused into the last layer */
        b->value_of[node->output] = b->value_of[node->input[0]];
        return OCT_OK;
    }
    if (b->value_of[node->input[0]] < 0 || input_value(b, node, 0)->dtype != OCT_U8)
        return note_island(b, node);
    if (type == &oct_qat_conv_type) return emit_conv(b, node);
    if (type == &oct_qat_add_type) return emit_add(b, node);
    if (type == &oct_max_pool_type) {
        const oct_pool_module *m = (const oct_pool_module *)node->module;
        return emit_pool(b, node, OCT_STEP_MAX_POOL, m->kernel, m->stride, m->padding);
    }
    if (type == &oct_qat_avg_pool_type) {
        const oct_qat_avg_pool *m = (const oct_qat_avg_pool *)node->module;
        return emit_pool(b, node, OCT_STEP_AVG_POOL, m->kernel, m->kernel ? m->stride : 1, 0);
    }
    if (type == &oct_flatten_type || strcmp(node->op, "flatten") == 0) {
        b->value_of[node->output] =
            b->value_of[node->input[0]]; /* the same codes in the same order */
        return OCT_OK;
    }
    return note_island(b, node);
}

static oct_status check_frozen(oct_module *root)
{
    oct_quantizers all = {0};
    OCT_TRY(oct_quantizers_collect(&all, root));
    oct_status status = OCT_OK;
    if (all.count == 0)
        status = oct_fail(OCT_PREPARE, "the model is not prepared: train its QAT phase first");
    for (size_t i = 0; i < all.count && status == OCT_OK; i++)
        if (all.items[i]->state != OCT_QUANT_FROZEN)
            status =
                oct_fail(OCT_PREPARE,
                         "activation scales still move; convert a checkpoint of the phase in which "
                         "scales are frozen (the end of the run)");
    oct_quantizers_free(&all);
    return status;
}

oct_status oct_convert(oct_program *program, oct_module *root, oct_shape input, oct_text *islands)
{
    oct_status status = OCT_OK;
    oct_trace trace = {0};
    builder b = {.program = program, .trace = &trace, .islands = islands};
    *program = (oct_program){0};
    OCT_TRY(check_frozen(root));
    OCT_TRY_OUT(oct_trace_run(&trace, root, input));
    OCT_TRY_OUT(oct_alloc(&b.value_of, trace.num_values, sizeof(int32_t)));
    for (size_t i = 0; i < trace.num_values; i++)
        b.value_of[i] = -1;
    OCT_TRY_OUT(new_value(&b, trace.input, OCT_F32, (oct_qparams){0}, &program->input));
    oct_fail_clear();
    for (size_t i = 0; i < trace.num_nodes && status == OCT_OK; i++)
        status = emit(&b, &trace.nodes[i]);
    if (status != OCT_OK) goto out;
    program->output = b.value_of[trace.output];
    OCT_TRY_OUT(oct_program_check(program));
out:
    oct_free(&b.value_of);
    oct_trace_free(&trace);
    if (status != OCT_OK) oct_program_free(program);
    return status;
}
