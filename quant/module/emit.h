/* How a prepared module writes itself into an integer program: its type's emit function is called
 * with an emitter at its call site. */
#pragma once

#include "core/graph/trace.h"
#include "quant/program/program.h"

/* Convert makes it and moves `node` on. */
typedef struct oct_emitter {
    oct_program *program; /* as far as it is made */
    size_t cap_steps, cap_values;
    const oct_trace *trace;
    int32_t *value_of;          /* program value of a trace value; -1 none yet */
    const oct_trace_node *node; /* the call site at hand, with its arguments */
} oct_emitter;

/* Valid until the next oct_emit_output. */
const oct_value *oct_emit_input(const oct_emitter *e, int i);
/* Adds a zeroed step with name, kind and inputs filled in; valid until the next one. */
oct_status oct_emit_step(oct_emitter *e, oct_step_kind kind, oct_step **step);
/* Makes the step's output, shaped as the traced output; q of codes. */
oct_status oct_emit_output(oct_emitter *e, oct_step *step, oct_dtype dtype, oct_qparams q);
/* Emits input 0 as the output: the same value, or, where it has another shape, by a reshape step. */
oct_status oct_emit_reshape(oct_emitter *e);
/* Adds a value to the program for one of the trace. */
oct_status oct_emitter_add_value(oct_emitter *e, int64_t traced, oct_dtype dtype, oct_qparams q,
                                 int32_t *number);
