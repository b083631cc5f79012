/* octet check judges everything that a run would need, before any of it starts; and a checkpoint's gradients.
 *
 * Time and memory are measured, not guessed: a short run of one rank's share takes place on the real
 * data, on this machine (forecast.h). What prevents a run, or makes it pointless, is a
 * finding. */
#include "core/base/log.h"
#include "io/file/file.h"
#include "io/model/model_file.h"
#include "launch/session/build.h"
#include "launch/cmd/command.h"
#include "launch/cmd/begun_recipe.h"
#include "launch/cmd/subject.h"
#include "launch/session/file_kind.h"
#include "launch/train/forecast.h"
#include "launch/train/training.h"
#include "launch/base/machine.h"
#include "launch/session/plugin_load.h"
#include "launch/train/run_check.h"
#include "launch/cmd/recipe_args.h"
#include "quant/module/quant_modules.h"

enum { RANKS, REPORT, GRADIENTS };
enum { REPORT_BYTES_MAX = 1 << 26 };
enum { STEP_SYNCS = 3 }; /* of a step whose batch norms wait for no other rank */

static const oct_option options[] = {
    [RANKS] = OCT_NUMBER(0, "--ranks", "N", 1, 1 << 20, "check the recipe for N ranks (default 1)"),
    [REPORT] = OCT_TEXT(0, "--report", "FILE",
                        "write the check report of prepare to FILE instead of printing it"),
    [GRADIENTS] = OCT_NUMBER(0, "--gradients", "N", 1, 1000000,
                             "of a checkpoint: compare its gradients of N batches with float32's"),
    {0},
};

/* This is all that is printed, as text or as JSON. */
typedef struct verdict {
    oct_recipe recipe;
    oct_dataset train, test;
    oct_init init; /* empty: the run starts from initial values */
    int ranks;
    oct_plan plan;
    oct_text report;  /* of prepare */
    oct_text exports; /* formats of the int8 model (oct_try_deploy) */
    int64_t parameters;
    int64_t checkpoint_bytes; /* of a QAT checkpoint's tensors */
    int64_t leaves;
    int64_t norms; /* batch norms of the float model */
    oct_forecast forecast;
    int64_t disk_bytes;             /* of the run's files */
    int64_t memory_free, disk_free; /* here; -1: not known */
} verdict;

/* Adds what HDF5 puts around that many bytes of arrays. */
static int64_t file_bytes(int64_t bytes)
{
    enum { AROUND = 64 << 10 };
    return bytes + bytes / 64 + AROUND;
}

static oct_status count_state_tensor(void *user, const oct_state_item *item)
{
    verdict *v = user;
    int64_t numel = oct_numel(item->tensor);
    if (item->param) v->parameters += numel;
    v->checkpoint_bytes += numel * (int64_t)oct_dtype_bytes(item->tensor->dtype);
    return OCT_OK;
}

static oct_status count_norm(void *user, oct_module *module)
{
    verdict *v = user;
    if (module->type == &oct_batch_norm_type) v->norms++;
    return OCT_OK;
}

/* Adds what int8 gradients keep of a layer. */
static oct_status count_gate(void *user, oct_module *module)
{
    verdict *v = user;
    if (module->type == &oct_qat_conv_type)
        v->checkpoint_bytes += OCT_GATE_OPERANDS * OCT_GATE_STATES * (int64_t)sizeof(int64_t);
    return OCT_OK;
}

/* Builds the model and prepares it for QAT, tries its exports, and counts the bytes of checkpoint and optimizer. */
static oct_status judge_model(verdict *v)
{
    const oct_recipe *r = &v->recipe;
    OCT_OWNED(oct_module_destroy) oct_module *model = NULL;
    OCT_TRY(oct_build_model(&model, r, &v->train));
    oct_warn_of_model(r, model);
    OCT_TRY(oct_module_walk(model, count_norm, v));
    OCT_TRY(oct_check_norms(r, &v->train, model));
    oct_log_again(true); /* the short run that follows says what there is to the int8 model */
    const oct_status status = oct_try_deploy(r, &v->train, NULL, &v->exports);
    oct_log_again(false);
    OCT_TRY(status);
    OCT_TRY(oct_prepare_model(&model, r, &v->train, &v->report));
    OCT_TRY(oct_module_state(model, count_state_tensor, v));
    v->checkpoint_bytes +=
        oct_optim_slots(r->optimizer_kind) * v->parameters * (int64_t)sizeof(float);
    return r->numerics == OCT_NUMERICS_INT8 ? oct_module_walk(model, count_gate, v) : OCT_OK;
}

