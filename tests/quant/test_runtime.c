/* The runtime against the reference kernels called step by step, and against itself in other batches
 * and thread counts. */
#include "quant/runtime/program.h"

#include "quant/qparams.h"
#include "quant/runtime/planner.h"
#include "tests/quant/program_maker.h"
#include "tests/quant/quant_random.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

enum { SAMPLES = 37, INPUT = 9 * 8 * 3, CLASSES = 10 };

static float input[SAMPLES * INPUT];

static void fill_input(void)
{
    dice d = {.seed = 61};
    for (int i = 0; i < SAMPLES * INPUT; i++)
        input[i] = 6.0f * oct_uniform(roll(&d)) - 3.0f;
}

/* All values of all samples by the reference kernel, one layer after another. */
static void by_reference(const oct_program *p, int64_t samples, uint8_t *values[8])
{
    for (int v = 0; v < 8; v++)
        cr_assert_eq(oct_alloc(&values[v], (size_t)samples, oct_value_bytes(&p->values[v])),
                     OCT_OK);
    memcpy(values[0], input, (size_t)samples * oct_value_bytes(&p->values[0]));
    for (int64_t i = 0; i < p->num_steps; i++) {
        const oct_step *step = &p->steps[i];
        const oct_conv_shape *s = &step->conv;
        const oct_value *made = &p->values[step->output];
        const int64_t n = samples * made->h * made->w * made->c;
        const uint8_t *x = values[step->input[0]];
        uint8_t *y = values[step->output];
        const oct_qparams xq = p->values[step->input[0]].q;
        if (step->kind == OCT_STEP_QUANTIZE)
            oct_quantize((const float *)(const void *)x, n, made->q, y, NULL, NULL, NULL);
        if (step->kind == OCT_STEP_ADD)
            oct_qadd_forward(n, x, values[step->input[1]], &step->add, y, NULL, NULL);
        if (step->kind == OCT_STEP_MAX_POOL)
            oct_qmax_pool(samples, s->in_h, s->in_w, s->in_c, s->kernel_h, s->stride, s->padding, x,
                          y);
        if (step->kind == OCT_STEP_AVG_POOL)
            oct_qavg_pool(samples, s->in_h, s->in_w, s->in_c, s->kernel_h, s->kernel_w, s->stride,
                          made->q, x, y);
        if (step->kind == OCT_STEP_DEQUANTIZE) oct_dequantize(x, n, xq, (float *)(void *)y);
        if (step->kind != OCT_STEP_CONV && step->kind != OCT_STEP_CONV_FLOAT) continue;
        const oct_kernel *ref = &oct_kernel_ref;
        int8_t *packed = NULL;
        int32_t *acc = NULL;
        void *scratch = NULL;
        cr_assert_eq(oct_alloc(&packed, (size_t)oct_qconv_packed_bytes(ref, s), 1), OCT_OK);
        cr_assert_eq(oct_alloc(&scratch, (size_t)oct_qconv_scratch_bytes(ref, s), 1), OCT_OK);
        cr_assert_eq(oct_alloc(&acc, (size_t)n, sizeof *acc), OCT_OK);
        oct_qconv_pack(ref, s, step->weight, packed);
        oct_qconv_accumulate(ref, s, samples, x, (uint8_t)xq.zero_point, packed, acc, scratch);
        const oct_requant q = {step->bias, step->multiplier, step->lo, step->hi, made->q.zero_point,
                               false,      INFINITY};
        if (step->kind == OCT_STEP_CONV)
            ref->requantize(n / made->c, made->c, acc, &q, y, NULL, NULL);
        else
            oct_requant_float(n / made->c, made->c, acc, step->bias, step->multiplier,
                              (float *)(void *)y);
        oct_free(&packed);
        oct_free(&scratch);
        oct_free(&acc);
    }
}

static void free_values(uint8_t *values[8])
{
    for (int v = 0; v < 8; v++)
        oct_free(&values[v]);
}

