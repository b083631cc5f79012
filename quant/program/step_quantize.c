/* The steps quantize and dequantize: float values become codes, and codes float values. */
#include "quant/program/step.h"

#include "quant/rounding/qparams.h"

static oct_status check_quantize(const oct_program *program, const oct_step *step)
{
    OCT_CHECK(!step->quantize.quotient || oct_step_output(program, step)->dtype == OCT_U8, OCT_DATA,
              "it divides by the scale of 16-bit codes, which only 8-bit ones are made by");
    return oct_check_same_shape(program, step, 0);
}

void oct_step_quantize_values(const oct_step *step, oct_qparams q, const float *x, int64_t n,
                              void *codes, uint8_t *mask, float *range)
{
    if (step->quantize.quotient)
        oct_quantize_quotient(x, n, q, codes, mask, range);
    else if (oct_codes_dtype(q) == OCT_U8)
        oct_quantize_codes(x, n, q, codes, mask, range);
    else
        oct_quantize16(x, n, q, codes, mask, range);
}

static void run_quantize(const oct_step_run *r)
{
    const oct_value *y = oct_step_output(r->program, r->step);
    oct_step_quantize_values(r->step, y->q, r->input[0], r->samples * oct_value_numel(y), r->output,
                             r->mask, r->range);
}

static const oct_field fields[] = {OCT_FIELD(quantize, quotient, 0, 1)};

const oct_step_type oct_step_quantize = {.name = "quantize",
                                         .inputs = {1, 1},
                                         .float_in = true,
                                         OCT_STEP_FIELDS(fields),
                                         .check = check_quantize,
                                         .run = run_quantize};

static oct_status check_dequantize(const oct_program *program, const oct_step *step)
{
    return oct_check_same_shape(program, step, 0);
}

static void run_dequantize(const oct_step_run *r)
{
    const oct_value *x = oct_step_input(r->program, r->step, 0);
    const int64_t n = r->samples * oct_value_numel(x);
    if (x->dtype == OCT_U8)
        oct_dequantize(r->input[0], n, x->q, r->output);
    else
        oct_dequantize16(r->input[0], n, x->q, r->output);
}

const oct_step_type oct_step_dequantize = {.name = "dequantize",
                                           .inputs = {1, 1},
                                           .float_out = true,
                                           .check = check_dequantize,
                                           .run = run_dequantize};
