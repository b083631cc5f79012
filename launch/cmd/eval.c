/* octet eval measures the accuracy of a checkpoint or an int8 model on the test data of its recipe. */
#include "io/model/class_names.h"
#include "launch/deploy/certificate.h"
#include "launch/cmd/command.h"
#include "launch/cmd/subject.h"
#include "launch/train/run_check.h"
#include "quant/program/step.h"

#include <math.h>

enum { DATA, METRICS, REQUIRE, RANKS };

/* What metrics with details know of each class, label or quantity: a table with a row for each output. */

enum { ROWS_MOST = 100, MATRIX_MOST = 20 };

static int64_t columns_of(const oct_metric_details *details, int64_t n)
{
    return details->columns ? details->num_columns : n;
}

/* Makes the table of a metric: a row for each of n outputs, and the metric's columns or, of a matrix, n. */
static oct_status fill_cells(const oct_metric *metric, const double *numbers, int64_t n,
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
    OCT_OWNED(oct_free) double *cells = NULL;
    char number[32];
    if (n > (details->columns ? ROWS_MOST : MATRIX_MOST)) {
        oct_print("\n%s: %lld rows, which --json shows\n", metric->title, (long long)n);
        return OCT_OK;
    }
    OCT_TRY(fill_cells(metric, numbers, n, &cells));
    oct_print("\n%s\n%-16s", metric->title, details->columns ? "" : "true \\ predicted");
    for (int64_t k = 0; k < columns; k++)
        details->columns ? oct_print(" %10s", details->columns[k].name)
                         : oct_print(" %7lld", (long long)k);
    oct_print("\n");
    for (int64_t i = 0; i < n; i++) {
        snprintf(number, sizeof number, "%lld", (long long)i);
        oct_print("%-16.40s", names ? names[i] : number);
        for (int64_t k = 0; k < columns; k++) {
            const double value = cells[i * columns + k];
            const int digits = details->columns ? details->columns[k].digits : 0;
            isnan(value) ? oct_print(" %*s", width, "-")
                         : oct_print(" %*.*f", width, digits, value);
        }
        oct_print("\n");
    }
    return OCT_OK;
}

/* {"columns": [...], "rows": [[...]]}, without columns for a matrix (new reference); NULL: out of memory. */
static json_t *rows_json(const oct_metric *metric, const double *numbers, int64_t n)
{
    const oct_metric_details *details = metric->details;
    const int64_t columns = columns_of(details, n);
    OCT_OWNED(oct_free) double *cells = NULL;
    if (fill_cells(metric, numbers, n, &cells) != OCT_OK) return NULL;
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
    return json_pack("{s:o*, s:o}", "columns", names, "rows", rows);
}

typedef struct evaluation {
    oct_session *session;
    const oct_args *args;
    oct_subject subject;
    double required;     /* percent; -1: nothing */
    oct_outputs outputs; /* of this rank's samples */
    oct_scores scores;
    double *numbers[OCT_METRICS_MAX]; /* of the metrics with details */
    double seconds;
} evaluation;

/* Takes the metrics of the command line, separated by commas, in place of the recipe's. */
static oct_status replace_metrics(evaluation *e)
{
    oct_texts *metrics = &e->subject.recipe.metrics;
    const char *word = e->args->option[METRICS].text;
    while (word && metrics->count > 0)
        oct_free(&metrics->value[--metrics->count]);
    while (word && metrics->count < OCT_TEXTS_MAX) {
        const int length = (int)strcspn(word, ",");
        OCT_TRY(oct_format(&metrics->value[metrics->count++], "%.*s", length, word));
        word = word[length] ? word + length + 1 : NULL;
    }
    oct_fail_clear();
    oct_check_metrics(metrics);
    return oct_error_count() > 0 ? OCT_USAGE : OCT_OK;
}

static oct_status open_subject(evaluation *e)
{
    e->subject.large = e->args->allow_large;
    OCT_TRY(oct_subject_open(&e->subject, e->args->word[0],
                             OCT_FILE_MODEL | OCT_FILE_CHECKPOINT | OCT_FILE_RUN_FOLDER,
                             "eval takes a checkpoint, a run folder or an int8 model"));
    e->subject.keys = e->args->word + 1;
    e->subject.num_keys = e->args->num_words - 1;
    OCT_TRY(oct_subject_read_recipe(&e->subject, e->args->option[DATA].text));
    OCT_CHECK_ARGS(!e->subject.no_data,
                   "--data is missing: a program made %s, so no recipe in it names the data; write "
                   "octet eval %s --data PATH",
                   e->subject.path, e->subject.path);
    return replace_metrics(e);
}