static oct_status report_too_large(const verdict *v)
{
    const oct_forecast *f = &v->forecast;
    const int64_t all = v->ranks * f->bytes[f->peak];
    if (f->too_large)
        return oct_fail_add(
            OCT_RESOURCE,
            "memory: not even %" PRId64 " image%s of %" PRId64 "x%" PRId64
            " at a time can be trained in the %s that are free; use a smaller batch.leaf, "
            "smaller images, a smaller model or another machine",
            f->images, f->images == 1 ? "" : "s", v->train.h, v->train.w,
            oct_text_size(v->memory_free).text);
    if (v->memory_free < 0 || all <= v->memory_free) return OCT_OK;
    return oct_fail_add(OCT_RESOURCE,
                        "memory: %d rank%s need%s about %s in %s, and %s are free; use a "
                        "smaller batch.size, %sor more machines",
                        v->ranks, v->ranks > 1 ? "s" : "", v->ranks > 1 ? "" : "s",
                        oct_text_size(all).text, oct_stage_text(f->peak),
                        oct_text_size(v->memory_free).text,
                        v->ranks > 1 ? "fewer ranks on this machine " : "a smaller model ");
}

static oct_status report_pointless(const verdict *v)
{
    const oct_plan *plan = &v->plan;
    oct_status status = OCT_OK;
    if (v->recipe.batch_size > v->train.count)
        status = oct_fail_add(
            OCT_MISMATCH,
            "batch.size: %" PRId64 ", but there are only %" PRId64
            " training images, so every step takes them all; use a smaller batch.size or more data",
            v->recipe.batch_size, v->train.count);
    if (plan->begin[OCT_PHASE_QAT] == oct_plan_steps(plan))
        status = oct_fail_add(OCT_MISMATCH,
                              "qat.epochs: 0, so nothing is trained as the int8 model that it will "
                              "be; use at least 1");
    return status;
}

/* Only a check report is replaced: a mistyped name must not cost a file. */
static oct_status check_report_file(const char *path)
{
    static const char begin[] = "Check report of prepare";
    OCT_OWNED(oct_free) void *bytes = NULL;
    size_t size = 0;
    if (!oct_file_exists(path)) return OCT_OK;
    OCT_TRY(oct_file_read(path, REPORT_BYTES_MAX, &bytes, &size));
    bool report = strncmp(bytes, begin, sizeof(begin) - 1) == 0;
    OCT_CHECK_ARGS(
        report, "--report %s: already exists and is not a check report; choose another file name",
        path);
    return OCT_OK;
}

/* Creates the teacher of distillation once, so that a checkpoint that does not fit is reported before the run. */
static oct_status try_teacher(verdict *v)
{
    OCT_OWNED(oct_checkpoint_close) oct_checkpoint checkpoint = {0};
    OCT_OWNED(oct_teacher_destroy) oct_teacher teacher = {0};
    OCT_TRY(oct_teacher_open(&v->recipe, &checkpoint));
    return checkpoint.bytes ? oct_teacher_create(&teacher, &checkpoint, &v->recipe, &v->train)
                            : OCT_OK;
}

static oct_status judge_recipe(verdict *v, const oct_args *args)
{
    if (args->option[REPORT].given) OCT_TRY(check_report_file(args->option[REPORT].text));
    v->ranks = (int)oct_option_count(args, RANKS, 1);
    OCT_TRY(oct_recipe_of_args(&v->recipe, args));
    OCT_TRY(oct_plugins_load(&v->recipe.plugins, false, NULL));
    OCT_TRY(oct_check_names(&v->recipe));
    OCT_TRY(oct_onnx_model_open(&v->recipe));
    OCT_TRY(oct_init_open(&v->recipe, &v->init));
    OCT_TRY(oct_load_data(&v->recipe, OCT_TRAIN, NULL, &v->train));
    OCT_TRY(oct_load_data(&v->recipe, OCT_TEST, NULL, &v->test));
    OCT_TRY(oct_run_check(&v->recipe, &v->train, &v->test, v->ranks));
    OCT_TRY(try_teacher(v));
    v->plan = oct_plan_of(&v->recipe, v->train.count);
    int64_t batch = v->recipe.batch_size < v->train.count ? v->recipe.batch_size : v->train.count;
    v->leaves = (batch + v->recipe.batch_leaf - 1) / v->recipe.batch_leaf;
    OCT_TRY(judge_model(v));
    v->memory_free = oct_machine_memory();
    v->disk_free = oct_machine_disk(v->recipe.output);
    /* The checkpoints that are kept, one that is being written, and the model. */
    v->disk_bytes = (v->recipe.checkpoint_keep + 1) * file_bytes(v->checkpoint_bytes) +
                    file_bytes(v->parameters);
    const oct_forecast_subject subject = {&v->recipe, &v->init, &v->train,
                                          &v->test,   v->ranks, file_bytes(v->checkpoint_bytes)};
    return oct_forecast_make(&v->forecast, &subject);
}

