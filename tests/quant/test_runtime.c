/* The runtime against the reference kernels called step by step, and against itself in other batches
 * and thread counts. */
#include "quant/program/program.h"

#include "quant/program/step.h"
#include "tests/quant/program_maker.h"
#include "tests/quant/quant_random.h"

#include <dlfcn.h>
#include <fenv.h>
#include <omp.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SAMPLES = 37, INPUT = 9 * 8 * 3, CLASSES = 10, IMAGE = 6 * 5 * 2, PROBABILITIES = 3 };

static float input[SAMPLES * INPUT];

static void run_samples(oct_runtime *rt, int64_t samples, const float *x, float *y)
{
    cr_assert_eq(oct_runtime_run(rt, samples, (const float *[]){x}, y), OCT_OK);
}

static void fill_input(void)
{
    dice d = {.seed = 61};
    for (int i = 0; i < SAMPLES * INPUT; i++)
        input[i] = 6.0f * oct_uniform(roll(&d)) - 3.0f;
}

/* All values of all samples by the reference kernel, one layer after another, each in memory of its
 * own. */
static void by_reference(const oct_program *p, int64_t samples, uint8_t **values)
{
    const oct_kernel *ref = &oct_kernel_ref;
    for (int64_t v = 0; v < p->num_values; v++)
        cr_assert_eq(oct_alloc(&values[v], (size_t)samples, oct_value_bytes(&p->values[v])),
                     OCT_OK);
    memcpy(values[0], input, (size_t)samples * oct_value_bytes(&p->values[0]));
    for (int64_t i = 0; i < p->num_steps; i++) {
        const oct_step *step = &p->steps[i];
        const oct_step_type *type = oct_step_type_of(step->kind);
        const int64_t packed_bytes = type->pack ? type->packed_bytes(p, step, ref, 1) : 0;
        const int64_t bytes = type->scratch_bytes ? type->scratch_bytes(p, step, ref, 1) : 0;
        const void *x[OCT_STEP_INPUTS];
        void *packed, *scratch;
        cr_assert_eq(oct_alloc(&packed, (size_t)packed_bytes, 1), OCT_OK);
        cr_assert_eq(oct_alloc(&scratch, (size_t)bytes, 1), OCT_OK);
        if (type->pack) type->pack(p, step, ref, 1, packed);
        for (int k = 0; k < step->num_inputs; k++)
            x[k] = values[step->input[k]];
        type->run(&(oct_step_run){.program = p,
                                  .step = step,
                                  .kernel = ref,
                                  .packed = packed,
                                  .samples = samples,
                                  .input = x,
                                  .output = values[step->output],
                                  .scratch = scratch});
        oct_free(&packed);
        oct_free(&scratch);
    }
}

static void free_values(const oct_program *p, uint8_t **values)
{
    for (int64_t v = 0; v < p->num_values; v++)
        oct_free(&values[v]);
}

Test(runtime, gives_the_results_of_the_reference_for_every_batch)
{
    oct_program p;
    uint8_t *values[8];
    fill_input();
    program_small(&p);
    by_reference(&p, SAMPLES, values);
    const float *expected = (const float *)(const void *)values[p.output];
    cr_assert(expected[0] != expected[CLASSES], "samples differ");
    for (int64_t max_batch = 1; max_batch <= SAMPLES; max_batch += 12) {
        oct_runtime *rt;
        cr_assert_eq(oct_runtime_create(&rt, &p, &(oct_runtime_options){.max_batch = max_batch}),
                     OCT_OK);
        for (int64_t batch = 1; batch <= max_batch; batch += 5) {
            float output[SAMPLES * CLASSES];
            memset(output, 0x5a, sizeof output);
            for (int64_t n = 0; n < SAMPLES; n += batch) {
                const int64_t count = SAMPLES - n < batch ? SAMPLES - n : batch;
                run_samples(rt, count, input + n * INPUT, output + n * CLASSES);
            }
            cr_assert_arr_eq(output, expected, sizeof output);
        }
        run_samples(rt, 0, NULL, NULL);
        oct_runtime_destroy(&rt);
        cr_assert_null(rt);
    }
    free_values(&p, values);
    oct_program_free(&p);
    cr_assert_eq(oct_mem_live(), 0);
}