Test(runtime, gives_the_results_of_the_reference_for_every_batch)
{
    oct_program p;
    uint8_t *values[8];
    fill_input();
    program_of_every_kind(&p);
    by_reference(&p, SAMPLES, values);
    const float *expected = (const float *)(const void *)values[p.output];
    cr_assert(expected[0] != expected[CLASSES], "samples differ");
    for (int64_t max_batch = 1; max_batch <= SAMPLES; max_batch += 12) {
        oct_runtime *rt;
        cr_assert_eq(oct_runtime_create(&rt, &p, max_batch), OCT_OK);
        for (int64_t batch = 1; batch <= max_batch; batch += 5) {
            float output[SAMPLES * CLASSES];
            memset(output, 0x5a, sizeof output);
            for (int64_t n = 0; n < SAMPLES; n += batch) {
                const int64_t count = SAMPLES - n < batch ? SAMPLES - n : batch;
                oct_runtime_run(rt, count, input + n * INPUT, output + n * CLASSES);
            }
            cr_assert_arr_eq(output, expected, sizeof output);
        }
        oct_runtime_run(rt, 0, NULL, NULL);
        oct_runtime_destroy(&rt);
        cr_assert_null(rt);
    }
    free_values(values);
    oct_program_free(&p);
    cr_assert_eq(oct_mem_live(), 0);
}

Test(runtime, does_not_depend_on_threads)
{
    oct_program p;
    float alone[SAMPLES * CLASSES], together[SAMPLES * CLASSES];
    fill_input();
    program_of_every_kind(&p);
    for (int threads = 1; threads <= 5; threads++) {
        oct_runtime *rt;
        omp_set_num_threads(threads);
        cr_assert_eq(oct_runtime_create(&rt, &p, SAMPLES), OCT_OK);
        oct_runtime_run(rt, SAMPLES, input, threads == 1 ? alone : together);
        if (threads > 1) cr_assert_arr_eq(together, alone, sizeof alone);
        oct_runtime_run(rt, 2, input, together); /* fewer samples than threads */
        cr_assert_arr_eq(together, alone, 2 * CLASSES * sizeof *alone);
        oct_runtime_destroy(&rt);
    }
    oct_program_free(&p);
}

typedef struct witness {
    uint8_t **values;
    const oct_program *program;
    int64_t samples;
    int seen;
} witness;

static void compare_value(void *user, int64_t value, const oct_step *step, const void *data,
                          size_t bytes)
{
    witness *w = user;
    cr_assert_eq(step, &w->program->steps[w->seen], "steps are shown in order");
    cr_assert_eq(value, step->output);
    cr_assert_eq(bytes, oct_value_bytes(&w->program->values[value]) * (size_t)w->samples);
    cr_assert_arr_eq(data, w->values[value], bytes, "value %lld of %s", (long long)value,
                     step->name);
    w->seen++;
}

Test(runtime_watch, shows_every_value_of_all_samples)
{
    oct_program p;
    uint8_t *values[8];
    oct_runtime *rt;
    float output[SAMPLES * CLASSES];
    fill_input();
    program_of_every_kind(&p);
    by_reference(&p, SAMPLES, values);
    cr_assert_eq(oct_runtime_create(&rt, &p, SAMPLES), OCT_OK);
    witness w = {.values = values, .program = &p, .samples = SAMPLES};
    oct_runtime_watch(rt, SAMPLES, input, output, compare_value, &w);
    cr_assert_eq(w.seen, p.num_steps);
    cr_assert_arr_eq(output, values[p.output], sizeof output);
    memset(output, 0, sizeof output);
    oct_runtime_watch(rt, SAMPLES, input, output, NULL, NULL);
    cr_assert_arr_eq(output, values[p.output], sizeof output);
    oct_runtime_destroy(&rt);
    free_values(values);
    oct_program_free(&p);
}

Test(runtime, does_not_allocate_while_running)
{
    oct_program p;
    oct_runtime *rt;
    float output[SAMPLES * CLASSES];
    fill_input();
    program_of_every_kind(&p);
    cr_assert_eq(oct_runtime_create(&rt, &p, SAMPLES), OCT_OK);
    const size_t live = oct_mem_live();
    oct_mem_peak_reset();
    oct_runtime_run(rt, SAMPLES, input, output);
    cr_assert_eq(oct_mem_peak(), live);
    cr_assert_leq(oct_runtime_bytes(rt), live);
    cr_assert_gt(oct_runtime_bytes(rt), 9 * 8 * 7 * SAMPLES);
    oct_runtime_destroy(&rt);
    oct_program_free(&p);
}

