/* octet verify finds out whether a file is whole, and whether this machine computes what its
 * certificate says.
 *
 * Each thing that was verified is a line on stdout. What could not be looked at, such as a test set
 * that is not on this machine, is said too. Only when all that was asked for was verified is the answer
 * yes; otherwise, as after a difference, it is OCT_MISMATCH. */
#include "core/base/int_math.h"
#include "io/model/class_names.h"
#include "io/file/file.h"
#include "launch/deploy/certificate.h"
#include "launch/base/machine.h"
#include "launch/cmd/command.h"
#include "launch/cmd/subject.h"

#include <omp.h>

enum { DATA, GOLDEN_ONLY };
enum { DIGEST = 32 };

static const oct_option options[] = {
    [DATA] = OCT_TEXT(0, "--data", "PATH", "the data set"),
    [GOLDEN_ONLY] = OCT_SWITCH(0, "--golden-only", "an int8 model without the test data"),
    {0},
};

/* This holds what has been found out, printed as lines or as one document at the end. */
typedef struct findings {
    const oct_args *args;
    const char *data_path; /* NULL: the recipe's own place */
    json_t *verified, *skipped;
} findings;

OCT_PRINTF(4, 5)
static void add_finding(const findings *f, json_t *list, const char *word, const char *format, ...)
{
    char text[1024];
    OCT_PRINT_ARGS(text, format);
    json_array_append_new(list, json_string(text));
    if (!f->args->json) oct_print("%s: %s\n", word, text);
}

#define VERIFIED(f, ...) add_finding(f, (f)->verified, "verified", __VA_ARGS__)
#define NOT_VERIFIED(f, ...) add_finding(f, (f)->skipped, "not verified", __VA_ARGS__)

static oct_status end_findings(findings *f, const char *kind, oct_status status)
{
    const bool good = status == OCT_OK, complete = json_array_size(f->skipped) == 0;
    if (good && !complete)
        status = oct_fail(OCT_MISMATCH, "%s: nothing differs, but not everything was verified",
                          f->args->word[0]);
    if (f->args->json && (status == OCT_OK || status == OCT_MISMATCH))
        oct_print_json(json_pack("{s:s, s:o, s:b, s:b, s:O, s:O, s:s*}", "kind", kind, "file",
                                 oct_json_string(f->args->word[0]), "good", good, "complete",
                                 good && complete, "verified", f->verified, "not_verified",
                                 f->skipped, "differs",
                                 good || status != OCT_MISMATCH ? NULL : oct_error_message(0)));
    json_decref(f->verified);
    json_decref(f->skipped);
    return status;
}

/* Loads the data to verify with. Missing data is a failure only when the user named the place. instead:
 * what else can be done. */
static oct_status load_test_data(const findings *f, oct_subject *s, const char *instead,
                                 bool *loaded)
{
    const oct_status status = oct_subject_open_data(s, &s->data);
    *loaded = status == OCT_OK;
    if (status != OCT_DATA || f->data_path) return status;
    NOT_VERIFIED(f, "test data: %s; name its folder with --data%s", oct_error_message(0), instead);
    return OCT_OK;
}

/* What follows verifies an int8 model. */

#define INSTEAD ", or ask for no data with --golden-only"

/* Whether a value of golden sample i has the digest that is in the file. */
static bool is_golden(const oct_model *m, const uint8_t *digests, int64_t i, int32_t value)
{
    const int64_t at = (i * m->program.num_values + value) * DIGEST;
    return memcmp(digests + at, m->golden_digest + at, DIGEST) == 0;
}

/* Runs the program on its golden inputs: the SHA-256 of every value must be that in the file. */
static oct_status verify_golden(const findings *f, const oct_model *m)
{
    const oct_program *p = &m->program;
    OCT_OWNED(oct_free) uint8_t *digests = NULL;
    const int64_t count = m->certificate.golden_count;
    if (count == 0) {
        NOT_VERIFIED(
            f, "layers: the file holds no golden inputs; %s",
            oct_model_has_recipe(m)
                ? "octet convert makes a model that does from its checkpoint"
                : "the program that made it adds them with oct_model_set_golden before "
                  "oct_model_save, and octet convert adds them to a model of a checkpoint");
        return OCT_OK;
    }
    OCT_TRY(oct_alloc(&digests, (size_t)(count * p->num_values), DIGEST));
    OCT_TRY(oct_golden_digests(p, m->golden_input, count, digests));
    for (int64_t i = 0; i < count; i++)
        for (int k = 0; k < p->num_inputs; k++)
            OCT_CHECK(is_golden(m, digests, i, p->inputs[k]), OCT_MISMATCH,
                      "%s: golden input %" PRId64 " is not that of its digest", f->args->word[0],
                      i);
    for (int64_t i = 0; i < count; i++)
        for (int64_t s = 0; s < p->num_steps; s++)
            OCT_CHECK(is_golden(m, digests, i, p->steps[s].output), OCT_MISMATCH,
                      "%s: golden input %" PRId64 ": layer %s is the first that differs on this "
                      "machine (OCT_ISA narrows the kernels)",
                      f->args->word[0], i, p->steps[s].name);
    VERIFIED(f, "%" PRId64 " golden inputs, all %" PRId64 " layers bit for bit", count,
             p->num_steps);
    return OCT_OK;
}

