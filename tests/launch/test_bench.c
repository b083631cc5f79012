/* octet bench: what a figure says, and that what it counts and measures is what it says. */
#include "core/base/mem.h"
#include "launch/bench/bench.h"
#include "launch/bench/gauge.h"
#include "launch/bench/work.h"
#include "tests/support/check_status.h"
#include "tests/support/process.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <string.h>

enum { SECONDS = 60 };

static oct_job job;
static json_t *document;

static void clean_up(void)
{
    json_decref(document);
    oct_job_free(&job);
}

TestSuite(bench, .fini = clean_up, .timeout = 120);

#define OCTET(...) (oct_job_free(&job), job = oct_run(SECONDS, OCT_PROGRAM, __VA_ARGS__, NULL))

static void read_json(void)
{
    json_error_t error;
    oct_check_exit(job, 0);
    document = json_loads(job.out, 0, &error);
    cr_assert_not_null(document, "%s\n%s", error.text, job.out);
}

static void check_positive(const json_t *figure, const char *name)
{
    const json_t *value = json_object_get(figure, name);
    cr_assert(json_is_number(value) && json_number_value(value) > 0, "%s\n%s", name, job.out);
}

static void check_word(const json_t *figure, const char *name, const char *word)
{
    cr_assert_str_eq(json_string_value(json_object_get(figure, name)), word, "%s\n%s", name,
                     job.out);
}

Test(bench, a_step_is_one_line)
{
    OCTET("bench", "step", "--image", "8x8x1", "--batch", "16", "--steps", "2");
    oct_check_exit(job, 0);
    oct_check_said(job, "step cnn-small qat, bf16, batch 16, 1 rank of 1 thread: ");
    OCTET("bench", "step", "--image", "8x8x1", "--batch", "2", "--steps",
          "2"); /* less than a leaf */
    oct_check_exit(job, 0);
}

Test(bench, a_step_is_one_object)
{
    static const char *const numbers[] = {"batch",         "ranks",        "threads",
                                          "steps",         "warm_up",      "step_ms",
                                          "step_ms_least", "images_per_s", "peak_bytes_above_start",
                                          "multiply_adds", "gops"};
    OCTET("bench", "step", "--image", "8x8x1", "--batch", "16", "--steps", "2", "--mode", "float",
          "--json");
    read_json();
    check_word(document, "bench", "step");
    check_word(document, "model", "cnn-small");
    check_word(document, "mode", "float");
    check_word(document, "numerics", "f32");
    check_word(document, "isa", oct_bench_isa());
    for (size_t i = 0; i < OCT_COUNT(numbers); i++)
        check_positive(document, numbers[i]);
}

Test(bench, numerics_are_those_asked_for)
{
    OCTET("bench", "step", "--image", "8x8x1", "--batch", "8", "--steps", "1", "--numerics", "f32",
          "--json");
    read_json();
    check_word(document, "mode", "qat");
    check_word(document, "numerics", "f32");
}

Test(bench, inference_makes_a_model_of_the_zoo_on_the_spot)
{
    static const char *const numbers[] = {
        "batch",       "threads",      "step_ms", "images_per_s", "peak_bytes_above_start",
        "model_bytes", "multiply_adds"};
    OCTET("bench", "infer", "--model", "fpn-small", "--image", "16x16x3", "--batch", "4", "--steps",
          "2", "--json");
    read_json();
    check_word(document, "model", "fpn-small");
    for (size_t i = 0; i < OCT_COUNT(numbers); i++)
        check_positive(document, numbers[i]);
}

Test(bench, several_lines_are_an_array)
{
    OCTET("bench", "reduce", "--json");
    read_json();
    cr_assert_eq(json_array_size(document), 5);
    check_positive(json_array_get(document, 0), "step_ms");
    OCTET("bench", "reduce");
    oct_check_said(job, "1000 floats over 1 rank:");
}

Test(bench, kernels_are_an_array_of_every_layer)
{
    OCTET("bench", "kernels", "--steps", "1", "--json");
    read_json();
    cr_assert_geq(json_array_size(document), 12);
    for (size_t i = 0; i < json_array_size(document); i++)
        check_positive(json_array_get(document, i), "gops");
}

