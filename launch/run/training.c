/* A run goes through its folder: resume, steps with evaluations and checkpoints between them, conversion.
 *
 * Every decision here is made alike on all ranks: from the step, from what a step's control reduction
 * said, or from an agreement. Only rank 0 touches files and speaks.
 */
#include "launch/run/training.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "dist/rank_table.h"
#include "io/file.h"
#include "launch/run/certificate.h"
#include "launch/run/job.h"
#include "launch/run/progress.h"
#include "launch/run/run_folder.h"
#include "launch/run/trainer_state.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { RESULT_VERSION = 1, SAVES_MAY_FAIL = 2, RECORDS_PER_EPOCH = 20 };

typedef struct run {
    oct_session *session;
    const oct_args *args;
    const oct_recipe *recipe;
    oct_checkpoint *init; /* what the run starts from; bytes NULL: its own initial values */
    oct_dataset train_data, test_data;
    oct_trainer trainer;
    oct_run_folder folder; /* rank 0 */
    char *checkpoints;     /* its folder */
    char *model_path;
    oct_progress progress;
    oct_step_totals recorded; /* since the last step record */
    double record_clock;
    int failed_saves;      /* one after another */
    double float_accuracy; /* at the end of the float phase, percent; -1: not known */
} run;

/* The first signal asks for a stop at the end of the step; a second one acts as usual. */
static volatile sig_atomic_t stop_asked;

static void ask_to_stop(int signal_number)
{
    (void)signal_number;
    stop_asked = 1;
}

void oct_train_catch_signals(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGUSR1};
    struct sigaction action = {.sa_handler = ask_to_stop,
                               .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < OCT_COUNT(signals); i++)
        sigaction(signals[i], &action, NULL);
}

/* A signal asks, or the process that started the ranks. */
static bool stop_is_asked(void)
{
    return stop_asked || oct_rank_stop_asked();
}

static bool first_rank(const run *r)
{
    return r->session->group->rank == 0;
}

static double rounded(double value, double unit)
{
    return (double)(int64_t)(value / unit + 0.5) * unit;
}

/* Records of metrics.jsonl. */

static void record_steps(run *r, oct_phase phase)
{
    oct_step_totals *w = &r->recorded;
    const oct_metric *metric = r->trainer.training.loss.metric;
    int64_t step = r->trainer.step;
    if (w->samples > 0 && first_rank(r))
        oct_run_folder_record(
            &r->folder,
            json_pack("{s:s, s:I, s:s, s:I, s:f, s:o*, s:f, s:f}", "kind", "step", "step",
                      (json_int_t)step, "phase", oct_phase_name(phase), "epoch",
                      (json_int_t)oct_plan_position_at(&r->trainer.plan, step - 1).epoch, "loss",
                      w->loss_sum / (double)w->samples, metric ? metric->title : "metric",
                      metric ? json_real(w->metric_sum / (double)w->samples) : NULL, "lr",
                      oct_plan_lr(&r->trainer.plan, r->recipe, step - 1), "images_per_s",
                      rounded(oct_step_totals_rate(w), 0.1)));
    *w = (oct_step_totals){0};
}

static void record_phase(run *r, oct_phase phase)
{
    const oct_step_totals *w = &r->progress.phase;
    if (first_rank(r))
        oct_run_folder_record(
            &r->folder, json_pack("{s:s, s:I, s:s, s:I, s:I, s:f, s:f}", "kind", "phase", "step",
                                  (json_int_t)r->trainer.step, "phase", oct_phase_name(phase),
                                  "steps", (json_int_t)w->steps, "images", (json_int_t)w->samples,
                                  "seconds", rounded(w->seconds, 0.001), "images_per_s",
                                  rounded(oct_step_totals_rate(w), 0.1)));
}

