/* What convert and the emitter that it hands to modules share. */
#pragma once

#include "core/graph/trace.h"
#include "quant/module/emit.h"

struct oct_emitter {
    oct_program *program; /* being made */
    size_t cap_steps, cap_values;
    const oct_trace *trace;
    int32_t *value_of;          /* program value of a trace value; -1 none yet */
    const oct_trace_node *node; /* the call site at hand */
};

/* Adds a value to the program for one of the trace. */
oct_status oct_emitter_add_value(oct_emitter *e, int64_t traced, oct_dtype dtype, oct_qparams q,
                                 int32_t *number) OCT_NODISCARD;