Test(runtime_create, reports_every_failed_allocation_and_leaves_nothing)
{
    oct_program p;
    program_of_every_kind(&p);
    const size_t before = oct_mem_live();
    oct_status status = OCT_RESOURCE;
    int64_t n = 1;
    for (; status != OCT_OK; n++) {
        oct_runtime *rt;
        oct_mem_fail_after(n);
        status = oct_runtime_create(&rt, &p, 4);
        oct_mem_fail_after(0);
        cr_assert(status == OCT_OK || (status == OCT_RESOURCE && rt == NULL));
        oct_runtime_destroy(&rt);
        cr_assert_eq(oct_mem_live(), before);
    }
    cr_assert_gt(n, 6);
    oct_program_free(&p);
}

Test(runtime_create, refuses_broken_programs_and_impossible_batches)
{
    oct_program p;
    oct_runtime *rt;
    program_of_every_kind(&p);
    cr_assert_eq(oct_runtime_create(&rt, &p, 0), OCT_USAGE);
    cr_assert_str_eq(oct_fail_text(0), "a runtime for 0 samples cannot be made");
    cr_assert_eq(oct_runtime_create(&rt, &p, INT64_MAX / 2), OCT_RESOURCE);
    cr_assert_not_null(strstr(oct_fail_text(0), "use a smaller batch"));
    p.steps[1].lo = -1;
    cr_assert_eq(oct_runtime_create(&rt, &p, 1), OCT_DATA);
    cr_assert_null(rt);
    oct_program_free(&p);
}

/* Quantize, a linear layer on the flattened plane with an odd width, dequantize. */
Test(runtime, flattens_planes_and_dequantizes)
{
    oct_program p;
    oct_runtime *rt;
    program_begin(&p);
    p.input = program_value(&p, OCT_F32, 3, 3, 3, 0.0f, 0);
    const int32_t x = program_value(&p, OCT_U8, 3, 3, 3, 0.5f, 128);
    const int32_t y = program_value(&p, OCT_U8, 1, 1, 2, 0.25f, 128);
    p.output = program_value(&p, OCT_F32, 1, 1, 2, 0.0f, 0);
    program_step(&p, OCT_STEP_QUANTIZE, "quant", p.input, 0, x);
    oct_step *linear = program_step(&p, OCT_STEP_CONV, "fc", x, 0, y);
    program_weights(linear, program_shape(1, 1, 27, 2, 1, 1, 0, 1), -128, 127, 1);
    program_step(&p, OCT_STEP_DEQUANTIZE, "dequant", y, 0, p.output);
    for (int o = 0; o < 2; o++) {
        linear->multiplier[o] = 0.5f;
        linear->bias[o] = 0;
        for (int i = 0; i < 27; i++) {
            linear->weight[o * 27 + i] = (int8_t)(i == 13 + o);
            linear->bias[o] -= 128 * linear->weight[o * 27 + i];
        }
    }
    cr_assert_eq(oct_runtime_create(&rt, &p, 2), OCT_OK);
    float in[54] = {[13] = 2.0f, [14] = -3.5f, [27 + 13] = 100.0f, [27 + 14] = -0.5f}, out[4];
    oct_runtime_run(rt, 2, in, out);
    /* Codes 4, -7, 127 and -1 halved to even: 2, -4 (-3.5), 64 (63.5), 0 (-0.5). */
    cr_assert(out[0] == 0.5f && out[1] == -1.0f && out[2] == 16.0f && out[3] == 0.0f);
    oct_runtime_destroy(&rt);
    oct_program_free(&p);
}

Test(plan, shares_bytes_only_between_values_that_never_live_together)
{
    oct_program p;
    int64_t offsets[8], bytes, total = 0;
    program_of_every_kind(&p);
    cr_assert_eq(oct_plan_values(&p, offsets, &bytes), OCT_OK);
    cr_assert(offsets[p.input] == -1 && offsets[p.output] == -1);
    /* Lives, by hand: value v is made in step v - 1 and last used in the step given here. */
    const int last[8] = {0, 1, 3, 3, 4, 5, 6, 7};
    for (int a = 1; a < 7; a++) {
        const int64_t end_a = offsets[a] + (int64_t)oct_value_bytes(&p.values[a]);
        cr_assert(offsets[a] >= 0 && offsets[a] % 64 == 0 && end_a <= bytes);
        total += end_a - offsets[a];
        for (int b = a + 1; b < 7; b++) {
            const int64_t end_b = offsets[b] + (int64_t)oct_value_bytes(&p.values[b]);
            const bool together = b - 1 <= last[a];
            cr_assert(!together || end_a <= offsets[b] || end_b <= offsets[a], "values %d and %d",
                      a, b);
        }
    }
    cr_assert_lt(bytes, total, "something is shared");
    oct_program_free(&p);
}