static int64_t phase_steps(const verdict *v, int phase)
{
    return v->plan.begin[phase + 1] - v->plan.begin[phase];
}

/* Prints the report, indented by two columns. */
static void print_report(const verdict *v, const char *file)
{
    oct_print("prepared    for %s, %s", oct_target_at(v->recipe.quant_target)->name,
              oct_method_name(v->recipe.quant_method));
    oct_print("%s%s\n", file ? "; the report is in " : "", file ? file : "");
    for (const char *line = file || !v->report.data ? "" : v->report.data; *line;) {
        const int length = (int)strcspn(line, "\n");
        oct_print("  %.*s\n", length, line);
        line += length + (line[length] == '\n');
    }
}

static void print_forecast(const verdict *v)
{
    const oct_forecast *f = &v->forecast;
    oct_print("memory      about %s a rank at most, in %s", oct_text_size(f->bytes[f->peak]).text,
              oct_stage_text(f->peak));
    if (v->memory_free >= 0) oct_print("; %s free here", oct_text_size(v->memory_free).text);
    oct_print("\n");
    for (int i = 0; i < OCT_STAGES; i++)
        if (f->bytes[i] > 0)
            oct_print("  %-18s %12s\n", oct_stage_text((oct_stage)i),
                      oct_text_size(f->bytes[i]).text);
    oct_print("time        about %s with %" PRId64 " evaluation%s (measured here)\n",
              oct_text_time(f->seconds).text, f->evaluations, f->evaluations == 1 ? "" : "s");
    for (int p = 0; p < OCT_PHASES; p++)
        if (phase_steps(v, p) > 0)
            oct_print("  %-18s %9.1f ms a step\n", oct_phase_name((oct_phase)p),
                      1e3 * f->step_seconds[p]);
}

/* Whether norm groups of that many leaves are inside ranks. */
static bool groups_are_in_ranks(const verdict *v, int64_t group)
{
    for (int64_t r = 1; r < v->ranks; r++)
        if (v->leaves * r / v->ranks % group != 0) return false;
    return true;
}

/* Counts how often all ranks wait for each other in a step of the float phase. */
static int64_t count_syncs(const verdict *v)
{
    const int64_t group = oct_recipe_norm_group(&v->recipe);
    const bool norms_wait = group <= 0 || !groups_are_in_ranks(v, group);
    return STEP_SYNCS + (norms_wait ? 2 * v->norms : 0); /* forward and backward of a norm */
}

/* On few ranks a synchronization costs little, so there only their number is printed. */
static void print_syncs(const verdict *v)
{
    enum { MANY = 8, LEAST = 16 };
    const int64_t syncs = count_syncs(v);
    /* Samples of the largest norm group that is inside ranks and divides the batch. */
    int64_t inside = 0;
    if (v->ranks == 1) return;
    for (int64_t group = 1; group <= v->leaves && groups_are_in_ranks(v, group); group *= 2)
        if (v->recipe.batch_size % (group * v->recipe.batch_leaf) == 0)
            inside = group * v->recipe.batch_leaf;
    oct_print("syncs       %" PRId64 " of all ranks in a step", syncs);
    /* Statistics are worth taking from 16 samples on. */
    if (v->ranks >= MANY && syncs > STEP_SYNCS && inside >= LEAST)
        oct_print("; batch_norm.group=%" PRId64 " leaves %d", inside, STEP_SYNCS);
    oct_print("\n");
}

