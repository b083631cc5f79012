/* octet check: judges everything that a run would need, before any of it starts.
 *
 * Time and memory are measured, not guessed: one rank's share of a batch is trained for a few steps of
 * the first phase on the real data, on this machine.
 */
#include "core/base/mem.h"
#include "io/file.h"
#include "io/model_file.h"
#include "launch/command.h"
#include "launch/file_kind.h"
#include "launch/init.h"
#include "launch/output.h"
#include "launch/plugin_load.h"
#include "launch/progress.h"
#include "launch/shipped.h"
#include "launch/trainer.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <omp.h>
#include <string.h>

enum { RANKS, REPORT };
enum { REPORT_BYTES_MAX = 1 << 26 };
enum {
    MEASURED_SAMPLES = 256,
    MEASURED_STEPS = 4
}; /* a larger share is scaled up from this many */

static const oct_option options[] = {
    [RANKS] = {"--ranks", 0, OCT_OPT_COUNT, "N", "check the recipe for N ranks (default 1)", 1,
               1 << 20},
    [REPORT] = {"--report", 0, OCT_OPT_TEXT, "FILE",
                "write the check report of prepare to FILE instead of printing it", 0, 0},
    {0},
};

/* All that is printed, in either form. */
typedef struct verdict {
    oct_recipe recipe;
    oct_dataset train, test;
    oct_checkpoint init; /* bytes NULL: the run starts from initial values */
    int ranks;
    oct_plan plan;
    oct_text report; /* of prepare */
    int64_t parameters;
    int64_t checkpoint_bytes; /* of a QAT checkpoint's tensors */
    int64_t leaves;
    double step_seconds;
    int64_t step_bytes; /* of one rank, data set included */
} verdict;

static oct_status load_data(verdict *v)
{
    OCT_TRY(oct_load_data(&v->recipe, OCT_TRAIN, &v->train));
    return oct_load_data(&v->recipe, OCT_TEST, &v->test);
}

static oct_status count_item(void *user, const oct_state_item *item)
{
    verdict *v = user;
    int64_t numel = oct_numel(item->tensor);
    if (item->param) v->parameters += numel;
    v->checkpoint_bytes += numel * (int64_t)oct_dtype_bytes(item->tensor->dtype);
    return OCT_OK;
}

static oct_status judge_model(verdict *v)
{
    const oct_recipe *r = &v->recipe;
    oct_module *model = NULL;
    oct_status status = OCT_OK;
    OCT_TRY(oct_build_model(&model, r, &v->train));
    OCT_TRY_OUT(oct_prepare_model(&model, r, &v->train, &v->report));
    OCT_TRY_OUT(oct_module_state(model, count_item, v));
    int64_t slots = strcmp(r->optimizer_kind, "adamw") == 0 ? 2 : 1;
    v->checkpoint_bytes += slots * v->parameters * (int64_t)sizeof(float);
out:
    oct_module_destroy(&model);
    return status;
}

/* A few steps of one rank's share. The first one fills the pools; of the others the fastest counts,
 * since whatever else the machine does only makes them slower. */
static oct_status measure(verdict *v)
{
    oct_recipe share = v->recipe; /* borrowed texts */
    oct_trainer trainer = {0};
    oct_step_result result;
    oct_status status = OCT_OK;
    int64_t wanted = (v->leaves + v->ranks - 1) / v->ranks * share.batch_leaf;
    share.batch_size = wanted < MEASURED_SAMPLES ? wanted : MEASURED_SAMPLES;
    share.data_drop_last = false;
    double scale = (double)wanted / (double)share.batch_size;
    size_t before = oct_mem_live();

    omp_set_num_threads((int)share.threads);
    OCT_TRY(oct_trainer_create(&trainer, &share, &oct_collective_one, &v->train, &v->test));
    if (v->init.bytes) OCT_TRY_OUT(oct_trainer_start_from(&trainer, &v->init));
    double fastest = HUGE_VAL, begin;
    oct_mem_peak_reset();
    for (int step = 0; step < MEASURED_STEPS && !oct_trainer_done(&trainer); step++) {
        begin = oct_seconds();
        OCT_TRY_OUT(oct_trainer_step(&trainer, &result));
        if (step > 0 || oct_trainer_done(&trainer)) fastest = fmin(fastest, oct_seconds() - begin);
    }
    v->step_seconds = fastest * scale;
    v->step_bytes = (int64_t)((double)(oct_mem_peak() - before) * scale) + (int64_t)before;
out:
    oct_trainer_destroy(&trainer);
    return status;
}