/* images_per_s: 0 when it was not measured. */
static void record_evaluation(run *r, oct_phase phase, const oct_scores *scores,
                              double images_per_s)
{
    char count[32], rate[32], speed[64] = "", metrics[OCT_SCORES_TEXT];
    const double accuracy = oct_scores_accuracy(scores);
    oct_plan_position position = oct_plan_position_at(&r->trainer.plan, r->trainer.step - 1);
    if (images_per_s > 0)
        snprintf(speed, sizeof(speed), ", %s img/s", oct_text_count((int64_t)images_per_s, rate));
    oct_log(OCT_LOG_INFO, "%s  epoch %lld/%lld  test accuracy %.2f %%%s  (%s images%s)",
            oct_phase_name(phase), (long long)position.epoch, (long long)position.epochs, accuracy,
            oct_scores_text(scores, metrics), oct_text_count(scores->images, count), speed);
    json_t *record = json_pack("{s:s, s:I, s:s, s:I, s:I, s:I, s:f, s:o*}", "kind", "eval", "step",
                               (json_int_t)r->trainer.step, "phase", oct_phase_name(phase), "epoch",
                               (json_int_t)position.epoch, "images", (json_int_t)scores->images,
                               "correct", (json_int_t)scores->correct, "accuracy", accuracy,
                               "metrics", oct_scores_json(scores));
    if (record && images_per_s > 0)
        json_object_set_new(record, "images_per_s", json_real(rounded(images_per_s, 0.1)));
    oct_run_folder_record(&r->folder, record);
}

/* Evaluation and checkpoints. */

static oct_status evaluate(run *r, oct_phase phase)
{
    oct_scores scores;
    double begin = oct_seconds();
    OCT_TRY(oct_session_agree(r->session, oct_trainer_evaluate(&r->trainer, &scores)));
    if (first_rank(r))
        record_evaluation(r, phase, &scores, (double)scores.images / (oct_seconds() - begin));
    if (phase == OCT_PHASE_FLOAT) r->float_accuracy = oct_scores_accuracy(&scores);
    return OCT_OK;
}

/* A disk may be full for a while. Checkpoints on the way may fail twice in a row; those that end a
 * phase or a run may not. */
static oct_status forgive_failed_save(run *r, oct_status status)
{
    if (oct_fail_code() != OCT_RESOURCE || ++r->failed_saves > SAVES_MAY_FAIL) return status;
    oct_log(OCT_LOG_WARN,
            "%s\nno checkpoint of step %lld was written; the run continues and tries again at step "
            "%lld",
            oct_fail_text(0), (long long)r->trainer.step,
            (long long)(r->trainer.step + r->recipe->checkpoint_every));
    oct_session_clear_failure(r->session);
    return OCT_OK;
}

static oct_status save(run *r, bool required)
{
    char *file = NULL;
    double begin = oct_seconds();
    oct_status status =
        oct_session_agree(r->session, oct_trainer_save(&r->trainer, r->checkpoints, &file));
    if (status != OCT_OK) return required ? status : forgive_failed_save(r, status);
    r->failed_saves = 0;
    r->trainer.saved_step = r->trainer.step;
    if (first_rank(r)) {
        double seconds = oct_seconds() - begin;
        oct_log(OCT_LOG_VERBOSE, "checkpoint %s (%.2f s)", file, seconds);
        oct_run_folder_record(&r->folder, json_pack("{s:s, s:I, s:s, s:f}", "kind", "checkpoint",
                                                    "step", (json_int_t)r->trainer.step, "file",
                                                    file, "seconds", rounded(seconds, 0.001)));
    }
    oct_free(&file);
    return OCT_OK;
}

static oct_status stopped(const run *r)
{
    return oct_fail(OCT_STOPPED,
                    "stopped after step %lld as requested; checkpoint step-%08lld.h5 is safe; "
                    "repeat the command to continue",
                    (long long)r->trainer.step, (long long)r->trainer.saved_step);
}

/* Collective. Before the steps begin there is nothing to save. */
static oct_status stop_before_steps(const run *r)
{
    int64_t asked = stop_is_asked();
    OCT_TRY(r->session->group->max_i64(r->session->group, &asked, 1));
    OCT_CHECK(
        !asked, OCT_STOPPED,
        "stopped before the first step of this session as asked; repeat the command to continue");
    return OCT_OK;
}

/* Steps. */

static void count_step(run *r, oct_phase phase, const oct_step_result *result, bool phase_ends)
{
    int64_t every = r->trainer.plan.steps_per_epoch / RECORDS_PER_EPOCH + 1;
    double now = oct_seconds();
    oct_step_totals_add(&r->recorded, now - r->record_clock, result);
    r->record_clock = now;
    if (phase_ends || r->trainer.step % every == 0) record_steps(r, phase);
    oct_progress_step(&r->progress, phase, r->trainer.step, result);
    if (!phase_ends) return;
    record_phase(r, phase);
    oct_progress_phase_end(&r->progress, phase, r->trainer.step);
}