static void print_text(const verdict *v, const char *path, const char *report)
{
    char outputs[48];
    int64_t most = (v->leaves + v->ranks - 1) / v->ranks, least = v->leaves / v->ranks;
    oct_print("recipe      %s\n", path);
    oct_print("data        %s: %s training and %s test images of %" PRId64 "x%" PRId64 "x%" PRId64
              ", %s\n",
              oct_registry_name(&oct_dataset_id_table, v->recipe.data_format),
              oct_text_count(v->train.count).text, oct_text_count(v->test.count).text, v->train.h,
              v->train.w, v->train.c, oct_goal_outputs(v->train.goal, v->train.classes, outputs));
    oct_print("model       %s: %s parameters\n", oct_recipe_model(&v->recipe),
              oct_text_count(v->parameters).text);
    const oct_checkpoint *init = &v->init.checkpoint;
    if (v->init.weights.path)
        oct_print("init        %s: %s arrays of floats\n", v->init.weights.path,
                  oct_text_count(v->init.weights.count).text);
    else if (init->bytes)
        oct_print("init        %s: step %" PRId64 ", phase %s\n", init->path, init->info.step,
                  init->info.phase);
    oct_print("batch       %s leaves of %s samples", oct_text_count(v->leaves).text,
              oct_text_count(v->recipe.batch_leaf).text);
    if (most == least)
        oct_print("; %d rank%s: %s each\n", v->ranks, v->ranks > 1 ? "s" : "",
                  oct_text_count(most).text);
    else
        oct_print("; %d ranks: %s or %s each\n", v->ranks, oct_text_count(least).text,
                  oct_text_count(most).text);
    print_syncs(v);
    oct_print("phases      %s step%s an epoch\n", oct_text_count(v->plan.steps_per_epoch).text,
              v->plan.steps_per_epoch == 1 ? "" : "s");
    for (int p = 0; p < OCT_PHASES; p++)
        oct_print("  %-18s %9s step%s\n", oct_phase_name((oct_phase)p),
                  oct_text_count(phase_steps(v, p)).text, phase_steps(v, p) == 1 ? "" : "s");
    print_report(v, report);
    /* The formats, and a line for each that the int8 model will not have. */
    const char *at = v->exports.data ? v->exports.data : "";
    for (bool first = true; first || *at; first = false) {
        const int length = (int)strcspn(at, "\n");
        oct_print("%-11s %.*s\n", first ? "exports" : "", length, at);
        at += length + (at[length] == '\n');
    }
    oct_print("checkpoint  %s of state, %" PRId64 " kept\n",
              oct_text_size(v->checkpoint_bytes).text, v->recipe.checkpoint_keep);
    oct_print("disk        about %s in %s", oct_text_size(v->disk_bytes).text, v->recipe.output);
    if (v->disk_free >= 0) oct_print("; %s free", oct_text_size(v->disk_free).text);
    oct_print("\n");
    if (!v->forecast.too_large) print_forecast(v);
}

static void print_json(const verdict *v, const char *path)
{
    const oct_forecast *f = &v->forecast;
    json_t *phases = json_object(), *seconds = json_object();
    json_t *stages = json_object(), *findings = json_array();
    for (int i = 0; i < OCT_STAGES; i++)
        if (f->bytes[i] > 0)
            json_object_set_new(stages, oct_stage_text((oct_stage)i), json_integer(f->bytes[i]));
    for (size_t i = 0; i < oct_error_count(); i++)
        json_array_append_new(findings, json_string(oct_error_message(i)));
    for (int p = 0; p < OCT_PHASES; p++) {
        json_object_set_new(phases, oct_phase_name((oct_phase)p), json_integer(phase_steps(v, p)));
        if (f->step_seconds[p] > 0)
            json_object_set_new(seconds, oct_phase_name((oct_phase)p),
                                json_real(f->step_seconds[p]));
    }
    oct_print_json(json_pack(
        "{s:s, s:o, s:I, s:I, s:[I,I,I], s:I, s:s, s:I, s:i, s:I, s:I, s:o, s:s, s:I, s:I, s:o, "
        "s:I, s:I, s:I, s:o, s:f, s:o, s:I, s:s}",
        "kind", "recipe", "file", oct_json_string(path), "train_images", (json_int_t)v->train.count,
        "test_images", (json_int_t)v->test.count, "image", (json_int_t)v->train.h,
        (json_int_t)v->train.w, (json_int_t)v->train.c, "classes", (json_int_t)v->train.classes,
        "model", oct_recipe_model(&v->recipe), "parameters", (json_int_t)v->parameters, "ranks",
        v->ranks, "leaves", (json_int_t)v->leaves, "steps_per_epoch",
        (json_int_t)v->plan.steps_per_epoch, "steps", phases, "report",
        v->report.data ? v->report.data : "", "checkpoint_bytes", (json_int_t)v->checkpoint_bytes,
        "memory_bytes", (json_int_t)f->bytes[f->peak], "memory_bytes_of", stages,
        "memory_bytes_free", (json_int_t)v->memory_free, "disk_bytes", (json_int_t)v->disk_bytes,
        "disk_bytes_free", (json_int_t)v->disk_free, "step_seconds", seconds, "seconds", f->seconds,
        "findings", findings, "syncs_per_step", (json_int_t)count_syncs(v), "exports",
        v->exports.data ? v->exports.data : ""));
}