/* Checks what the model has copied from the test data: names of classes, and the first images as golden inputs. */
static oct_status compare_copied_data(const oct_subject *s)
{
    const oct_model *m = &s->model;
    const int64_t count = m->certificate.golden_count, numel = oct_inputs_numel(&m->program);
    OCT_OWNED(oct_free) float *images = NULL;
    OCT_TRY(oct_class_names_check(m->class_names, &s->data, s->path));
    if (!oct_model_has_recipe(m)) return OCT_OK; /* a program may take both from elsewhere */
    OCT_CHECK(!m->class_names || s->data.class_names, OCT_MISMATCH,
              "%s: calls its class 0 %s, but the test data here name no classes: its names or the "
              "data were changed after its conversion; convert its checkpoint again",
              s->path, oct_class_name(m->class_names, 0).text);
    OCT_CHECK(count <= s->data.count, OCT_MISMATCH, "%s: has more golden inputs than test images",
              s->path);
    OCT_TRY(oct_alloc(&images, (size_t)(count * numel), sizeof *images));
    OCT_TRY(oct_golden_read(&s->recipe, &s->data, count, images));
    OCT_CHECK(memcmp(images, m->golden_input, (size_t)(count * numel) * sizeof *images) == 0,
              OCT_MISMATCH, "%s: its golden inputs are not the first test images", s->path);
    return OCT_OK;
}

/* Evaluates the test set: its logits and its accuracy must be those of the certificate. */
static oct_status compare_test_set(const findings *f, const oct_subject *s)
{
    const oct_recipe *recipe = &s->recipe;
    const oct_dataset *data = &s->data;
    const oct_program *program = &s->model.program;
    const oct_value *in = &program->values[program->inputs[0]];
    const oct_certificate *c = &s->model.certificate;
    /* What a program has compared in memory has no digest of files. */
    const bool of_files = oct_model_has_recipe(&s->model);
    if (data->count != c->images ||
        (of_files && memcmp(data->digest, c->data_digest, DIGEST) != 0) || data->h != in->h ||
        data->w != in->w || data->c != in->c) {
        OCT_CHECK(!f->data_path, OCT_DATA,
                  "%s: not the test data of the certificate (%" PRId64 " images here, %" PRId64
                  " there%s); give its folder with --data",
                  f->data_path, data->count, c->images,
                  data->count == c->images ? ", but of another size or SHA-256" : "");
        NOT_VERIFIED(f, "test data: the data on this machine is not what the certificate "
                        "was made with; name the right folder with --data" INSTEAD);
        return OCT_OK;
    }
    OCT_OWNED(oct_outputs_free) oct_outputs outputs = {0};
    oct_scores scores;
    char figures[OCT_SCORES_TEXT];
    uint8_t digest[DIGEST];
    OCT_TRY(oct_model_check_work(&s->model, data->count, f->args->allow_large, s->path));
    OCT_TRY(compare_copied_data(s));
    OCT_TRY(oct_outputs_create(&outputs, recipe, data, &oct_collective_one));
    OCT_TRY(oct_program_evaluate(program, recipe, data, oct_evaluation_batch(recipe, 1), &outputs));
    oct_sha256(outputs.y, (size_t)(outputs.samples * outputs.rows * outputs.row) * sizeof(float),
               digest);
    OCT_CHECK(memcmp(digest, c->logits_digest, DIGEST) == 0, OCT_MISMATCH,
              "%s: the logits of the test set are not those of the certificate%s", f->args->word[0],
              of_files ? "" : ", or the data are not those that the program compared");
    OCT_TRY(oct_score(&oct_collective_one, recipe, &outputs, &scores));
    OCT_CHECK(oct_max_i64(scores.correct, 0) == c->correct &&
                  scores.rows == (c->rows > 0 ? c->rows : c->images) &&
                  oct_scores_accuracy(&scores) == c->qat_accuracy,
              OCT_MISMATCH,
              "%s: %" PRId64 " of %" PRId64 " rows are right, an accuracy of %g %%; the "
              "certificate says %" PRId64 " of %" PRId64 ", %g %%",
              f->args->word[0], oct_max_i64(scores.correct, 0), scores.rows,
              oct_scores_accuracy(&scores), c->correct, c->rows > 0 ? c->rows : c->images,
              c->qat_accuracy);
    if (scores.correct >= 0)
        oct_snprintf(figures, sizeof figures, "%.2f %% right", oct_scores_accuracy(&scores));
    else
        oct_scores_text(&scores, figures);
    VERIFIED(f, "%s test images: every logit as QAT evaluation computed it%s%s",
             oct_text_count(data->count).text, figures[0] ? ", " : "", figures);
    return OCT_OK;
}