Test(runtime, runs_every_other_kind_in_every_batch_and_on_any_threads)
{
    oct_program p;
    uint8_t *values[MAKER_STEPS + 1];
    float output[SAMPLES * PROBABILITIES];
    fill_input();
    program_of_other_kinds(&p);
    by_reference(&p, SAMPLES, values);
    for (int64_t v = 2; v < p.num_values; v++) { /* what is constant proves nothing */
        const uint8_t *code = values[v];
        const size_t bytes = oct_value_bytes(&p.values[v]);
        bool differs = false;
        for (size_t i = 1; i < bytes * SAMPLES; i++)
            differs |= code[i] != code[i % 2];
        cr_assert(differs, "value %lld", (long long)v);
    }
    for (int threads = 1; threads <= 4; threads++) {
        oct_runtime *rt;
        omp_set_num_threads(threads);
        cr_assert_eq(oct_runtime_create(&rt, &p, &(oct_runtime_options){.max_batch = SAMPLES}),
                     OCT_OK, "%s", oct_error_message(0));
        for (int64_t batch = 1; batch <= SAMPLES; batch += 9) {
            memset(output, 0x5a, sizeof output);
            for (int64_t n = 0; n < SAMPLES; n += batch)
                run_samples(rt, SAMPLES - n < batch ? SAMPLES - n : batch, input + n * IMAGE,
                            output + n * PROBABILITIES);
            cr_assert_arr_eq(output, values[p.output], sizeof output);
        }
        oct_runtime_destroy(&rt);
    }
    free_values(&p, values);
    oct_program_free(&p);
    cr_assert_eq(oct_mem_live(), 0);
}

Test(runtime, does_not_depend_on_threads)
{
    oct_program p;
    float alone[SAMPLES * CLASSES], together[SAMPLES * CLASSES];
    fill_input();
    program_small(&p);
    for (int threads = 1; threads <= 5; threads++) {
        oct_runtime *rt;
        omp_set_num_threads(threads);
        cr_assert_eq(oct_runtime_create(&rt, &p, &(oct_runtime_options){.max_batch = SAMPLES}),
                     OCT_OK);
        run_samples(rt, SAMPLES, input, threads == 1 ? alone : together);
        if (threads > 1) cr_assert_arr_eq(together, alone, sizeof alone);
        run_samples(rt, 2, input, together); /* fewer samples than threads */
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
    program_small(&p);
    by_reference(&p, SAMPLES, values);
    cr_assert_eq(oct_runtime_create(&rt, &p, &(oct_runtime_options){.max_batch = SAMPLES}), OCT_OK);
    witness w = {.values = values, .program = &p, .samples = SAMPLES};
    cr_assert_eq(
        oct_runtime_watch(rt, SAMPLES, (const float *[]){input}, output, compare_value, &w),
        OCT_OK);
    cr_assert_eq(w.seen, p.num_steps);
    cr_assert_arr_eq(output, values[p.output], sizeof output);
    memset(output, 0, sizeof output);
    cr_assert_eq(oct_runtime_watch(rt, SAMPLES, (const float *[]){input}, output, NULL, NULL),
                 OCT_OK);
    cr_assert_arr_eq(output, values[p.output], sizeof output);
    oct_runtime_destroy(&rt);
    free_values(&p, values);
    oct_program_free(&p);
}

/* How often GCC's OpenMP was entered, or asked for a number: these stand before those of its library. */
static int entered;

static void forward(const char *name, void *function)
{
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(function, &found, sizeof found);
    entered++;
}

void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags);
void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags)
{
    void (*function)(void (*)(void *), void *, unsigned, unsigned);
    forward("GOMP_parallel", &function);
    function(body, data, threads, flags);
}

int omp_get_max_threads(void)
{
    int (*function)(void);
    forward("omp_get_max_threads", &function);
    return function();
}

