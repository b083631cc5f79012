/* octet eval measures the accuracy of a checkpoint or an int8 model on the test data of its recipe. */
#include "core/base/mem.h"
#include "io/model/class_names.h"
#include "io/model/model_file.h"
#include "launch/session/build.h"
#include "launch/deploy/certificate.h"
#include "launch/cmd/command.h"
#include "launch/session/file_kind.h"
#include "launch/session/job.h"
#include "launch/base/output.h"
#include "launch/base/meter.h"
#include "launch/train/run_check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DATA, METRICS, REQUIRE, RANKS };

/* What metrics with details know of each class, label or quantity: a table with a row for each output. */

enum { ROWS_MOST = 100, MATRIX_MOST = 20 };

static int64_t columns_of(const oct_metric_details *details, int64_t n)
{
    return details->columns ? details->num_columns : n;
}

static oct_status cells_of(const oct_metric *metric, const double *numbers, int64_t n,
                           double **cells)
{
    const size_t columns = (size_t)columns_of(metric->details, n);
    OCT_TRY(oct_alloc(cells, (size_t)n * columns, sizeof **cells));
    metric->details->fill(numbers, n, *cells);
    return OCT_OK;
}

/* Prints outputs of one row each, up to a hundred, and a matrix of up to twenty. names: of the outputs, or NULL. */
static oct_status print_rows(const oct_metric *metric, const double *numbers, int64_t n,
                             char *const *names)
{
    const oct_metric_details *details = metric->details;
    const int64_t columns = columns_of(details, n);
    const int width = details->columns ? 10 : 7;
    double *cells = NULL;
    char number[32];
    oct_status status = OCT_OK;
    if (n > (details->columns ? ROWS_MOST : MATRIX_MOST))
        return oct_print("\n%s: %lld rows, which --json shows\n", metric->title, (long long)n);
    OCT_TRY_OUT(cells_of(metric, numbers, n, &cells));
    OCT_TRY_OUT(
        oct_print("\n%s\n%-16s", metric->title, details->columns ? "" : "true \\ predicted"));
    for (int64_t k = 0; k < columns; k++)
        OCT_TRY_OUT(details->columns ? oct_print(" %10s", details->columns[k].name)
                                     : oct_print(" %7lld", (long long)k));
    OCT_TRY_OUT(oct_print("\n"));
    for (int64_t i = 0; i < n; i++) {
        snprintf(number, sizeof number, "%lld", (long long)i);
        OCT_TRY_OUT(oct_print("%-16.40s", names ? names[i] : number));
        for (int64_t k = 0; k < columns; k++) {
            const double value = cells[i * columns + k];
            const int digits = details->columns ? details->columns[k].digits : 0;
            OCT_TRY_OUT(isnan(value) ? oct_print(" %*s", width, "-")
                                     : oct_print(" %*.*f", width, digits, value));
        }
        OCT_TRY_OUT(oct_print("\n"));
    }
out:
    oct_free(&cells);
    return status;
}

/* {"columns": [...], "rows": [[...]]}, without columns for a matrix (new reference); NULL: out of memory. */
static json_t *rows_json(const oct_metric *metric, const double *numbers, int64_t n)
{
    const oct_metric_details *details = metric->details;
    const int64_t columns = columns_of(details, n);
    double *cells = NULL;
    if (cells_of(metric, numbers, n, &cells) != OCT_OK) return NULL;
    json_t *rows = json_array(), *names = details->columns ? json_array() : NULL;
    for (int64_t k = 0; details->columns && k < columns; k++)
        json_array_append_new(names, json_string(details->columns[k].name));
    for (int64_t i = 0; i < n; i++) {
        json_t *row = json_array();
        for (int64_t k = 0; k < columns; k++) {
            const double value = cells[i * columns + k];
            const bool count = !details->columns || details->columns[k].digits == 0;
            json_array_append_new(row, isnan(value) ? json_null()
                                       : count      ? json_integer((json_int_t)value)
                                                    : json_real(value));
        }
        json_array_append_new(rows, row);
    }
    oct_free(&cells);
    return json_pack("{s:o*, s:o}", "columns", names, "rows", rows);
}