static oct_status step(run *r)
{
    oct_trainer *trainer = &r->trainer;
    oct_step_result result;
    oct_phase phase = oct_plan_phase(&trainer->plan, trainer->step);
    trainer->stop = stop_is_asked();
    oct_rank_note_step(trainer->step + 1);
    OCT_TRY(oct_trainer_step(trainer, &result));

    bool phase_ends =
        oct_trainer_done(trainer) || oct_plan_phase(&trainer->plan, trainer->step) != phase;
    count_step(r, phase, &result, phase_ends);
    /* What was measured before a checkpoint is kept with it, so a resumed run need not repeat it. */
    if (oct_plan_evaluates(&trainer->plan, r->recipe, trainer->step)) OCT_TRY(evaluate(r, phase));
    if (phase_ends || trainer->stop || trainer->step % r->recipe->checkpoint_every == 0)
        OCT_TRY(save(r, phase_ends || trainer->stop));
    oct_progress_resume(&r->progress);
    r->record_clock = oct_seconds();
    return trainer->stop && !oct_trainer_done(trainer) ? stopped(r) : OCT_OK;
}

/* The end: int8 model, certificate, result. */

static oct_status digest_checkpoint(const char *folder, uint8_t digest[32], char **path)
{
    oct_checkpoint checkpoint = {0};
    OCT_TRY(oct_checkpoint_newest(&checkpoint, folder));
    OCT_CHECK(checkpoint.bytes, OCT_DATA, "%s: the last checkpoint is gone", folder);
    oct_sha256(checkpoint.bytes, checkpoint.size, digest);
    oct_status status = oct_strdup(path, checkpoint.path);
    oct_checkpoint_close(&checkpoint);
    return status;
}

static json_t *known(double accuracy)
{
    return accuracy < 0 ? json_null() : json_real(accuracy);
}

/* The images a second of a phase stand in its record, which may be of an earlier session. */
static json_t *rate_of(const run *r, oct_phase phase)
{
    const json_t *record = oct_run_folder_find(&r->folder, "phase", oct_phase_name(phase));
    return record ? json_incref(json_object_get(record, "images_per_s")) : json_null();
}

static json_t *rates(const run *r)
{
    json_t *object = json_object();
    for (int phase = 0; phase < OCT_PHASES; phase++)
        if (r->trainer.plan.begin[phase] < r->trainer.plan.begin[phase + 1])
            json_object_set_new(object, oct_phase_name((oct_phase)phase),
                                rate_of(r, (oct_phase)phase));
    return object;
}

static oct_status digest_model(const char *path, char hex[65], int64_t *size)
{
    void *bytes = NULL;
    size_t length;
    uint8_t digest[32];
    OCT_TRY(oct_file_read(path, SIZE_MAX / 2, &bytes, &length));
    oct_sha256(bytes, length, digest);
    oct_hex(digest, hex);
    *size = (int64_t)length;
    oct_free(&bytes);
    return OCT_OK;
}

static oct_status make_result(run *r, const oct_model *model, const oct_scores *scores,
                              const char *checkpoint, json_t **result)
{
    char hex[65];
    int64_t file_bytes;
    const oct_certificate *c = &model->certificate;
    OCT_TRY(digest_model(r->model_path, hex, &file_bytes));
    *result = json_pack(
        "{s:i, s:s, s:I, s:o, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:o, s:s, s:s, s:s, s:I, s:s, "
        "s:o*}",
        "schema_version", RESULT_VERSION, "kind", "result", "step", (json_int_t)r->trainer.step,
        "float_accuracy", known(r->float_accuracy), "qat_accuracy", c->qat_accuracy,
        "int8_accuracy", oct_scores_accuracy(scores), "images", (json_int_t)c->images, "logits",
        (json_int_t)(c->images * model->classes), "logits_differ", (json_int_t)c->logits_differ,
        "float_bytes", (json_int_t)oct_float_bytes(r->trainer.model), "int8_bytes",
        (json_int_t)oct_int8_bytes(&model->program), "images_per_s", rates(r), "output",
        r->recipe->output, "checkpoint", checkpoint, "model", r->model_path, "model_file_bytes",
        (json_int_t)file_bytes, "model_sha256", hex, "metrics", oct_scores_json(scores));
    OCT_CHECK(*result, OCT_RESOURCE, "out of memory for the result");
    oct_run_folder_record(&r->folder, json_incref(*result));
    return OCT_OK;
}

static oct_status write_model(run *r, const oct_model *model, const oct_scores *scores,
                              const char *checkpoint, json_t **result)
{
    record_evaluation(r, OCT_PHASE_QAT_SCALES_FROZEN, scores, 0);
    OCT_TRY(oct_model_save(r->model_path, model));
    return make_result(r, model, scores, checkpoint, result);
}

