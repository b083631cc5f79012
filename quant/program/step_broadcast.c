/* Steps that compute element by element from two inputs, where one may be broadcast. */
#include "core/base/int_math.h"
#include "quant/rounding/bits.h"
#include "quant/program/step.h"

static bool broadcast_inputs(const oct_program *program, const oct_step *step, oct_broadcast *b)
{
    const oct_shape x = oct_value_shape(oct_step_input(program, step, 0), 4),
                    y = oct_value_shape(oct_step_input(program, step, 1), 4);
    return oct_broadcast_of(&x, &y, b);
}

oct_status oct_check_broadcast(const oct_program *program, const oct_step *step)
{
    oct_broadcast b;
    if (broadcast_inputs(program, step, &b))
        return oct_check_same_shape(program, step, oct_broadcast_larger(&b));
    OCT_TRY(oct_check_same_shape(program, step, 0));
    return oct_check_same_shape(program, step, 1);
}

void oct_step_broadcast(const oct_step_run *r, oct_broadcast_fn *compute)
{
    uint16_t expanded[2][OCT_FLAG_BLOCK];
    oct_broadcast b = {0};
    const oct_value *y = oct_step_output(r->program, r->step);
    const int64_t numel = r->samples * oct_value_numel(y);
    (void)broadcast_inputs(r->program, r->step, &b);
    if (oct_broadcast_is_plain(&b)) {
        compute(r, numel, oct_step_codes(r, 0), oct_step_codes(r, 1),
                &(oct_qoutput){y->q, r->output, r->mask, r->range});
        return;
    }
    for (int64_t i = 0; i < numel; i += OCT_FLAG_BLOCK) {
        const int64_t n = oct_min_i64(numel - i, OCT_FLAG_BLOCK);
        compute(r, n, oct_qcodes_broadcast(&b, 0, oct_step_codes(r, 0), i, n, expanded[0]),
                oct_qcodes_broadcast(&b, 1, oct_step_codes(r, 1), i, n, expanded[1]),
                &(oct_qoutput){y->q, oct_qcodes_place(r->output, y->q, i),
                               r->mask ? r->mask + i / 8 : NULL, r->range});
    }
}
