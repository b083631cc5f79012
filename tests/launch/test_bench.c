/* octet bench: what a figure says. */
#include "launch/bench/bench.h"
#include "tests/support/program.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <string.h>

static json_t *document;

static void clean_up(void)
{
    json_decref(document);
    oct_process_free(&job);
}

TestSuite(bench, .fini = clean_up, .timeout = 120);

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
    oct_check_said(job, "step cnn-small qat int8, batch 16, 1 rank of 1 thread, ");
    OCTET("bench", "step", "--image", "8x8x1", "--batch", "2", "--steps",
          "2"); /* less than a leaf */
    oct_check_exit(job, 0);
}

Test(bench, a_step_is_one_object)
{
    static const char *const numbers[] = {
        "batch",         "ranks",         "threads",      "steps",       "warm_up",
        "step_ms",       "step_ms_least", "images_per_s", "step_cpu_ms", "peak_bytes_above_start",
        "multiply_adds", "gops"};
    OCTET("bench", "step", "--image", "8x8x1", "--batch", "16", "--steps", "2", "--mode", "float",
          "--json");
    read_json();
    check_word(document, "bench", "step");
    check_word(document, "model", "cnn-small");
    check_word(document, "mode", "float");
    check_word(document, "numerics", "f32");
    check_word(document, "isa", oct_isa_best());
    for (size_t i = 0; i < OCT_COUNT(numbers); i++)
        check_positive(document, numbers[i]);
}

Test(bench, a_model_of_pixels_has_a_step_too)
{
    OCTET("bench", "step", "--model", "unet-small", "--image", "8x8x3", "--batch", "8", "--steps",
          "1", "--json");
    read_json();
    check_word(document, "model", "unet-small");
    check_positive(document, "step_ms");
}

Test(bench, numerics_are_those_asked_for)
{
    OCTET("bench", "step", "--image", "8x8x1", "--batch", "8", "--steps", "1", "--numerics", "f32",
          "--json");
    read_json();
    check_word(document, "mode", "qat");
    check_word(document, "numerics", "f32");
    OCTET("bench", "step", "--image", "8x8x1", "--batch", "8", "--steps", "1", "--mode", "float",
          "--numerics", "bf16", "--json");
    read_json();
    check_word(document, "mode", "float");
    check_word(document, "numerics", "bf16");
}

Test(bench, inference_makes_a_model_of_the_zoo_on_the_spot)
{
    static const char *const numbers[] = {
        "batch",     "threads",      "step_ms", "images_per_s", "peak_bytes_above_start",
        "gops_peak", "multiply_adds"};
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
    cr_assert_eq(json_array_size(document), 6);
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