/* This holds what is evaluated, and what came out. */
typedef struct subject {
    oct_session *session;
    const oct_args *args;
    oct_file_kind kind;
    oct_checkpoint checkpoint;
    oct_model model;
    oct_recipe recipe;
    oct_dataset data;
    double required;     /* percent; -1: nothing */
    oct_outputs outputs; /* of this rank's samples */
    oct_scores scores;
    double *numbers[OCT_METRICS_MAX]; /* of the metrics with details */
    double seconds;
} subject;

static const char *path_of(const subject *s)
{
    return s->args->word[0];
}

/* Those of the command line, separated by commas, in place of the recipe's. */
static oct_status take_metrics(subject *s)
{
    oct_texts *metrics = &s->recipe.metrics;
    if (!s->args->option[METRICS].given) return OCT_OK;
    while (metrics->count > 0)
        oct_free(&metrics->value[--metrics->count]);
    for (const char *word = s->args->option[METRICS].text;
         word && metrics->count < OCT_TEXTS_MAX;) {
        const int length = (int)strcspn(word, ",");
        OCT_TRY(oct_format(&metrics->value[metrics->count++], "%.*s", length, word));
        word = word[length] ? word + length + 1 : NULL;
    }
    return OCT_OK;
}

static oct_status open_file(subject *s)
{
    OCT_TRY(oct_file_take(path_of(s), OCT_FILE_MODEL | OCT_FILE_CHECKPOINT | OCT_FILE_RUN_FOLDER,
                          "eval takes a checkpoint, a run folder or an int8 model", &s->kind));
    if (s->kind == OCT_FILE_MODEL) {
        OCT_TRY(oct_model_load(&s->model, path_of(s)));
        OCT_TRY(oct_model_check_runnable(&s->model, path_of(s)));
    } else {
        OCT_TRY(oct_job_checkpoint(&s->checkpoint, path_of(s), s->kind));
    }

    const char *data = s->args->option[DATA].text;
    OCT_TRY(s->kind == OCT_FILE_MODEL
                ? oct_job_model_recipe(&s->recipe, path_of(s), &s->model, data)
                : oct_job_checkpoint_recipe(&s->recipe, &s->checkpoint, data));
    if (s->kind == OCT_FILE_MODEL) s->recipe.data_classes = s->model.classes;
    OCT_TRY(take_metrics(s));
    oct_fail_clear();
    oct_check_metrics(&s->recipe.metrics);
    return oct_fail_count() > 0 ? OCT_USAGE : OCT_OK;
}

static oct_status check_data(const subject *s)
{
    const oct_program *program = &s->model.program;
    const oct_dataset *d = &s->data;
    OCT_CHECK(d->count > 0, OCT_DATA, "data.path: there are no test images");
    const bool model = s->kind == OCT_FILE_MODEL;
    OCT_TRY(oct_class_names_check(model ? s->model.class_names : s->checkpoint.info.class_names, d,
                                  path_of(s)));
    if (!model) return OCT_OK;
    OCT_TRY(oct_model_check_work(&s->model, d->count, path_of(s)));
    const oct_value *input = &program->values[program->inputs[0]];
    OCT_CHECK(
        input->h == d->h && input->w == d->w && input->c == d->c, OCT_DATA,
        "%s: takes images of %lld x %lld x %lld, but those of the data are %lld x %lld x %lld",
        path_of(s), (long long)input->h, (long long)input->w, (long long)input->c, (long long)d->h,
        (long long)d->w, (long long)d->c);
    return OCT_OK;
}

