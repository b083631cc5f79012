/* The writer of the C form counts what it would write. */
#include "io/export/c_size.h"

#include "core/base/mem.h"
#include "io/export/c_form.h"
#include "quant/program/planner.h"

oct_status oct_c_constant_bytes(const oct_program *program, int64_t *bytes)
{
    oct_to_c w = {.program = program, .counts = true};
    oct_status status;
    OCT_TRY_OUT(oct_alloc(&w.offsets, (size_t)program->num_values, sizeof *w.offsets));
    OCT_TRY_OUT(oct_plan_values(program, w.offsets, &w.scratch_bytes));
    for (int64_t i = 0; i < program->num_steps; i++) {
        oct_to_c_write *write = oct_to_c_writer_of(&program->steps[i]);
        const int64_t before = w.constant_bytes;
        if (write) oct_to_c_write_by(write, &w, i);
        bytes[i] = write ? w.constant_bytes - before : -1;
    }
    status = w.status;
out:
    oct_text_free(&w.kernels);
    oct_text_free(&w.written);
    oct_text_free(&w.constants);
    oct_text_free(&w.calls);
    oct_free(&w.offsets);
    return status;
}
