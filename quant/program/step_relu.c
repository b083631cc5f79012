/* The step relu clamps codes to bounds: relu and relu6 that were not fused, and clip. */
#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "quant/program/step.h"
#include "quant/rounding/bits.h"

OCT_CLONES
static void clamp_block(int64_t n, int32_t lo, int32_t hi, int32_t *logical)
{
    for (int64_t i = 0; i < n; i++) {
        const int32_t above = logical[i] < lo ? lo : logical[i];
        logical[i] = above > hi ? hi : above;
    }
}

void oct_qclamp_forward(int64_t n, oct_qcodes x, int32_t lo, int32_t hi, void *codes)
{
    int32_t logical[OCT_FLAG_BLOCK];
    for (int64_t i = 0; i < n; i += OCT_FLAG_BLOCK) {
        const int64_t count = oct_min_i64(n - i, OCT_FLAG_BLOCK);
        oct_qcodes_load(x, i, count, logical);
        clamp_block(count, lo, hi, logical);
        oct_qcodes_store(logical, count, x.q, codes, i);
    }
}

static oct_status check_relu(const oct_program *program, const oct_step *step)
{
    OCT_TRY(oct_check_same_shape(program, step, 0));
    OCT_TRY(oct_check_same_qparams(program, step));
    return oct_check_bounds(program, step, step->relu.lo, step->relu.hi);
}

static void run_relu(const oct_step_run *r)
{
    const oct_value *y = oct_step_output(r->program, r->step);
    oct_qclamp_forward(r->samples * oct_value_numel(y), oct_step_codes(r, 0), r->step->relu.lo,
                       r->step->relu.hi, r->output);
}

static const oct_field fields[] = {OCT_BOUND_FIELDS(relu)};

const oct_step_type oct_step_relu = {.name = "relu",
                                     .inputs = {1, 1},
                                     OCT_STEP_FIELDS(fields),
                                     .check = check_relu,
                                     .run = run_relu};