/* A mistyped name must not cost a file. */
static oct_status check_report_file(const char *path)
{
    static const char begin[] = "Check report of prepare";
    void *bytes = NULL;
    size_t size = 0;
    if (!oct_file_exists(path)) return OCT_OK;
    OCT_TRY(oct_file_read(path, REPORT_BYTES_MAX, &bytes, &size));
    bool report = strncmp(bytes, begin, sizeof(begin) - 1) == 0;
    oct_free(&bytes);
    OCT_CHECK(report, OCT_USAGE,
              "command line: --report %s: already exists and is not a check report; choose another "
              "file name",
              path);
    return OCT_OK;
}

static oct_status judge(verdict *v, const oct_args *args)
{
    if (args->option[REPORT].given) OCT_TRY(check_report_file(args->option[REPORT].text));
    v->ranks = args->option[RANKS].given ? (int)args->option[RANKS].count : 1;
    OCT_TRY(oct_recipe_of_args(&v->recipe, args));
    OCT_TRY(oct_plugins_load(&v->recipe.plugins));
    OCT_TRY(oct_check_names(&v->recipe));
    OCT_TRY(oct_init_open(&v->recipe, &v->init));
    OCT_TRY(load_data(v));
    OCT_TRY(oct_run_check(&v->recipe, &v->train, &v->test, v->ranks));
    v->plan = oct_plan_of(&v->recipe, v->train.count);
    int64_t batch = v->recipe.batch_size < v->train.count ? v->recipe.batch_size : v->train.count;
    v->leaves = (batch + v->recipe.batch_leaf - 1) / v->recipe.batch_leaf;
    OCT_TRY(judge_model(v));
    return measure(v);
}

static int64_t phase_steps(const verdict *v, int phase)
{
    return v->plan.begin[phase + 1] - v->plan.begin[phase];
}

static oct_status print_phases(const verdict *v)
{
    char count[32];
    OCT_TRY(oct_print("phases      %s step%s an epoch\n",
                      oct_text_count(v->plan.steps_per_epoch, count),
                      v->plan.steps_per_epoch == 1 ? "" : "s"));
    for (int p = 0; p < OCT_PHASES; p++)
        OCT_TRY(oct_print("  %-18s %9s step%s\n", oct_phase_name((oct_phase)p),
                          oct_text_count(phase_steps(v, p), count),
                          phase_steps(v, p) == 1 ? "" : "s"));
    return OCT_OK;
}

/* The report, two columns in. */
static oct_status print_report(const verdict *v, const char *file)
{
    OCT_TRY(oct_print("prepared    for %s, %s", v->recipe.quant_target, v->recipe.quant_method));
    if (file) return oct_print("; the report is in %s\n", file);
    OCT_TRY(oct_print("\n"));
    for (const char *line = v->report.data ? v->report.data : ""; *line;) {
        int length = (int)strcspn(line, "\n");
        OCT_TRY(oct_print("  %.*s\n", length, line));
        line += length + (line[length] == '\n');
    }
    return OCT_OK;
}

static oct_status print_text(const verdict *v, const char *path, const char *report)
{
    char a[32], b[32], c[32];
    const double mb = 1e6;
    int64_t most = (v->leaves + v->ranks - 1) / v->ranks, least = v->leaves / v->ranks;
    OCT_TRY(oct_print("recipe      %s\n", path));
    OCT_TRY(oct_print("data        %s: %s training and %s test images of %" PRId64 "x%" PRId64
                      "x%" PRId64 ", %d classes\n",
                      v->recipe.data_format, oct_text_count(v->train.count, a),
                      oct_text_count(v->test.count, b), v->train.h, v->train.w, v->train.c,
                      v->train.classes));
    OCT_TRY(oct_print("model       %s: %s parameters\n", v->recipe.model_name,
                      oct_text_count(v->parameters, a)));
    if (v->init.bytes)
        OCT_TRY(oct_print("init        %s: step %" PRId64 ", phase %s\n", v->init.path,
                          v->init.info.step, v->init.info.phase));
    OCT_TRY(oct_print("batch       %s leaves of %s samples", oct_text_count(v->leaves, a),
                      oct_text_count(v->recipe.batch_leaf, b)));
    if (most == least)
        OCT_TRY(oct_print("; %d rank%s: %s each\n", v->ranks, v->ranks > 1 ? "s" : "",
                          oct_text_count(most, c)));
    else
        OCT_TRY(oct_print("; %d ranks: %s or %s each\n", v->ranks, oct_text_count(least, b),
                          oct_text_count(most, c)));
    OCT_TRY(print_phases(v));
    OCT_TRY(print_report(v, report));
    OCT_TRY(oct_print("checkpoint  %.2f MB of state, %" PRId64 " kept\n",
                      (double)v->checkpoint_bytes / mb, v->recipe.checkpoint_keep));
    OCT_TRY(oct_print("memory      about %.0f MB a rank in the first phase, data sets included\n",
                      (double)v->step_bytes / mb));
    OCT_TRY(oct_print("time        about %s without evaluations (%.1f ms a step, measured here)\n",
                      oct_text_time(v->step_seconds * (double)oct_plan_steps(&v->plan), a),
                      v->step_seconds * 1e3));
    return oct_print("OK          ready to train\n");
}

