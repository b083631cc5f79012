/* The emitter: steps and values of a program, one call site after another. */
#include "quant/module/emit.h"

#include "core/base/mem.h"

#include <stdio.h>
#include <string.h>

const oct_value *oct_emit_input(const oct_emitter *e, int i)
{
    return &e->program->values[e->value_of[e->node->input[i]]];
}

oct_status oct_emitter_add_value(oct_emitter *e, int64_t traced, oct_dtype dtype, oct_qparams q,
                                 int32_t *number)
{
    oct_program *program = e->program;
    const size_t count = (size_t)program->num_values;
    OCT_TRY(oct_grow(&program->values, &e->cap_values, count + 1, sizeof *program->values));
    program->values[count] = (oct_value){.dtype = dtype, .q = q};
    oct_value_set_plane(&program->values[count], &e->trace->values[traced].shape);
    program->num_values++;
    *number = (int32_t)count;
    e->value_of[traced] = *number;
    return OCT_OK;
}

oct_status oct_emit_step(oct_emitter *e, oct_step_kind kind, oct_step **step)
{
    oct_program *program = e->program;
    const oct_trace_node *node = e->node;
    const size_t count = (size_t)program->num_steps;
    OCT_TRY(oct_grow(&program->steps, &e->cap_steps, count + 1, sizeof *program->steps));
    oct_step *made = &program->steps[count];
    memset(made, 0, sizeof *made);
    program->num_steps++;
    made->kind = kind;
    /* "layer1.0.conv1"; a functional op is named after its caller: "layer1.0.add". */
    snprintf(made->name, sizeof made->name, "%s%s%s", node->path,
             node->path[0] && !node->module ? "." : "", node->module ? "" : node->op);
    made->num_inputs = node->num_inputs;
    for (int i = 0; i < node->num_inputs; i++)
        made->input[i] = e->value_of[node->input[i]];
    *step = made;
    return OCT_OK;
}

oct_status oct_emit_output(oct_emitter *e, oct_step *step, oct_dtype dtype, oct_qparams q)
{
    return oct_emitter_add_value(e, e->node->output, dtype, q, &step->output);
}

oct_status oct_emit_reshape(oct_emitter *e)
{
    const oct_value in = *oct_emit_input(e, 0);
    oct_value out;
    oct_step *step;
    oct_value_set_plane(&out, &e->trace->values[e->node->output].shape);
    if (out.h == in.h && out.w == in.w && out.c == in.c) {
        e->value_of[e->node->output] = e->value_of[e->node->input[0]];
        return OCT_OK;
    }
    OCT_TRY(oct_emit_step(e, OCT_STEP_RESHAPE, &step));
    step->num_inputs = 1;
    return oct_emit_output(e, step, in.dtype, in.q);
}