static oct_status check_data(const oct_subject *s)
{
    const bool model = s->kind == OCT_FILE_MODEL;
    OCT_CHECK(s->data.count > 0, OCT_DATA, "data.path: there are no test images");
    OCT_TRY(oct_class_names_check(model ? s->model.class_names : s->checkpoint.info.class_names,
                                  &s->data, s->path));
    if (!model) return OCT_OK;
    OCT_TRY(oct_model_check_work(&s->model, s->data.count, s->large, s->path));
    OCT_TRY(oct_subject_check_images(s, &s->data));
    const oct_value *out = &s->model.program.values[s->model.program.output];
    const int64_t row = out->dtype == OCT_F32 ? s->data.classes : 1;
    OCT_CHECK(oct_value_numel(out) == s->data.rows * row, OCT_DATA,
              "%s: gives %" PRId64 " numbers for a sample, but the data have %" PRId64
              " (data.goal: %s)",
              s->path, oct_value_numel(out), s->data.rows * row,
              oct_registry_name(&oct_goal_kind_table, s->data.goal));
    return OCT_OK;
}

static oct_status evaluate_subject(evaluation *e)
{
    oct_subject *s = &e->subject;
    const oct_collective *group = e->session->group;
    const int64_t batch = oct_evaluation_batch(&s->recipe, group->size);
    if (s->kind != OCT_FILE_MODEL) OCT_TRY(oct_subject_build(s, e->session));
    const double begin = oct_seconds();
    oct_status status = oct_outputs_create(&e->outputs, &s->recipe, &s->data, group);
    if (status == OCT_OK)
        status = s->root ? oct_evaluate_local(s->root, &s->recipe, &s->data, batch, &e->outputs)
                         : oct_program_evaluate(&s->model.program, &s->recipe, &s->data, batch,
                                                &e->outputs);
    OCT_TRY(oct_session_agree(e->session, status));
    OCT_TRY(oct_score(group, &s->recipe, &e->outputs, &e->scores));
    e->seconds = oct_seconds() - begin;
    return OCT_OK;
}

static void print_scores_json(const evaluation *e, double accuracy, const char *phase, double rate)
{
    const bool model = e->subject.kind == OCT_FILE_MODEL, classes = e->scores.correct >= 0;
    json_t *details = NULL;
    for (int i = 0; i < e->scores.num_metrics; i++) {
        if (!e->scores.metric[i]->details) continue;
        if (!details) details = json_object();
        json_object_set_new(details, e->scores.metric[i]->name,
                            rows_json(e->scores.metric[i], e->numbers[i], e->outputs.row));
    }
    oct_print_json(json_pack(
        "{s:i, s:o, s:s, s:s, s:o*, s:o*, s:I, s:f, s:o*, s:o*, s:o*}", "schema_version", 1, "file",
        oct_json_string(oct_subject_file(&e->subject)), "kind", model ? "int8 model" : "checkpoint",
        "phase", phase, "accuracy", classes ? json_real(accuracy) : NULL, "correct",
        classes ? json_integer(e->scores.correct) : NULL, "images",
        (json_int_t)e->subject.data.count, "images_per_s", rate, "metrics",
        oct_scores_json(&e->scores), "details", details, "reached",
        e->required >= 0 ? json_boolean(accuracy >= e->required) : NULL));
}

static oct_status print_scores(const evaluation *e, double accuracy)
{
    const oct_scores *scores = &e->scores;
    const char *phase =
        e->subject.kind == OCT_FILE_MODEL ? "int8" : e->subject.checkpoint.info.phase;
    const double rate = e->seconds > 0 ? (double)e->subject.data.count / e->seconds : 0;
    if (e->args->json) {
        print_scores_json(e, accuracy, phase, rate);
        return OCT_OK;
    }
    oct_print("%-12s %s (%s)\n", "file", oct_subject_file(&e->subject), phase);
    if (scores->correct >= 0)
        oct_print("%-12s %.2f %%\n%-12s %s of %s\n", "accuracy", accuracy, "correct",
                  oct_text_count(scores->correct).text, oct_text_count(scores->rows).text);
    for (int i = 0; i < scores->num_metrics; i++)
        if (scores->metric[i] != &oct_metric_top1)
            oct_print("%-12s %s\n", scores->metric[i]->title,
                      oct_figure_text(scores->metric[i], scores->value[i]).text);
    oct_print("%-12s %s\n", "images/s", oct_text_count((int64_t)rate).text);
    for (int i = 0; i < scores->num_metrics; i++)
        if (e->numbers[i])
            OCT_TRY(print_rows(scores->metric[i], e->numbers[i], e->outputs.row,
                               e->subject.data.class_names));
    return OCT_OK;
}