static oct_status print_json(const verdict *v, const char *path)
{
    json_t *phases = json_object();
    for (int p = 0; p < OCT_PHASES; p++)
        json_object_set_new(phases, oct_phase_name((oct_phase)p), json_integer(phase_steps(v, p)));
    return oct_print_json(json_pack(
        "{s:s, s:s, s:I, s:I, s:[I,I,I], s:i, s:s, s:I, s:i, s:I, s:I, s:o, s:s, s:I, s:I, s:f}",
        "kind", "recipe", "file", path, "train_images", (json_int_t)v->train.count, "test_images",
        (json_int_t)v->test.count, "image", (json_int_t)v->train.h, (json_int_t)v->train.w,
        (json_int_t)v->train.c, "classes", v->train.classes, "model", v->recipe.model_name,
        "parameters", (json_int_t)v->parameters, "ranks", v->ranks, "leaves", (json_int_t)v->leaves,
        "steps_per_epoch", (json_int_t)v->plan.steps_per_epoch, "steps", phases, "report",
        v->report.data ? v->report.data : "", "checkpoint_bytes", (json_int_t)v->checkpoint_bytes,
        "memory_bytes", (json_int_t)v->step_bytes, "step_seconds", v->step_seconds));
}

static oct_status check_recipe(const oct_args *args)
{
    verdict v = {0};
    const char *file = args->option[REPORT].given ? args->option[REPORT].text : NULL;
    oct_status status = judge(&v, args);
    if (status == OCT_OK && file) status = oct_file_write(file, v.report.data, v.report.length);
    if (status == OCT_OK)
        status = args->json ? print_json(&v, args->word[0]) : print_text(&v, args->word[0], file);
    oct_text_free(&v.report);
    oct_checkpoint_close(&v.init);
    oct_dataset_free(&v.train);
    oct_dataset_free(&v.test);
    oct_recipe_free(&v.recipe);
    return status;
}

static oct_status check_model(const oct_args *args)
{
    oct_model model = {0};
    OCT_TRY(oct_model_load(&model, args->word[0]));
    oct_status status =
        args->json
            ? oct_print_json(json_pack("{s:s, s:s, s:I, s:I}", "kind", "int8 model", "file",
                                       args->word[0], "steps", (json_int_t)model.program.num_steps,
                                       "float_layers", (json_int_t)model.certificate.num_islands))
            : oct_print("OK          int8 model: digest, program and bounds are sound; %" PRId64
                        " steps, %" PRId64 " layers in float\n",
                        model.program.num_steps, model.certificate.num_islands);
    oct_model_free(&model);
    return status;
}

static oct_status run(const oct_args *args)
{
    oct_file_kind kind;
    OCT_TRY(oct_shipped_hint(args->word[0]));
    OCT_TRY(oct_file_kind_of(args->word[0], &kind));
    if (kind == OCT_FILE_RECIPE) return check_recipe(args);
    OCT_TRY(oct_file_whole(args->word[0], kind));
    OCT_CHECK(kind == OCT_FILE_MODEL, OCT_USAGE,
              "command line: %s is a %s; check takes a recipe or an int8 model; `octet inspect` "
              "shows other files",
              args->word[0], oct_file_kind_name(kind));
    OCT_CHECK(args->num_words == 1 && !args->option[RANKS].given && !args->option[REPORT].given,
              OCT_USAGE,
              "command line: overrides, --ranks and --report are for recipes; %s is an int8 model",
              args->word[0]);
    return check_model(args);
}

const oct_command oct_command_check = {
    .name = "check",
    .usage = "octet check RECIPE|MODEL [key=value ...] [--ranks N] [--report FILE]",
    .summary = "checks recipe, data, model and target; predicts memory, size and time",
    .help = "Reads everything that a run would read, prepares the model for its target, and trains "
            "a few\n"
            "steps of one rank's share to measure time and memory. Prints the check report of "
            "prepare: what\n"
            "becomes of each module, what stays float and why. Writes nothing but the file of "
            "--report.\n"
            "\n"
            "    octet check my.yaml --ranks 4\n"
            "    octet check my.yaml batch.size=64 --report report.txt\n",
    .options = options,
    .min_words = 1,
    .max_words = OCT_ARGS_MAX,
    .run = run,
};