/* Verifies a model: the file, its recipe, its golden inputs and, unless --golden-only, the test set of its
 * certificate. */
static oct_status verify_model(const findings *f)
{
    OCT_OWNED(oct_subject_close) oct_subject s = {.path = f->args->word[0], .kind = OCT_FILE_MODEL};
    bool loaded = false;
    OCT_TRY(oct_model_load(&s.model, s.path, f->args->allow_large));
    VERIFIED(f, "file: digest, program of %" PRId64 " layers and its bounds",
             s.model.program.num_steps);
    const bool one = s.model.program.num_inputs == 1, of_recipe = oct_model_has_recipe(&s.model);
    OCT_TRY(one ? oct_model_check_runnable(&s.model, s.path)
                : oct_model_check_recipe(&s.model, s.path));
    if (of_recipe)
        VERIFIED(f, "recipe: target, data format, mean and standard deviation are those "
                    "that the model computes with");
    OCT_TRY(verify_golden(f, &s.model));
    if (f->args->option[GOLDEN_ONLY].given) return OCT_OK;
    OCT_CHECK_ARGS(of_recipe || s.model.certificate.images > 0 || !f->data_path,
                   "--data: %s has no certificate, so there is nothing to compare test data with; "
                   "leave it out, or measure with octet eval",
                   s.path);
    if (!of_recipe && s.model.certificate.images == 0) return OCT_OK;
    OCT_TRY(oct_subject_read_recipe(&s, f->data_path));
    if (!of_recipe && s.model.certificate.qat_accuracy < 0) s.recipe.data_goal = OCT_GOAL_NONE;
    if (one)
        OCT_TRY(load_test_data(f, &s, INSTEAD, &loaded));
    else
        NOT_VERIFIED(f,
                     "test data: the model takes several inputs, and a data set has one" INSTEAD);
    if (loaded) OCT_TRY(compare_test_set(f, &s));
    return OCT_OK;
}

static oct_status verify_checkpoint(const findings *f)
{
    OCT_OWNED(oct_subject_close)
    oct_subject s = {.path = f->args->word[0], .kind = OCT_FILE_CHECKPOINT};
    const oct_checkpoint *checkpoint = &s.checkpoint;
    bool loaded = false, prepared;
    uint8_t digest[DIGEST];
    char hex[65];
    /* First: a damaged model passes for a checkpoint until it is opened. */
    OCT_TRY(oct_checkpoint_open(&s.checkpoint, s.path));
    OCT_CHECK_ARGS(!f->args->option[GOLDEN_ONLY].given,
                   "--golden-only is for int8 models, and %s is a checkpoint", s.path);
    oct_sha256(checkpoint->bytes, checkpoint->size, digest);
    VERIFIED(f, "file: SHA-256 %s", oct_hex(digest, hex));
    OCT_TRY(oct_subject_read_recipe(&s, f->data_path));
    OCT_TRY(load_test_data(f, &s, "", &loaded));
    if (!loaded) return OCT_OK;
    OCT_TRY(oct_build_from_checkpoint(&s.root, checkpoint, &s.recipe, &s.data, &prepared));
    VERIFIED(f, "state: every tensor of %s is there, with its shape (phase %s, step %" PRId64 ")",
             oct_recipe_model(&s.recipe), checkpoint->info.phase, checkpoint->info.step);
    return OCT_OK;
}

static oct_status run_verify(const oct_args *args)
{
    oct_file_kind kind;
    OCT_TRY(oct_file_kind_of(args->word[0], &kind));
    OCT_CHECK_ARGS(kind == OCT_FILE_MODEL || kind == OCT_FILE_CHECKPOINT,
                   "%s is a %s; verify takes a checkpoint or an int8 model%s", args->word[0],
                   oct_file_kind_name(kind),
                   kind == OCT_FILE_RUN_FOLDER ? ", such as its model.int8.h5" : "");
    findings f = {args, args->option[DATA].text, json_array(), json_array()};
    omp_set_num_threads((int)oct_machine_cores());
    return end_findings(&f, oct_file_kind_name(kind),
                        kind == OCT_FILE_MODEL ? verify_model(&f) : verify_checkpoint(&f));
}

const oct_command oct_command_verify = {
    .name = "verify",
    .usage = "octet verify FILE [--data PATH | --golden-only]",
    .summary = "checks a file's integrity, certificate and golden vectors on this machine",
    .help =
        "int8 model: digest, program, every layer of the golden inputs, and every logit of the\n"
        "whole test set against what QAT evaluation computed. Checkpoint: digest, and that its\n"
        "model takes it. Exit status 1 when anything differs or, without golden inputs or test\n"
        "data, could not be verified; --golden-only asks for no test data. A model that a program\n"
        "has made names no data: --data is then a folder or file of `octet help formats` with the\n"
        "samples that the program compared.",
    .options = options,
    .min_words = 1,
    .max_words = 1,
    .run = run_verify,
};