static oct_status convert(run *r, json_t **result)
{
    oct_conversion conversion = {
        .root = r->trainer.model,
        .recipe = r->recipe,
        .test_data = &r->test_data,
    };
    oct_model model = {0};
    char *checkpoint = NULL;
    oct_status status = OCT_OK;
    oct_trainer_release_memory(&r->trainer);
    if (first_rank(r))
        status = digest_checkpoint(r->checkpoints, conversion.checkpoint_digest, &checkpoint);
    OCT_TRY_OUT(oct_session_agree(r->session, status));
    OCT_TRY_OUT(oct_session_agree(r->session, oct_certify(&model, &conversion, r->session->group)));
    if (first_rank(r)) status = write_model(r, &model, &conversion.scores, checkpoint, result);
    status = oct_session_agree(r->session, status);
out:
    oct_model_free(&model);
    oct_free(&checkpoint);
    return status;
}

/* The start. */

static oct_status compare_identity(const run *r, const oct_checkpoint *checkpoint)
{
    oct_recipe there;
    oct_text differences = {0};
    OCT_TRY(oct_recipe_read(&there, checkpoint->path, checkpoint->info.recipe, NULL, 0));
    oct_status status = oct_recipe_compare(&there, r->recipe, &differences);
    if (status == OCT_OK && differences.length > 0)
        status = oct_fail(
            OCT_USAGE,
            "%s: is of another recipe; choose another output=, or use the values of that run\n%s",
            checkpoint->path, differences.data);
    oct_text_free(&differences);
    oct_recipe_free(&there);
    return status;
}

static oct_status restore(run *r, const oct_checkpoint *checkpoint)
{
    OCT_TRY(compare_identity(r, checkpoint));
    return oct_trainer_restore(&r->trainer, checkpoint);
}

static oct_status resume(run *r)
{
    oct_checkpoint checkpoint = {0};
    oct_status status = OCT_OK;
    if (first_rank(r)) status = oct_checkpoint_newest(&checkpoint, r->checkpoints);
    OCT_TRY_OUT(oct_session_agree(r->session, status));
    OCT_TRY_OUT(oct_job_share(r->session, &checkpoint));
    if (checkpoint.bytes) {
        OCT_TRY_OUT(oct_session_agree(r->session, restore(r, &checkpoint)));
        oct_log(OCT_LOG_INFO, "resuming %s from step %lld of %lld; recipe unchanged",
                r->recipe->output, (long long)r->trainer.step,
                (long long)oct_plan_steps(&r->trainer.plan));
    }
    if (first_rank(r))
        status =
            oct_run_folder_rewind(&r->folder, r->trainer.step, oct_plan_steps(&r->trainer.plan));
    OCT_TRY_OUT(oct_session_agree(r->session, status));
    r->float_accuracy = first_rank(r) ? oct_run_float_accuracy(r->recipe->output) : -1;
    OCT_TRY_OUT(r->session->group->broadcast(r->session->group, &r->float_accuracy,
                                             sizeof(r->float_accuracy), 0));
out:
    oct_checkpoint_close(&checkpoint);
    return status;
}

static oct_status open_folder(run *r)
{
    const char *output = r->recipe->output;
    oct_status status = OCT_OK;
    if (first_rank(r)) status = oct_run_folder_open(&r->folder, r->recipe);
    if (first_rank(r) && status == OCT_OK)
        status = oct_run_folder_report(&r->folder, &r->trainer.report);
    OCT_TRY(oct_session_agree(r->session, status));
    status = oct_run_path(output, "checkpoints", &r->checkpoints);
    if (status == OCT_OK) status = oct_run_path(output, "model.int8.h5", &r->model_path);
    return oct_session_agree(r->session, status);
}

static oct_status write_session(run *r)
{
    json_t *session = NULL;
    OCT_TRY(
        oct_job_describe(r->session, r->args, r->recipe, &r->train_data, &r->test_data, &session));
    oct_status status = OCT_OK;
    if (first_rank(r)) {
        json_object_set_new(session, "from_step", json_integer(r->trainer.step));
        status = oct_run_folder_session(&r->folder, session);
    }
    return oct_session_agree(r->session, status);
}