/* Runs the program in a new runtime, as a child process that has 20 seconds. */
static void run_in_child(const oct_program *p, oct_runtime *of_parent, const float *expected)
{
    int status;
    const pid_t child = fork();
    if (child == 0) {
        static float output[SAMPLES * PROBABILITIES];
        oct_runtime *rt = of_parent;
        alarm(20);
        bool same = true;
        for (int i = 0; i < 2; i++) {
            same &= oct_runtime_run(rt, SAMPLES, (const float *[]){input}, output) == OCT_OK &&
                    memcmp(output, expected, sizeof output) == 0;
            same &=
                oct_runtime_create(
                    &rt, p, &(oct_runtime_options){.max_batch = SAMPLES, .threads = 3}) == OCT_OK;
        }
        _exit(same ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %d", status);
}

Test(runtime, is_a_guest_in_any_rounding_mode_without_openmp_and_after_a_fork)
{
    static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST};
    oct_program p;
    uint8_t *values[MAKER_STEPS + 1];
    float output[SAMPLES * PROBABILITIES];
    fill_input();
    program_of_other_kinds(&p);
    by_reference(&p, SAMPLES, values);
    const float *expected = (const float *)(const void *)values[p.output];
#pragma omp parallel num_threads(3) /* whose threads live on with what they have */
    fesetround(FE_UPWARD);
    for (int threads = 1; threads <= 3; threads += 2) {
        const oct_runtime_options options = {.max_batch = SAMPLES, .threads = threads};
        for (size_t i = 0; i < OCT_COUNT(modes); i++) {
            oct_runtime *rt;
            fesetround(modes[i]);
            entered = 0;
            cr_assert_eq(oct_runtime_create(&rt, &p, &options), OCT_OK);
            for (size_t k = 0; k < OCT_COUNT(modes); k++) {
                const int mode = modes[(i + k) % OCT_COUNT(modes)];
                fesetround(mode);
                memset(output, 0x5a, sizeof output);
                run_samples(rt, SAMPLES, input, output);
                cr_assert_eq(fegetround(), mode, "the caller's mode is put back");
                fesetround(FE_TONEAREST);
                cr_assert_arr_eq(output, expected, sizeof output, "%d threads, %zu, %zu", threads,
                                 i, k);
            }
#ifdef __GNUC__
            cr_assert_eq(entered, threads > 1 ? 4 : 0);
#endif
            run_in_child(&p, rt, expected);
            run_samples(rt, SAMPLES, input, output); /* and the parent again */
            cr_assert_arr_eq(output, expected, sizeof output);
            oct_runtime_destroy(&rt);
        }
    }
    free_values(&p, values);
    oct_program_free(&p);
}

/* A watch that runs the runtime that shows it values, as a second thread would. */
static void run_again(void *user, int64_t value, const oct_step *step, const void *data,
                      size_t bytes)
{
    static float output[SAMPLES * CLASSES];
    (void)value, (void)step, (void)data, (void)bytes;
    cr_assert_eq(oct_runtime_run(user, 1, (const float *[]){input}, output), OCT_USAGE);
    cr_assert_str_eq(oct_error_message(0), "this net is at work in another thread; make one for "
                                           "each with oct_net_clone");
}

Test(runtime, refuses_wrong_calls_with_a_sentence)
{
    oct_program p;
    oct_runtime *rt, *none;
    static float output[SAMPLES * CLASSES];
    const float *x[] = {input};
    fill_input();
    program_small(&p);
    cr_assert_eq(oct_runtime_create(&rt, &p, &(oct_runtime_options){.max_batch = 2}), OCT_OK);
    cr_assert_eq(oct_runtime_run(rt, 3, x, output), OCT_USAGE);
    cr_assert_str_eq(oct_error_message(0), "3 samples; a run of this net has 0 to 2");
    cr_assert_eq(oct_runtime_run(rt, -1, x, output), OCT_USAGE);
    cr_assert_eq(oct_runtime_run(NULL, 1, x, output), OCT_USAGE);
    cr_assert_eq(oct_runtime_run(rt, 1, NULL, output), OCT_USAGE);
    cr_assert_eq(oct_runtime_run(rt, 1, x, NULL), OCT_USAGE);
    cr_assert_eq(oct_runtime_run(rt, 1, (const float *[]){NULL}, output), OCT_USAGE);
    cr_assert_eq(oct_runtime_watch(rt, 1, x, output, run_again, rt), OCT_OK);
    run_samples(rt, 2, input, output);
    cr_assert_eq(oct_runtime_create(&none, NULL, NULL), OCT_USAGE);
    cr_assert_null(none);
    cr_assert_eq(oct_runtime_create(&none, &p, &(oct_runtime_options){.threads = 1 << 20}),
                 OCT_USAGE);
    cr_assert_eq(oct_runtime_create(&none, &p, &(oct_runtime_options){.threads = -1}), OCT_USAGE);
    oct_runtime_destroy(NULL);
    for (int i = 0; i < 2; i++)
        oct_runtime_destroy(&rt);
    oct_program_free(&p);
}

Test(runtime, does_not_allocate_while_running)
{
    oct_program p;
    oct_runtime *rt;
    float output[SAMPLES * CLASSES];
    fill_input();
    program_small(&p);
    cr_assert_eq(oct_runtime_create(&rt, &p, &(oct_runtime_options){.max_batch = SAMPLES}), OCT_OK);
    const size_t live = oct_mem_live();
    oct_mem_peak_reset();
    run_samples(rt, SAMPLES, input, output);
    cr_assert_eq(oct_mem_peak(), live);
    cr_assert_gt(live, 9 * 8 * 7 * SAMPLES);
    oct_runtime_destroy(&rt);
    oct_program_free(&p);
}

Test(runtime_create, reports_every_failed_allocation_and_leaves_nothing)
{
    oct_program p;
    program_small(&p);
    const size_t before = oct_mem_live();
    oct_status status = OCT_RESOURCE;
    int64_t n = 1;
    for (; status != OCT_OK; n++) {
        oct_runtime *rt;
        oct_mem_fail_after(n);
        status = oct_runtime_create(&rt, &p, &(oct_runtime_options){.max_batch = 4});
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
    program_small(&p);
    cr_assert_eq(oct_runtime_create(&rt, &p, &(oct_runtime_options){.max_batch = -1}), OCT_USAGE);
    cr_assert_str_eq(
        oct_error_message(0),
        "the option max_batch is -1; give 1 or more samples, or 0, which stands for 1");
    cr_assert_eq(oct_runtime_create(&rt, &p, &(oct_runtime_options){.max_batch = INT64_MAX / 2}),
                 OCT_RESOURCE);
    cr_assert_not_null(strstr(oct_error_message(0), "use a smaller batch"));
    p.steps[1].conv.lo = -1;
    cr_assert_eq(oct_runtime_create(&rt, &p, NULL), OCT_DATA);
    cr_assert_null(rt);
    oct_program_free(&p);
}

/* Quantize, a linear layer on the flattened plane with an odd width, dequantize. */
Test(runtime, flattens_planes_and_dequantizes)
{
    oct_program p;
    oct_runtime *rt;
    program_begin(&p);
    const int32_t image = program_input(&p, 3, 3, 3);
    const int32_t x = program_value(&p, OCT_U8, 3, 3, 3, 0.5f, 128);
    const int32_t y = program_value(&p, OCT_U8, 1, 1, 2, 0.25f, 128);
    p.output = program_value(&p, OCT_F32, 1, 1, 2, 0.0f, 0);
    program_step(&p, OCT_STEP_QUANTIZE, "quant", image, NONE, x);
    oct_step *linear = program_step(&p, OCT_STEP_CONV, "fc", x, NONE, y);
    program_weights(linear, program_shape(1, 1, 27, 2, 1, 1, 0, 1), -128, 127, 1);
    program_step(&p, OCT_STEP_DEQUANTIZE, "dequant", y, NONE, p.output);
    for (int o = 0; o < 2; o++) {
        linear->conv.multiplier[o] = 0.5f;
        linear->conv.bias[o] = 0;
        for (int i = 0; i < 27; i++) {
            linear->conv.weight[o * 27 + i] = (int8_t)(i == 13 + o);
            linear->conv.bias[o] -= 128 * linear->conv.weight[o * 27 + i];
        }
    }
    cr_assert_eq(oct_runtime_create(&rt, &p, &(oct_runtime_options){.max_batch = 2}), OCT_OK);
    float in[54] = {[13] = 2.0f, [14] = -3.5f, [27 + 13] = 100.0f, [27 + 14] = -0.5f}, out[4];
    run_samples(rt, 2, in, out);
    /* Codes 4, -7, 127 and -1 halved to even: 2, -4 (-3.5), 64 (63.5), 0 (-0.5). */
    cr_assert(out[0] == 0.5f && out[1] == -1.0f && out[2] == 16.0f && out[3] == 0.0f);
    oct_runtime_destroy(&rt);
    oct_program_free(&p);
}

Test(plan, shares_bytes_only_between_values_that_never_live_together)
{
    oct_program p;
    int64_t offsets[8], bytes, total = 0;
    program_small(&p);
    cr_assert_eq(oct_plan_values(&p, offsets, &bytes), OCT_OK);
    cr_assert(offsets[p.inputs[0]] == -1 && offsets[p.output] == -1);
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

/* Two inputs and a float fallback, run by a host of the test's own. */

enum { PLANE = 4 * 5, OUT = PLANE * 3 };

typedef struct fake_fallback {
    int64_t samples_seen;
} fake_fallback;

static int opened, closed, fail_open_at;
static bool fail_run;

static oct_status fake_open(void **state, const oct_program *program, const oct_step *step)
{
    cr_assert_eq(step, &program->steps[3]);
    if (fail_open_at == opened + 1) return oct_fail(OCT_DATA, "cannot be opened");
    opened++;
    return oct_alloc(state, 1, sizeof(fake_fallback));
}

/* Each channel of the three is the sum of the two, times its number. */
static oct_status fake_run(void *state, int64_t samples, const float *const *x, float *y)
{
    ((fake_fallback *)state)->samples_seen += samples;
    if (fail_run) return oct_fail(OCT_NUMERIC, "cannot be run");
    for (int64_t i = 0; i < samples * PLANE; i++)
        for (int c = 0; c < 3; c++)
            y[3 * i + c] = (x[0][2 * i] + x[0][2 * i + 1]) * (float)c;
    return OCT_OK;
}

static void fake_close(void *state)
{
    closed++;
    oct_free(&state);
}

static const oct_fallback_host fake_host = {fake_open, fake_run, fake_close};

/* Multiples of the scales, so that codes say what they are. */
static void two_inputs(float *a, float *b)
{
    for (int i = 0; i < SAMPLES * PLANE * 2; i++)
        a[i] = 0.001f * (float)(i * 37 % 401 - 200);
    for (int i = 0; i < SAMPLES * OUT; i++)
        b[i] = 0.02f * (float)(i * 11 % 91 - 45);
}

Test(runtime, feeds_two_inputs_and_lets_the_host_run_fallbacks)
{
    static float a[SAMPLES * PLANE * 2], b[SAMPLES * OUT], alone[SAMPLES * OUT], y[SAMPLES * OUT];
    oct_program p;
    program_with_fallback(&p);
    two_inputs(a, b);
    for (int threads = 1; threads <= 4; threads++) {
        oct_runtime *rt;
        omp_set_num_threads(threads);
        opened = closed = 0;
        cr_assert_eq(oct_runtime_create(
                         &rt, &p, &(oct_runtime_options){.max_batch = SAMPLES, .host = &fake_host}),
                     OCT_OK);
        cr_assert_eq(opened, threads, "each thread has its own");
        cr_assert_eq(oct_runtime_run(rt, SAMPLES, (const float *[]){a, b}, y), OCT_OK);
        if (threads == 1) memcpy(alone, y, sizeof y);
        cr_assert_arr_eq(y, alone, sizeof y);
        oct_runtime_destroy(&rt);
        cr_assert_eq(closed, opened);
    }
    for (int i = 0; i < SAMPLES * OUT; i++) {
        const float sum = (a[i / 3 * 2] + a[i / 3 * 2 + 1]) * (float)(i % 3);
        const float real = sum + b[i], expected = real > 0 ? real : 0;
        cr_assert_float_eq(alone[i], expected, 0.04 + 0.015 + 0.01, "%d: %g, not %g", i,
                           (double)alone[i], (double)expected);
    }
    oct_program_free(&p);
    cr_assert_eq(oct_mem_live(), 0);
}

Test(runtime, reports_the_sentence_of_a_fallback_that_fails)
{
    static float a[SAMPLES * PLANE * 2], b[SAMPLES * OUT], y[SAMPLES * OUT];
    oct_program p;
    oct_runtime *rt;
    program_with_fallback(&p);
    omp_set_num_threads(3);
    cr_assert_eq(oct_runtime_create(&rt, &p, &(oct_runtime_options){.max_batch = SAMPLES}),
                 OCT_PREPARE);
    cr_assert_str_eq(
        oct_error_message(0),
        "1 of its layers stay float (fallback), which only the library octet computes; "
        "link that one (pkg-config octet), or quantize them");
    fail_open_at = 2;
    cr_assert_eq(oct_runtime_create(
                     &rt, &p, &(oct_runtime_options){.max_batch = SAMPLES, .host = &fake_host}),
                 OCT_DATA);
    cr_assert_eq(closed, opened);
    fail_open_at = 0;
    cr_assert_eq(oct_runtime_create(
                     &rt, &p, &(oct_runtime_options){.max_batch = SAMPLES, .host = &fake_host}),
                 OCT_OK);
    fail_run = true;
    oct_fail_clear();
    cr_assert_eq(oct_runtime_run(rt, SAMPLES, (const float *[]){a, b}, y), OCT_NUMERIC);
    cr_assert_str_eq(oct_error_message(0), "fallback: cannot be run");
    oct_runtime_destroy(&rt);
    oct_program_free(&p);
    cr_assert_eq(oct_mem_live(), 0);
}