static oct_status eval_in_session(evaluation *e)
{
    OCT_TRY(oct_session_agree(e->session, open_subject(e)));
    OCT_TRY(oct_subject_load_data(&e->subject, e->session, OCT_TEST));
    OCT_TRY(oct_session_agree(e->session, check_data(&e->subject)));
    OCT_TRY(evaluate_subject(e));
    const double accuracy = oct_scores_accuracy(&e->scores);
    OCT_CHECK_ARGS(
        accuracy >= 0 || e->required < 0,
        "--require is a percentage of right answers, and data.goal of %s has none; leave it out",
        e->subject.path);
    const oct_outputs *o = &e->outputs;
    const oct_output_rows rows = {o->y, o->row, o->goals};
    for (int i = 0; i < e->scores.num_metrics; i++)
        if (e->scores.metric[i]->details)
            OCT_TRY(oct_metric_sum(e->scores.metric[i], e->session->group, &o->leaves, &rows,
                                   &e->numbers[i]));
    if (e->session->group->rank == 0) OCT_TRY(print_scores(e, accuracy));
    OCT_CHECK(accuracy >= e->required, OCT_MISMATCH,
              "%s: accuracy %.2f %% is below the %g %% that --require asks for", e->subject.path,
              accuracy, e->required);
    return OCT_OK;
}

static oct_status run_eval(const oct_args *args)
{
    oct_session session;
    evaluation e = {.session = &session, .args = args, .required = -1};
    const char *required = args->option[REQUIRE].text;
    if (required) {
        OCT_CHECK_ARGS(oct_parse_f64(required, &e.required) && e.required >= 0 && e.required <= 100,
                       "--require '%s': must be a percentage from 0 to 100", required);
        OCT_CHECK_ARGS(
            e.required == 0 || e.required > 1,
            "--require '%s': would be met by guessing; it is a percentage: write 95 for 0.95",
            required);
    }
    OCT_TRY(oct_session_open(&session, args, OCT_DEADLINE_S));
    oct_status status = oct_session_end(&session, eval_in_session(&e));
    for (int i = 0; i < OCT_METRICS_MAX; i++)
        oct_free(&e.numbers[i]);
    oct_outputs_free(&e.outputs);
    oct_subject_close(&e.subject);
    return status;
}

static const oct_option options[] = {
    [DATA] = OCT_TEXT(0, "--data", "PATH", "the data set, if it is not where the run had it"),
    [METRICS] = OCT_TEXT(0, "--metrics", "NAME,...",
                         "what to measure, in place of what the run's recipe names"),
    [REQUIRE] = OCT_TEXT(0, "--require", "PERCENT", "exit status 1 when the accuracy is below"),
    [RANKS] = OCT_OPTION_RANKS,
    {0},
};

const oct_command oct_command_eval = {
    .name = "eval",
    .usage =
        "octet eval FILE [--data PATH [key=value ...]] [--metrics NAME,...] [--require PERCENT]",
    .summary = "measures the accuracy of a checkpoint, run folder or int8 model on the test data",
    .help =
        "FILE is a checkpoint, a run folder (its newest checkpoint) or an int8 model. The recipe\n"
        "in it names the data. A checkpoint of the float phase is evaluated in float.\n"
        "\n"
        "A model that a program has made has no recipe: --data names a folder or file of `octet\n"
        "help formats`, whose test part, or all where it has none, is taken. What its samples and\n"
        "labels are follows from the model and from names of files and arrays, and key=value\n"
        "changes it, such as data.format=npy, data.labels=NAME or loss.kind=bce.\n"
        "\n"
        "    octet eval runs/a/model.int8.h5 --require 92\n"
        "    octet eval runs/a --ranks 2 --metrics top1,top5\n"
        "    octet eval frames.int8.h5 --data frames.npz data.labels=kind\n",
    .options = options,
    .min_words = 1,
    .max_words = OCT_ARGS_MAX,
    .parallel = true,
    .run = run_eval,
};