static oct_status check_recipe(const oct_args *args)
{
    verdict v = {0};
    const char *file = args->option[REPORT].text;
    oct_status status = judge_recipe(&v, args);
    if (status == OCT_OK && file) status = oct_file_write(file, v.report.data, v.report.length);
    if (status == OCT_OK) {
        /* The sentences of what is found follow on stderr, as those of every failure do. */
        oct_fail_clear();
        const oct_status pointless = report_pointless(&v), memory = report_too_large(&v),
                         disk = oct_check_disk(&v.recipe, v.disk_bytes);
        const oct_status found = memory != OCT_OK ? memory : disk != OCT_OK ? disk : pointless;
        args->json ? print_json(&v, args->word[0]) : print_text(&v, args->word[0], file);
        if (found == OCT_OK && !args->json) oct_print("OK          ready to train\n");
        status = found;
    }
    oct_text_free(&v.report);
    oct_text_free(&v.exports);
    oct_init_close(&v.init);
    oct_dataset_close(&v.train);
    oct_dataset_close(&v.test);
    oct_recipe_free(&v.recipe);
    return status;
}

/* What is shown of gradients. */
typedef struct gradient_table {
    const oct_params *params;
    oct_error_sums *sums; /* of each, then of all weights */
    json_t *rows;         /* NULL: as text */
} gradient_table;

static void show_gradient(const gradient_table *t, const char *name, const oct_error_sums *s)
{
    const double error = s->signal > 0 ? sqrt(s->noise / s->signal) : 0;
    const double projection = s->signal > 0 ? s->product / s->signal : 1;
    if (t->rows)
        json_array_append_new(t->rows, json_pack("{s:s, s:f, s:f, s:f}", "weights", name, "cosine",
                                                 oct_error_cosine(s), "error", error, "projection",
                                                 projection));
    else
        oct_print("%-44s %9.6f %8.3f %% %10.4f\n", name, oct_error_cosine(s), 100 * error,
                  projection);
}

static oct_status show_weights(void *user, const oct_state_item *item)
{
    const gradient_table *t = user;
    for (size_t k = 0; k < t->params->count; k++)
        if (t->params->items[k] == item->param && item->tensor->shape.ndim > 1)
            show_gradient(t, item->path, &t->sums[k]);
    return OCT_OK;
}