static void say_what_comes(const run *r)
{
    const oct_plan *plan = &r->trainer.plan;
    const oct_dataset *data = &r->train_data;
    const oct_recipe *recipe = r->recipe;
    char parameters[32], train[32], test[32];
    int size = r->session->group->size;
    oct_log(OCT_LOG_INFO,
            "%s: %s parameters, input %lldx%lldx%lld, %d classes; %s training and %s test images",
            recipe->model_name, oct_text_count(oct_float_bytes(r->trainer.model) / 4, parameters),
            (long long)data->h, (long long)data->w, (long long)data->c, data->classes,
            oct_text_count(data->count, train), oct_text_count(r->test_data.count, test));
    oct_log(OCT_LOG_INFO,
            "%d rank%s of %lld thread%s; %lld steps: float to %lld, calibrate to %lld, qat to %lld "
            "(batch norm %s after %lld, scales frozen after %lld)",
            size, size == 1 ? "" : "s", (long long)recipe->threads, recipe->threads == 1 ? "" : "s",
            (long long)oct_plan_steps(plan), (long long)plan->begin[OCT_PHASE_CALIBRATE],
            (long long)plan->begin[OCT_PHASE_QAT], (long long)oct_plan_steps(plan),
            recipe->qat_fold_batch_norm ? "folded" : "frozen",
            (long long)plan->begin[OCT_PHASE_QAT_BN_FROZEN],
            (long long)plan->begin[OCT_PHASE_QAT_SCALES_FROZEN]);
}

/* This comes before anything is written, so that weights that do not fit leave no trace; a checkpoint of the
 * run itself replaces them later. */
static oct_status start_from_init(run *r)
{
    oct_status status = OCT_OK;
    if (!r->init->bytes) return OCT_OK;
    status = oct_trainer_start_from(&r->trainer, r->init);
    OCT_TRY(oct_session_agree(r->session, status));
    oct_log(OCT_LOG_INFO, "weights of %s (step %lld, phase %s)", r->init->path,
            (long long)r->init->info.step, r->init->info.phase);
    oct_checkpoint_close(r->init);
    return OCT_OK;
}

static oct_status start(run *r)
{
    oct_job_threads(r->session, r->recipe->threads);
    OCT_TRY(oct_job_data(r->session, r->recipe, OCT_TRAIN, &r->train_data));
    OCT_TRY(oct_job_data(r->session, r->recipe, OCT_TEST, &r->test_data));
    OCT_TRY(
        oct_session_agree(r->session, oct_trainer_create(&r->trainer, r->recipe, r->session->group,
                                                         &r->train_data, &r->test_data)));
    OCT_TRY(start_from_init(r));
    OCT_TRY(open_folder(r));
    say_what_comes(r);
    OCT_TRY(resume(r));
    OCT_TRY(write_session(r));
    oct_progress_start(&r->progress, &r->trainer.plan, r->trainer.training.loss.metric,
                       r->args->progress, r->recipe->log_every);
    r->record_clock = oct_seconds();
    return OCT_OK;
}

static oct_status work(run *r, json_t **result)
{
    OCT_TRY(stop_before_steps(r));
    OCT_TRY(start(r));
    if (!oct_trainer_done(&r->trainer)) OCT_TRY(stop_before_steps(r));
    while (!oct_trainer_done(&r->trainer))
        OCT_TRY(step(r));
    return convert(r, result);
}

/* Collective: a finished run is only told again. */
static oct_status find_finished(run *r, json_t **result, bool *finished)
{
    const oct_collective *group = r->session->group;
    oct_status status = OCT_OK;
    if (group->rank == 0) status = oct_run_folder_look(r->recipe, result);
    OCT_TRY(oct_session_agree(r->session, status));
    *finished = *result != NULL;
    OCT_TRY(group->broadcast(group, finished, sizeof(*finished), 0));
    if (*finished)
        oct_log(
            OCT_LOG_INFO,
            "%s is finished; showing its results again (choose another output= to start a new run)",
            r->recipe->output);
    return OCT_OK;
}

oct_status oct_train(oct_session *session, const oct_args *args, const oct_recipe *recipe,
                     oct_checkpoint *init, json_t **result)
{
    run r = {
        .session = session,
        .args = args,
        .recipe = recipe,
        .init = init,
        .folder = {.lock = -1, .metrics = -1},
        .float_accuracy = -1,
    };
    bool finished = false;
    *result = NULL;
    OCT_TRY(find_finished(&r, result, &finished));
    if (finished) return OCT_OK;

    oct_status status = work(&r, result);
    oct_trainer_destroy(&r.trainer);
    oct_dataset_free(&r.train_data);
    oct_dataset_free(&r.test_data);
    oct_run_folder_close(&r.folder);
    oct_free(&r.checkpoints);
    oct_free(&r.model_path);
    return status;
}
