/* octet plot draws curves of a run, or of two, with characters. */
#include "core/base/log.h"
#include "launch/cmd/command.h"
#include "launch/report/page_run.h"
#include "launch/report/series.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WIDTH, HEIGHT, ASCII };
enum { KEYS_MAX = 16, RUNS_MAX = 2, NAMES_MAX = 64, KEY_BYTES = 72 };
enum { STANDARD_COLUMNS = 80, STANDARD_ROWS = 16 };

typedef struct request {
    oct_page_run run[RUNS_MAX];
    const char *path[RUNS_MAX];
    int runs;
    const char *key[KEYS_MAX];
    size_t keys;
    char name[NAMES_MAX][KEY_BYTES]; /* that the records know */
    size_t names;
} request;

/* The two curves of a key: of training batches and of evaluations. */
typedef struct curve_pair {
    oct_series training, evaluation;
} curve_pair;

static void free_pair(curve_pair *p)
{
    oct_series_free(&p->training);
    oct_series_free(&p->evaluation);
}

static oct_status read_pair(curve_pair *p, const oct_page_run *run, const char *key)
{
    OCT_TRY(oct_series_of(&p->training, oct_page_run_records(run, "step"), NULL, key));
    OCT_TRY(oct_series_of(&p->evaluation, oct_page_run_records(run, "eval"), NULL, key));
    if (p->evaluation.count) return OCT_OK;
    return oct_series_of(&p->evaluation, oct_page_run_records(run, "eval"), "metrics", key);
}

/* Names of the keys that have numbers. */

static bool is_known_key(const request *r, const char *word)
{
    for (size_t i = 0; i < r->names; i++)
        if (strcmp(r->name[i], word) == 0) return true;
    return false;
}

/* Adds the keys of a record whose values are numbers to plot, not the position in the run. */
static void add_known_keys(request *r, json_t *record)
{
    static const char *const places[] = {"step", "epoch", "images", "correct"};
    const char *name;
    json_t *value;
    json_object_foreach(record, name, value)
    {
        bool is_place = false;
        for (size_t i = 0; i < OCT_COUNT(places); i++)
            is_place = is_place || strcmp(places[i], name) == 0;
        if (json_is_number(value) && !is_place && !is_known_key(r, name) && r->names < NAMES_MAX &&
            strlen(name) < KEY_BYTES)
            snprintf(r->name[r->names++], KEY_BYTES, "%s", name);
    }
}

static oct_status report_unknown_word(const request *r, const char *word)
{
    char hint[OCT_HINT_BYTES];
    const char *names[NAMES_MAX];
    OCT_OWNED(oct_text_free) oct_text all = {0};
    for (size_t i = 0; i < r->names; i++) {
        names[i] = r->name[i];
        OCT_TRY(oct_text_add(&all, "%s%s", i ? ", " : "", r->name[i]));
    }
    return oct_fail(
        OCT_USAGE,
        "command line: '%s' is neither a figure of %s nor a second run; %s\nthere are: %s", word,
        r->path[0], oct_did_you_mean(hint, word, names, r->names, "choose one"),
        all.data ? all.data : "none");
}

static oct_status open_run(request *r, const char *path)
{
    oct_page_run *run = &r->run[r->runs];
    r->path[r->runs++] = path;
    OCT_TRY(oct_page_run_open(run, path, true, false));
    if (run->why[OCT_RUN_FILE_RECORDS] && json_array_size(run->records))
        oct_log(OCT_LOG_WARN, "%s: %s", path, run->why[OCT_RUN_FILE_RECORDS]);
    OCT_CHECK(json_array_size(oct_page_run_records(run, "step")) ||
                  json_array_size(oct_page_run_records(run, "eval")),
              OCT_DATA, "%s: no step has been recorded yet, so there is nothing to plot", path);
    return OCT_OK;
}

/* The first word is a run; of the others each is a key that its records know, or a second run. */
static oct_status read_words(request *r, const oct_args *args)
{
    struct stat info;
    OCT_TRY(open_run(r, args->word[0]));
    json_t *eval = oct_page_run_record(&r->run[0], "eval");
    add_known_keys(r, oct_page_run_record(&r->run[0], "step"));
    add_known_keys(r, eval);
    add_known_keys(r, json_object_get(eval, "metrics"));
    for (size_t i = 1; i < args->num_words; i++) {
        const char *word = args->word[i];
        if (is_known_key(r, word)) {
            OCT_CHECK_ARGS(r->keys < KEYS_MAX, "at most %d figures at a time", KEYS_MAX);
            r->key[r->keys++] = word;
        } else {
            if (stat(word, &info) != 0) return report_unknown_word(r, word);
            OCT_CHECK_ARGS(r->runs < RUNS_MAX, "%s: two runs at most", word);
            OCT_TRY(open_run(r, word));
        }
    }
    if (!r->keys) r->key[r->keys++] = is_known_key(r, "loss") ? "loss" : r->name[0];
    return OCT_OK;
}