/* Compares the gradients of a checkpoint's weights by its run's numerics with those by float32. */
static oct_status check_gradients(const oct_args *args)
{
    OCT_OWNED(oct_subject_close) oct_subject subject = {0};
    OCT_OWNED(oct_trainer_destroy) oct_trainer trainer = {0};
    OCT_OWNED(oct_free) oct_error_sums *sums = NULL;
    json_auto_t *rows = args->json ? json_array() : NULL;
    const oct_checkpoint *c = &subject.checkpoint;
    const int64_t batches = oct_option_count(args, GRADIENTS, 1);
    oct_phase phase;
    OCT_CHECK_ARGS(args->num_words == 1 && !args->option[RANKS].given &&
                       !args->option[REPORT].given,
                   "overrides, --ranks and --report are not for --gradients");
    OCT_TRY(oct_subject_open(&subject, args->word[0], OCT_FILE_CHECKPOINT | OCT_FILE_RUN_FOLDER,
                             "check --gradients takes a checkpoint or a run folder"));
    OCT_TRY(oct_checkpoint_phase(c, &phase));
    OCT_CHECK(phase >= OCT_PHASE_QAT, OCT_PREPARE,
              "%s: is of the phase %s; take a checkpoint of QAT", c->path, c->info.phase);
    OCT_TRY(oct_subject_read_recipe(&subject, NULL));
    OCT_TRY(oct_load_data(&subject.recipe, OCT_TRAIN, NULL, &subject.data));
    OCT_TRY(oct_trainer_create(&trainer, &subject.recipe, &oct_collective_one, &subject.data,
                               &subject.data)); /* nothing is evaluated */
    OCT_TRY(oct_trainer_restore(&trainer, c));
    const oct_params *params = &trainer.training.params;
    OCT_TRY(oct_alloc(&sums, params->count + 1, sizeof *sums));
    OCT_TRY(oct_trainer_compare_gradients(&trainer, batches, sums));
    gradient_table t = {.params = params, .sums = sums, .rows = rows};
    if (!rows) oct_print("%-44s %9s %10s %10s\n", "weights", "cosine", "error", "projection");
    OCT_TRY(oct_module_state(trainer.model, show_weights, &t));
    show_gradient(&t, "all", &sums[params->count]);
    if (rows)
        oct_print_json(json_pack("{s:s, s:o, s:I, s:s, s:I, s:O}", "kind", "gradients",
                                 "checkpoint", oct_json_string(c->path), "step",
                                 (json_int_t)c->info.step, "numerics",
                                 oct_numerics_name(subject.recipe.numerics), "batches",
                                 (json_int_t)batches, "weights", rows));
    return OCT_OK;
}

static oct_status run_check_command(const oct_args *args)
{
    oct_file_kind kind;
    OCT_OWNED(oct_model_free) oct_model model = {0};
    if (args->option[GRADIENTS].given) return check_gradients(args);
    OCT_TRY(oct_shipped_hint(args->word[0]));
    if (oct_data_is(args->word[0])) return check_recipe(args);
    OCT_TRY(oct_file_kind_of(args->word[0], &kind));
    if (kind == OCT_FILE_RECIPE) return check_recipe(args);
    OCT_TRY(oct_file_check_intact(args->word[0], kind));
    OCT_CHECK_ARGS(
        kind == OCT_FILE_MODEL,
        "%s is a %s; check takes a recipe or an int8 model; `octet inspect` shows other files",
        args->word[0], oct_file_kind_name(kind));
    OCT_CHECK_ARGS(
        args->num_words == 1 && !args->option[RANKS].given && !args->option[REPORT].given,
        "overrides, --ranks and --report are for recipes; %s is an int8 model", args->word[0]);
    OCT_TRY(oct_model_load(&model, args->word[0], args->allow_large));
    const int64_t steps = model.program.num_steps, in_float = model.certificate.num_fallbacks;
    if (args->json)
        oct_print_json(json_pack("{s:s, s:o, s:I, s:I}", "kind", "int8 model", "file",
                                 oct_json_string(args->word[0]), "steps", (json_int_t)steps,
                                 "float_layers", (json_int_t)in_float));
    else
        oct_print("OK          int8 model: digest, program and bounds are sound; %" PRId64
                  " steps, %" PRId64 " layers in float\n",
                  steps, in_float);
    return OCT_OK;
}

const oct_command oct_command_check = {
    .name = "check",
    .usage = "octet check RECIPE|DATA|MODEL [key=value ...] [--ranks N] [--report FILE]\n"
             "       octet check CHECKPOINT|RUN-FOLDER --gradients N",
    .summary = "checks recipe, data, model and target; predicts memory, size and time",
    .help =
        "Reads everything that a run would read, prepares the model for its target, and makes a\n"
        "short run of one rank's share, every phase of it, to measure time and memory. Prints\n"
        "the check report of prepare: what becomes of each module, what stays float and why.\n"
        "Nothing is written but the file of --report.\n"
        "\n"
        "Memory is that of the rank that takes most, and is compared with what is free here for\n"
        "all ranks, as the run's files are with the room that output has. What does not fit is\n"
        "refused (exit status 7); a plan without QAT, or a batch larger than the data, is a\n"
        "finding (exit status 1).\n"
        "\n"
        "--gradients compares a QAT checkpoint's gradients of N batches, by its run's numerics,\n"
        "with float32's: cosine, relative error, and how long the one is along the other "
        "(projection).",
    .options = options,
    .min_words = 1,
    .max_words = OCT_ARGS_MAX,
    .run = run_check_command,
};