static oct_status evaluate_checkpoint(subject *s)
{
    oct_module *model = NULL;
    bool prepared;
    oct_status status =
        oct_build_from_checkpoint(&model, &s->checkpoint, &s->recipe, &s->data, &prepared);
    OCT_TRY_OUT(oct_session_agree(s->session, status));
    double begin = oct_seconds();
    status = oct_outputs_create(&s->outputs, &s->recipe, &s->data, s->session->group);
    if (status == OCT_OK)
        status = oct_evaluate_local(model, &s->recipe, &s->data,
                                    oct_evaluation_batch(&s->recipe, s->session->group->size),
                                    &s->outputs);
    OCT_TRY_OUT(oct_session_agree(s->session, status));
    OCT_TRY_OUT(oct_score(s->session->group, &s->recipe, &s->outputs, &s->scores));
    s->seconds = oct_seconds() - begin;
out:
    oct_module_destroy(&model);
    return status;
}

static oct_status evaluate_model(subject *s)
{
    const oct_collective *group = s->session->group;
    double begin = oct_seconds();
    oct_status status = oct_outputs_create(&s->outputs, &s->recipe, &s->data, group);
    if (status == OCT_OK)
        status = oct_program_evaluate(&s->model.program, &s->recipe, &s->data,
                                      oct_evaluation_batch(&s->recipe, group->size), &s->outputs);
    OCT_TRY(oct_session_agree(s->session, status));
    OCT_TRY(oct_score(group, &s->recipe, &s->outputs, &s->scores));
    s->seconds = oct_seconds() - begin;
    return OCT_OK;
}

static oct_status print_scores(const subject *s, double accuracy)
{
    bool model = s->kind == OCT_FILE_MODEL;
    const bool classes = s->scores.correct >= 0;
    const char *phase = model ? "int8" : s->checkpoint.info.phase;
    double rate = s->seconds > 0 ? (double)s->data.count / s->seconds : 0;
    char correct[32], images[32], per_s[32], figure[OCT_FIGURE_TEXT];
    if (s->args->json) {
        json_t *details = NULL;
        for (int i = 0; i < s->scores.num_metrics; i++) {
            if (!s->numbers[i]) continue;
            if (!details) details = json_object();
            json_object_set_new(details, s->scores.metric[i]->name,
                                rows_json(s->scores.metric[i], s->numbers[i], s->outputs.row));
        }
        json_t *result = json_pack(
            "{s:i, s:s, s:s, s:s, s:o*, s:o*, s:I, s:f, s:o*, s:o*}", "schema_version", 1, "file",
            model ? path_of(s) : s->checkpoint.path, "kind", model ? "int8 model" : "checkpoint",
            "phase", phase, "accuracy", classes ? json_real(accuracy) : NULL, "correct",
            classes ? json_integer(s->scores.correct) : NULL, "images", (json_int_t)s->data.count,
            "images_per_s", rate, "metrics", oct_scores_json(&s->scores), "details", details);
        if (result && s->required >= 0)
            json_object_set_new(result, "reached", json_boolean(accuracy >= s->required));
        return oct_print_json(result);
    }
    OCT_TRY(oct_print("%-12s %s (%s)\n", "file", model ? path_of(s) : s->checkpoint.path, phase));
    if (classes) {
        OCT_TRY(oct_print("%-12s %.2f %%\n", "accuracy", accuracy));
        OCT_TRY(oct_print("%-12s %s of %s\n", "correct", oct_text_count(s->scores.correct, correct),
                          oct_text_count(s->scores.rows, images)));
    }
    for (int i = 0; i < s->scores.num_metrics; i++) {
        const oct_metric *m = s->scores.metric[i];
        if (m == &oct_metric_top1) continue;
        OCT_TRY(oct_print("%-12s %s\n", m->title, oct_figure_text(m, s->scores.value[i], figure)));
    }
    OCT_TRY(oct_print("%-12s %s\n", "images/s", oct_text_count((int64_t)rate, per_s)));
    for (int i = 0; i < s->scores.num_metrics; i++)
        if (s->numbers[i])
            OCT_TRY(print_rows(s->scores.metric[i], s->numbers[i], s->outputs.row,
                               s->data.class_names));
    return OCT_OK;
}