/* Work. */

Test(bench, work_is_what_a_convolution_multiplies)
{
    const oct_conv_shape inside = {6, 6, 3, 4, 4, 8, 3, 3, 1, 0, 1};
    cr_assert_eq(oct_conv_work(&inside, 1), 4 * 4 * 8 * 3 * 3 * 3);
    const oct_conv_shape grouped = {6, 6, 8, 4, 4, 8, 3, 3, 1, 0, 4};
    cr_assert_eq(oct_conv_work(&grouped, 1), 4 * 4 * 8 * 3 * 3 * 2);
    const oct_conv_shape linear = {1, 1, 20, 1, 1, 10, 1, 1, 1, 0, 1};
    cr_assert_eq(oct_conv_work(&linear, 1), 200);
}

/* A line of 4 with 1 of padding: 2, 3, 3 and 2 taps lie inside; every second one of a spread line of 7 is
 * a number, and 4 of its outputs see 2, the others 1. */
Test(bench, work_leaves_zeros_out)
{
    const oct_conv_shape padded = {4, 4, 1, 4, 4, 1, 3, 3, 1, 1, 1};
    cr_assert_eq(oct_conv_work(&padded, 1), 10 * 10);
    const oct_conv_shape strided = {4, 4, 1, 2, 2, 1, 3, 3, 2, 1, 1};
    cr_assert_eq(oct_conv_work(&strided, 1), 5 * 5);
    const oct_conv_shape spread = {7, 7, 1, 8, 8, 1, 4, 4, 1, 2, 1};
    cr_assert_eq(oct_conv_work(&spread, 2), 14 * 14);
}

/* Two convolutions read the image, one of them with a summand that a gradient goes to; only the third
 * has an input that wants one. */
Test(bench, work_of_a_program_knows_whose_input_needs_a_gradient)
{
    oct_step steps[] = {
        {.kind = OCT_STEP_QUANTIZE, .num_inputs = 1, .input = {0}, .output = 1},
        {.kind = OCT_STEP_CONV, .num_inputs = 1, .input = {1}, .output = 2, .spread = 1},
        {.kind = OCT_STEP_CONV, .num_inputs = 2, .input = {1, 2}, .output = 3, .spread = 1},
        {.kind = OCT_STEP_MAX_POOL, .num_inputs = 1, .input = {3}, .output = 4},
        {.kind = OCT_STEP_CONV_FLOAT, .num_inputs = 1, .input = {4}, .output = 5, .spread = 1},
    };
    for (size_t i = 0; i < OCT_COUNT(steps); i++)
        steps[i].conv = (oct_conv_shape){1, 1, 10, 1, 1, 10, 1, 1, 1, 0, 1};
    const oct_program program = {.num_steps = OCT_COUNT(steps), .steps = steps};
    oct_work work = oct_program_work(&program);
    cr_assert_eq(work.forward, 300);
    cr_assert_eq(work.grad_weight, 300);
    cr_assert_eq(work.grad_input, 100);
}

/* The gauge. */

Test(bench, the_gauge_sees_a_peak_that_is_gone_again)
{
    enum { BYTES = 64 << 20 };
    char *before = NULL, *block = NULL;
    MUST(oct_alloc(&before, 1, 1 << 20));
    oct_gauge gauge = oct_gauge_begin();
    MUST(oct_alloc(&block, 1, BYTES));
    memset(block, 1, BYTES);
    oct_free(&block);
    oct_gauge_peak peak = oct_gauge_read(&gauge);
    cr_assert_eq(peak.allocated, BYTES);
    cr_assert_geq(peak.resident, BYTES / 2);
    cr_assert_geq(peak.larger, BYTES);
    oct_gauge_again();
    cr_assert_eq(oct_gauge_read(&gauge).allocated, 0);
    oct_free(&before);
}

Test(bench, the_median_is_a_value_in_the_middle)
{
    double values[] = {3, 1, 2, 9, 5};
    cr_assert_eq(oct_median(values, 5), 3);
    cr_assert_eq(values[0], 1, "sorted");
}
