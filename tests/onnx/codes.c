/* Writes every value of a model's program for its first test images, computed by Octet's own runtime.
 *
 *     codes MODEL.int8.h5 COUNT DATA [BATCH]
 *
 * On stdout: a line of JSON that says batch, count, whether there are labels and the values (name, type, shape of a
 * sample, the place of the value that it is made of, -1 for the input, and the scale of codes), then for each batch the
 * normalised images, the labels of classes (s32, where there are any) and each value, of all samples, in their
 * memory layout (channels last). compare.cjs reads it, and tests/c_form/compare.c with a BATCH of 1. */
#include "core/base/mem.h"
#include "io/batch/loader.h"
#include "launch/session/build.h"
#include "launch/deploy/certificate.h"
#include "launch/evaluate/evaluate.h"
#include "launch/session/job.h"
#include "quant/convert/convert.h"
#include "quant/program/step.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct codes {
    oct_model model;
    oct_recipe recipe;
    oct_dataset data;
    oct_loader loader;
    oct_runtime *runtime;
    float *images;
    uint8_t *output;
    int64_t count, batch;
} codes;

/* The place of the step that makes a value; -1: none does. */
static int64_t maker_of(const oct_program *program, int32_t value)
{
    int64_t i = program->num_steps - 1;
    while (i >= 0 && program->steps[i].output != value)
        i--;
    return i;
}

/* As the exporter calls them: a layer that is called twice has two steps of one name. */
static void print_value(const oct_program *program, int64_t number)
{
    const oct_step *step = &program->steps[number];
    const oct_value *v = &program->values[step->output];
    int calls = 1;
    for (int64_t i = 0; i < number; i++)
        calls += strcmp(program->steps[i].name, step->name) == 0;
    printf("%s{\"name\":\"%s", number ? "," : "", step->name);
    if (calls > 1) printf(":%d", calls);
    printf("\",\"kind\":\"%s\",\"type\":\"%s\",\"h\":%" PRId64 ",\"w\":%" PRId64 ",\"c\":%" PRId64
           ",\"from\":%" PRId64 ",\"scale\":%.9g,\"output\":%s}",
           oct_step_type_of(step->kind)->name, oct_dtype_name(v->dtype), v->h, v->w, v->c,
           maker_of(program, step->input[0]), (double)v->q.scale,
           step->output == program->output ? "true" : "false");
}

static bool has_labels(const codes *c)
{
    return c->recipe.data_goal == OCT_GOAL_CLASS;
}

static void print_header(const codes *c)
{
    const oct_program *program = &c->model.program;
    const oct_value *in = &program->values[program->inputs[0]];
    printf("{\"batch\":%" PRId64 ",\"count\":%" PRId64 ",\"h\":%" PRId64 ",\"w\":%" PRId64
           ",\"c\":%" PRId64 ",\"labels\":%s,\"values\":[",
           c->batch, c->count, in->h, in->w, in->c, has_labels(c) ? "true" : "false");
    for (int64_t i = 0; i < program->num_steps; i++)
        print_value(program, i);
    printf("]}\n");
}

static void write_value(void *user, int64_t value, const oct_step *step, const void *data,
                        size_t bytes)
{
    (void)user, (void)value, (void)step;
    fwrite(data, 1, bytes, stdout);
}

static oct_status write_codes(codes *c)
{
    const oct_program *program = &c->model.program;
    const int64_t image = oct_inputs_numel(program);
    oct_goals goals;
    OCT_TRY(oct_evaluation_loader(&c->loader, &c->recipe, &c->data));
    OCT_TRY(oct_alloc(&c->images, (size_t)(c->batch * image), sizeof *c->images));
    OCT_TRY(oct_alloc(&c->output, (size_t)c->batch,
                      oct_value_bytes(&program->values[program->output])));
    OCT_TRY(oct_runtime_create(
        &c->runtime, program,
        &(oct_runtime_options){.max_batch = c->batch, .host = &oct_module_fallbacks}));
    print_header(c);
    for (int64_t at = 0; at < c->count; at += c->batch) {
        OCT_TRY(oct_loader_read(&c->loader, at, c->batch, c->images, &goals));
        fwrite(c->images, sizeof *c->images, (size_t)(c->batch * image), stdout);
        if (has_labels(c)) fwrite(goals.labels, sizeof *goals.labels, (size_t)c->batch, stdout);
        OCT_TRY(oct_runtime_watch(c->runtime, c->batch, (const float *[]){c->images}, c->output,
                                  write_value, NULL));
    }
    OCT_CHECK(fflush(stdout) == 0 && !ferror(stdout), OCT_RESOURCE, "stdout cannot be written");
    return OCT_OK;
}

static oct_status work(codes *c, char **argv)
{
    OCT_TRY(oct_model_load(&c->model, argv[1], false));
    c->batch = 50;
    OCT_CHECK((!argv[4] || oct_parse_i64(argv[4], &c->batch)) && c->batch > 0 &&
                  oct_parse_i64(argv[2], &c->count) && c->count > 0 && c->count % c->batch == 0,
              OCT_USAGE, "%s: the number of images is no multiple of %" PRId64, argv[2], c->batch);
    OCT_TRY(oct_job_model_recipe(&c->recipe, argv[1], &c->model, argv[3]));
    c->recipe.data_test_limit = 0; /* that was for the evaluations of the training */
    OCT_TRY(oct_load_data(&c->recipe, OCT_TEST, NULL, &c->data));
    OCT_CHECK(c->data.count >= c->count, OCT_DATA, "%s: the test set has only %lld images", argv[1],
              (long long)c->data.count);
    return write_codes(c);
}

int main(int argc, char **argv)
{
    static codes c;
    if (argc < 4 || argc > 5) {
        fprintf(stderr, "usage: codes MODEL.int8.h5 COUNT DATA [BATCH]\n");
        return 2;
    }
    const oct_status status = work(&c, argv);
    for (size_t i = 0; i < oct_error_count(); i++)
        fprintf(stderr, "codes: %s\n", oct_error_message(i));
    oct_runtime_destroy(&c.runtime);
    oct_loader_deinit(&c.loader);
    oct_free(&c.images);
    oct_free(&c.output);
    oct_dataset_close(&c.data);
    oct_recipe_free(&c.recipe);
    oct_model_free(&c.model);
    return oct_status_exit(status);
}