static oct_status plot_key(const request *r, const char *key, const oct_terminal *terminal)
{
    curve_pair pairs[RUNS_MAX] = {0};
    OCT_OWNED(oct_text_free) oct_text text = {0};
    const oct_plot_spans spans = oct_plot_spans_of(r->run[0].records);
    oct_plot plot = {.title = key,
                     .unit = strcmp(key, "accuracy") == 0 ? "%" : "",
                     .spans = &spans,
                     .free_scale = strcmp(key, "loss") == 0 || strcmp(key, "grad_norm") == 0};
    oct_status status = OCT_OK;
    for (int run = 0; run < r->runs; run++) {
        OCT_TRY_OUT(read_pair(&pairs[run], &r->run[run], key));
        const struct {
            const oct_series *series;
            const char *name;
            bool dots;
        } curves[] = {{&pairs[run].training, "training batches", false},
                      {&pairs[run].evaluation, "evaluation", true}};
        for (size_t i = 0; i < OCT_COUNT(curves); i++) {
            char name[96];
            snprintf(name, sizeof name, "%.60s%s%s", r->runs > 1 ? r->path[run] : "",
                     r->runs > 1 ? ": " : "", curves[i].name);
            oct_plot_curve *curve = oct_plot_add(&plot, curves[i].series, name);
            if (!curve) continue;
            curve->dots = curves[i].dots;
            curve->colour = run;
        }
    }
    OCT_TRY_OUT(oct_terminal_plot(&plot, terminal, &text));
    oct_print("%s\n", text.data ? text.data : "");
out:
    for (int run = 0; run < RUNS_MAX; run++)
        free_pair(&pairs[run]);
    return status;
}

static oct_status add_run_json(const request *r, int run, json_t *runs)
{
    json_auto_t *figures = json_object();
    for (size_t k = 0; k < r->keys; k++) {
        OCT_OWNED(free_pair) curve_pair p = {0};
        OCT_TRY(read_pair(&p, &r->run[run], r->key[k]));
        json_object_set_new(figures, r->key[k],
                            json_pack("{s:o, s:o}", "training", oct_series_json(&p.training),
                                      "evaluation", oct_series_json(&p.evaluation)));
    }
    json_array_append_new(runs, json_pack("{s:o, s:o, s:O}", "run", oct_json_string(r->path[run]),
                                          "phases", oct_plot_spans_json(r->run[run].records),
                                          "figures", figures));
    return OCT_OK;
}

/* Whether the locale of the environment says UTF-8. */
static bool says_utf8(void)
{
    static const char *const variables[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < OCT_COUNT(variables); i++) {
        const char *value = getenv(variables[i]);
        if (!value || !*value) continue;
        return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}

static oct_status run_plot(const oct_args *args)
{
    OCT_OWNED(oct_free) request *r = NULL;
    OCT_TRY(oct_alloc(&r, 1, sizeof *r));
    struct winsize size = {0};
    const int columns = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0
                            ? size.ws_col
                            : STANDARD_COLUMNS;
    const oct_terminal terminal = {
        .columns =
            (int)oct_option_count(args, WIDTH,
                                  columns < OCT_TERMINAL_COLUMNS_MIN   ? OCT_TERMINAL_COLUMNS_MIN
                                  : columns > OCT_TERMINAL_COLUMNS_MAX ? OCT_TERMINAL_COLUMNS_MAX
                                                                       : columns),
        .rows = (int)oct_option_count(args, HEIGHT, STANDARD_ROWS),
        .unicode = !args->option[ASCII].given && says_utf8()};
    json_t *runs = args->json ? json_array() : NULL;
    oct_status status = read_words(r, args);
    for (int run = 0; runs && run < r->runs && status == OCT_OK; run++)
        status = add_run_json(r, run, runs);
    for (size_t k = 0; !runs && k < r->keys && status == OCT_OK; k++)
        status = plot_key(r, r->key[k], &terminal);
    if (runs && status == OCT_OK)
        oct_print_json(
            json_pack("{s:i, s:s, s:O}", "schema_version", 1, "kind", "plot", "runs", runs));
    json_decref(runs);
    for (int i = 0; i < RUNS_MAX; i++)
        oct_page_run_close(&r->run[i]);
    return status;
}

static const oct_option options[] = {
    [WIDTH] = OCT_NUMBER(0, "--width", "N", OCT_TERMINAL_COLUMNS_MIN, OCT_TERMINAL_COLUMNS_MAX,
                         "columns (default: those of the terminal, or 80)"),
    [HEIGHT] = OCT_NUMBER(0, "--height", "N", 4, 100, "lines of the drawing (default 16)"),
    [ASCII] = OCT_SWITCH(0, "--ascii", "ASCII characters alone (default without UTF-8)"),
    {0},
};

const oct_command oct_command_plot = {
    .name = "plot",
    .usage = "octet plot RUN [loss | accuracy | lr | METRIC ...] [RUN2]",
    .summary = "draws curves of a run, or of two, in the terminal",
    .help =
        "Figures are those of metrics.jsonl: loss, accuracy, lr, images_per_s and the recipe's\n"
        "metrics; without one the loss is drawn. Lines are training batches, marks are\n"
        "evaluations, and dotted lines stand where phases begin. --json prints the numbers\n"
        "instead.\n"
        "\n"
        "    octet plot runs/a\n"
        "    octet plot runs/a loss accuracy runs/b\n"
        "    ssh cluster octet plot runs/a lr --width 120\n",
    .options = options,
    .min_words = 1,
    .max_words = 1 + KEYS_MAX + RUNS_MAX,
    .run = run_plot,
};
