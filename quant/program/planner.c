/* The memory plan is a first fit over intervals. A value lives from the step that makes it to its last use; in order of
 * creation each takes the lowest offset where it overlaps no value that lives at the same time. */
#include "quant/program/planner.h"

#include "core/base/mem.h"
#include "quant/program/step.h"

enum { UNIT = 64 };

void oct_find_last_uses(const oct_program *program, int64_t *last)
{
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = &program->steps[i];
        for (int k = 0; k < step->num_inputs; k++)
            last[step->input[k]] = i;
        last[step->output] = i;
    }
}

/* Moves after each obstacle until none is left; obstacles only push upwards, so this ends, at the lowest
 * offset that is free, whatever their order. */
int64_t oct_lowest_fit(const oct_interval *placed, int64_t count, const oct_interval *x)
{
    int64_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int64_t i = 0; i < count; i++) {
            const oct_interval *p = &placed[i];
            const bool together = p->first <= x->last && x->first <= p->last;
            if (together && p->offset < offset + x->bytes && offset < p->offset + p->bytes) {
                offset = p->offset + p->bytes;
                moved = true;
            }
        }
    }
    return offset;
}

oct_status oct_plan_values(const oct_program *program, int64_t *offsets, int64_t *bytes)
{
    oct_interval *placed = NULL;
    int64_t *last = NULL;
    oct_status status = OCT_OK;
    OCT_TRY_OUT(oct_alloc(&placed, (size_t)program->num_steps, sizeof *placed));
    OCT_TRY_OUT(oct_alloc(&last, (size_t)program->num_values, sizeof *last));
    oct_find_last_uses(program, last);
    for (int64_t v = 0; v < program->num_values; v++)
        offsets[v] = -1;
    int64_t count = 0;
    *bytes = 0;
    for (int64_t i = 0; i < program->num_steps; i++) {
        const int32_t value = program->steps[i].output;
        if (value == program->output) continue;
        const int64_t size = (int64_t)oct_value_bytes(&program->values[value]);
        oct_interval *x = &placed[count];
        *x = (oct_interval){
            .first = i, .last = last[value], .bytes = (size + UNIT - 1) / UNIT * UNIT};
        x->offset = oct_lowest_fit(placed, count, x);
        offsets[value] = x->offset;
        if (x->offset + x->bytes > *bytes) *bytes = x->offset + x->bytes;
        count++;
    }
out:
    oct_free(&placed);
    oct_free(&last);
    return status;
}
