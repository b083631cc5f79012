/* How a prepared module writes itself into an integer program: its type's emit function is called
 * with an emitter at its call site. */
#pragma once

#include "core/autograd/call.h"
#include "quant/program/program.h"

typedef struct oct_emitter oct_emitter;

/* The arguments of the op or module at the call site. */
const oct_op_args *oct_emit_args(const oct_emitter *e);
/* The program as far as it is made. */
const oct_program *oct_emit_program(const oct_emitter *e);
/* Valid until the next oct_emit_output. */
const oct_value *oct_emit_input(const oct_emitter *e, int i);
/* Adds a zeroed step with name, kind and inputs filled in; valid until the next one. */
oct_status oct_emit_step(oct_emitter *e, oct_step_kind kind, oct_step **step) OCT_NODISCARD;
/* Makes the step's output, shaped as the traced output; q of codes. */
oct_status oct_emit_output(oct_emitter *e, oct_step *step, oct_dtype dtype,
                           oct_qparams q) OCT_NODISCARD;
/* Makes the output input 0 itself, by a step only where it has another shape. */
oct_status oct_emit_reshape(oct_emitter *e) OCT_NODISCARD;