static oct_status eval_in_session(subject *s)
{
    OCT_TRY(oct_session_agree(s->session, open_file(s)));
    s->recipe.threads = oct_job_share_of_cores();
    oct_job_threads(s->session, s->recipe.threads);
    OCT_TRY(oct_job_data(s->session, &s->recipe, OCT_TEST, &s->data));
    OCT_TRY(oct_session_agree(s->session, check_data(s)));
    OCT_TRY(s->kind == OCT_FILE_MODEL ? evaluate_model(s) : evaluate_checkpoint(s));

    const double accuracy = oct_scores_accuracy(&s->scores);
    OCT_CHECK(accuracy >= 0 || s->required < 0, OCT_USAGE,
              "command line: --require is a percentage of right answers, and data.goal of %s has "
              "none; leave it out",
              path_of(s));
    const oct_outputs *o = &s->outputs;
    const oct_output_rows rows = {o->y, o->row, o->goals};
    for (int i = 0; i < s->scores.num_metrics; i++)
        if (s->scores.metric[i]->details)
            OCT_TRY(oct_metric_sum(s->scores.metric[i], s->session->group, &o->leaves, &rows,
                                   &s->numbers[i]));
    if (s->session->group->rank == 0) OCT_TRY(print_scores(s, accuracy));
    OCT_CHECK(accuracy >= s->required, OCT_NO,
              "%s: accuracy %.2f %% is below the %g %% that --require asks for", path_of(s),
              accuracy, s->required);
    return OCT_OK;
}

static oct_status run_eval(const oct_args *args)
{
    oct_session session;
    subject s = {.session = &session, .args = args, .required = -1};
    const char *required = args->option[REQUIRE].text;
    if (required) {
        OCT_CHECK(oct_parse_f64(required, &s.required) && s.required >= 0 && s.required <= 100,
                  OCT_USAGE, "command line: --require '%s': must be a percentage from 0 to 100",
                  required);
        OCT_CHECK(s.required == 0 || s.required > 1, OCT_USAGE,
                  "command line: --require '%s': would be met by guessing; it is a percentage: "
                  "write 95 for 0.95",
                  required);
    }
    OCT_TRY(oct_session_open(&session, args, OCT_DEADLINE_S));
    oct_status status = oct_session_end(&session, eval_in_session(&s));
    for (int i = 0; i < OCT_METRICS_MAX; i++)
        oct_free(&s.numbers[i]);
    oct_outputs_free(&s.outputs);
    oct_checkpoint_close(&s.checkpoint);
    oct_model_free(&s.model);
    oct_recipe_free(&s.recipe);
    oct_dataset_close(&s.data);
    return status;
}

static const oct_option options[] = {
    [DATA] = {"--data", 0, OCT_OPT_TEXT, "FOLDER",
              "folder of the data set, if it is not where the run had it", 0, 0},
    [METRICS] = {"--metrics", 0, OCT_OPT_TEXT, "NAME,...",
                 "what to measure, in place of what the run's recipe names", 0, 0},
    [REQUIRE] = {"--require", 0, OCT_OPT_TEXT, "PERCENT",
                 "exit status 1 when the accuracy is below", 0, 0},
    [RANKS] = {"--ranks", 0, OCT_OPT_COUNT, "N", "run on N ranks, started with mpirun", 1, 4096},
    {0},
};

const oct_command oct_command_eval = {
    .name = "eval",
    .usage = "octet eval FILE [--data FOLDER] [--metrics NAME,...] [--require PERCENT]",
    .summary = "measures the accuracy of a checkpoint, run folder or int8 model on the test data",
    .help = "FILE is a checkpoint, a run folder (its newest checkpoint) or an int8 model. The "
            "recipe in it\n"
            "names the data. A checkpoint of the float phase is evaluated in float.\n"
            "\n"
            "    octet eval runs/a/model.int8.h5 --require 92\n"
            "    octet eval runs/a --ranks 2 --metrics top1,top5\n",
    .options = options,
    .min_words = 1,
    .max_words = 1,
    .parallel = true,
    .run = run_eval,
};
