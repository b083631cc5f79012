/* A run goes through its folder: resume, steps with evaluations and checkpoints between them, conversion.
 *
 * Every decision here is the same on all ranks: it is made from the step, from what a step's control reduction
 * said, or from an agreement.
 */
#include "launch/train/training.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "dist/rank_table.h"
#include "io/file/file.h"
#include "launch/base/meter.h"
#include "launch/base/output.h"
#include "launch/session/build.h"
#include "launch/deploy/device.h"
#include "launch/session/task.h"
#include "launch/session/job.h"
#include "launch/train/run_check.h"
#include "launch/train/training_impl.h"

#include <signal.h>
#include <string.h>

/* The first signal asks for a stop at the end of the step; a second one acts as usual. */
static volatile sig_atomic_t stop_asked;

static void ask_to_stop(int signal_number)
{
    (void)signal_number;
    stop_asked = 1;
    oct_rank_note(OCT_RANK_STOPS, 1);
}

void oct_train_catch_signals(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU};
    struct sigaction action = {.sa_handler = ask_to_stop, .sa_flags = SA_RESTART}, before;
    sigemptyset(&action.sa_mask);
    sigaction(SIGHUP, &action, &before); /* a terminal that is closed sends several */
    if (before.sa_handler == SIG_IGN) signal(SIGHUP, SIG_IGN); /* nohup: it stays ignored */
    action.sa_flags |= (int)SA_RESETHAND; /* a second signal ends the process */
    for (size_t i = 0; i < OCT_COUNT(signals); i++)
        sigaction(signals[i], &action, NULL);
}

/* A signal asks, or the process that started the ranks. */
static bool stop_is_asked(void)
{
    return stop_asked || oct_rank_stop_asked();
}

/* Collective: ends the session where a signal has asked a rank to stop. Before its steps there is nothing to save. */
static oct_status stop_before_steps(const oct_train_run *run)
{
    int64_t asked = stop_is_asked();
    OCT_TRY(run->session->group->max_i64(run->session->group, &asked, 1));
    OCT_CHECK(
        !asked, OCT_STOPPED,
        "stopped before the first step of this session as asked; repeat the command to continue");
    return OCT_OK;
}

/* Steps. */

/* Collective: opens the checkpoint of a step, which no other can replace, on all ranks; what: its use, for messages. */
static oct_status open_required_checkpoint(const oct_train_run *run, int64_t step, const char *what,
                                           oct_checkpoint *checkpoint)
{
    oct_status status = OCT_OK;
    if (oct_train_run_speaks(run))
        status = oct_checkpoint_open_step(checkpoint, run->saver.folder, step);
    if (status == OCT_DATA)
        status = oct_fail(OCT_DATA,
                          "%s; restore it from a copy, since it is %s, or train again in another "
                          "output folder",
                          oct_error_message(0), what);
    OCT_TRY(oct_session_agree(run->session, status));
    return oct_job_share(run->session, checkpoint);
}

/* Makes the model of a checkpoint of this run's QAT, as it was evaluated there, the one that is deployed. */
static oct_status deploy_checkpoint(oct_trainer *trainer, const oct_checkpoint *checkpoint)
{
    oct_module *model = NULL;
    oct_phase phase;
    bool prepared;
    OCT_TRY(oct_checkpoint_phase(checkpoint, &phase));
    OCT_TRY(oct_build_from_checkpoint(&model, checkpoint, trainer->recipe, trainer->train_data,
                                      &prepared));
    const oct_status status = oct_train_step_rebind(&trainer->training, model);
    oct_module_destroy(&trainer->model);
    trainer->model = model;
    trainer->phase = phase;
    OCT_TRY(status);
    return oct_trainer_finish(trainer);
}

/* After the last step: the best state of QAT becomes the model, if that is not the last. */
static oct_status go_back_to_best(oct_train_run *run)
{
    const int64_t best = oct_early_stopping_best(&run->trainer.stopping, &run->trainer.plan);
    OCT_OWNED(oct_checkpoint_close) oct_checkpoint checkpoint = {0};
    if (best == 0 || best == run->trainer.step) return OCT_OK;
    OCT_TRY(open_required_checkpoint(run, best, "the best state of this run (evaluate.best)",
                                     &checkpoint));
    OCT_TRY(oct_session_agree(run->session, deploy_checkpoint(&run->trainer, &checkpoint)));
    oct_log(OCT_LOG_INFO, "back to step %lld, whose evaluation was the best", (long long)best);
    return OCT_OK;
}

/* Collective: makes the teacher from a checkpoint, which all ranks hold. */
static oct_status make_teacher(oct_train_run *run, const oct_checkpoint *checkpoint)
{
    const oct_status status =
        oct_teacher_create(&run->trainer.teacher, checkpoint, run->recipe, &run->train_data);
    OCT_TRY(oct_session_agree(run->session, status));
    oct_log(OCT_LOG_INFO, "teacher: %s (step %lld, phase %s)", checkpoint->path,
            (long long)checkpoint->info.step, checkpoint->info.phase);
    return OCT_OK;
}

/* Before the first QAT step, loads the model at the end of its float phase, whose checkpoint is kept. */
static oct_status make_teacher_of_float_phase(oct_train_run *run)
{
    const oct_trainer *trainer = &run->trainer;
    OCT_OWNED(oct_checkpoint_close) oct_checkpoint own = {0};
    if (!oct_teacher_wanted(run->recipe) || trainer->teacher.model ||
        oct_plan_phase(&trainer->plan, trainer->step) < OCT_PHASE_QAT)
        return OCT_OK;
    OCT_TRY(oct_saver_settle(&run->saver));
    OCT_TRY(open_required_checkpoint(run, trainer->plan.begin[OCT_PHASE_CALIBRATE],
                                     "the end of the float phase, which is the teacher", &own));
    return make_teacher(run, &own);
}

/* Takes one step, then records it, evaluates, and saves a checkpoint, as far as each is due. */
static oct_status run_step(oct_train_run *run)
{
    oct_trainer *trainer = &run->trainer;
    oct_step_result result;
    oct_verdict verdict = {0};
    oct_phase phase = oct_plan_phase(&trainer->plan, trainer->step);
    trainer->stop = stop_is_asked();
    oct_rank_note(OCT_RANK_STEP, trainer->step + 1);
    OCT_TRY(make_teacher_of_float_phase(run));
    const int64_t before = oct_comm_syncs(run->session->comm);
    const double deadline_s = oct_straggler_deadline(&trainer->straggler);
    /* The first step of a phase also prepares the model. */
    if (deadline_s > 0 && phase == trainer->phase)
        oct_session_set_deadline(run->session, deadline_s);
    OCT_TRY(oct_trainer_step(trainer, &result));
    oct_session_set_deadline(run->session, OCT_DEADLINE_S);
    run->syncs += oct_comm_syncs(run->session->comm) - before;
    if (run->saver.ended) OCT_TRY(oct_saver_settle(&run->saver));
    bool phase_ends =
        oct_trainer_done(trainer) || oct_plan_phase(&trainer->plan, trainer->step) != phase;
    oct_record_step(run, phase, &result, phase_ends);
    /* What was measured before a checkpoint is kept with it, so a resumed run need not repeat it. */
    if (oct_plan_evaluates(&trainer->plan, run->recipe, trainer->step))
        OCT_TRY(oct_run_evaluate(run, phase, &verdict));
    if (verdict.ends && !phase_ends) oct_record_phase_end(run, phase);
    if (trainer->stop && !phase_ends && !verdict.ends) oct_record_so_far(run, phase);
    if (oct_trainer_done(trainer)) {
        OCT_TRY(oct_saver_settle(&run->saver));
        OCT_TRY(go_back_to_best(run));
    }
    const bool required = phase_ends || verdict.ends || verdict.best || trainer->stop;
    const bool last = oct_trainer_done(trainer) || trainer->stop;
    if (required || trainer->step % run->recipe->checkpoint_every == 0) {
        oct_session_set_deadline(run->session, OCT_FILES_DEADLINE_S);
        OCT_TRY(oct_saver_save(&run->saver, required, last));
        oct_session_set_deadline(run->session, OCT_DEADLINE_S);
    }
    run->progress.last = oct_seconds(); /* evaluation and checkpoint are no part of a step */
    OCT_CHECK(!trainer->stop || oct_trainer_done(trainer), OCT_STOPPED,
              "stopped after step %lld as requested; checkpoint step-%08lld.h5 is safe; repeat the "
              "command to continue",
              (long long)trainer->step, (long long)run->saver.step);
    return OCT_OK;
}

/* The start. */

/* Collective: gives path, info and recipe of rank 0's checkpoint (path NULL: none) to every rank; its values stay with rank
 * 0, for oct_checkpoint_load_shared. */
static oct_status share_checkpoint_info(oct_session *session, oct_checkpoint *checkpoint)
{
    const oct_collective *group = session->group;
    const bool first = group->rank == 0, found = first && checkpoint->path;
    oct_checkpoint_info info = checkpoint->info; /* its texts apart */
    size_t path = found ? strlen(checkpoint->path) + 1 : 0;
    size_t recipe = found ? strlen(checkpoint->info.recipe) + 1 : 0;
    info.recipe = info.class_names = NULL;
    if (group->size == 1) return OCT_OK;
    OCT_TRY(group->broadcast(group, &info, sizeof(info), 0));
    if (!first) checkpoint->info = info;
    OCT_TRY(oct_session_share(session, &checkpoint->path, &path));
    return oct_session_share(session, &checkpoint->info.recipe, &recipe);
}

/* Continues from the newest checkpoint of the folder, if any, once data and recipe are known to be the run's. */
static oct_status resume_run(oct_train_run *run)
{
    OCT_OWNED(oct_checkpoint_close) oct_checkpoint checkpoint = {0};
    const bool first = oct_train_run_speaks(run);
    oct_status status = OCT_OK;
    if (first) status = oct_checkpoint_newest_on_disk(&checkpoint, run->saver.folder);
    OCT_TRY(oct_session_agree(run->session, status));
    OCT_TRY(share_checkpoint_info(run->session, &checkpoint));
    if (checkpoint.path) {
        if (first)
            status = oct_run_folder_same_data(
                &run->folder, oct_job_data_record(&run->train_data, &run->test_data));
        OCT_TRY(oct_session_agree(run->session, status));
        OCT_TRY(oct_session_agree(
            run->session,
            oct_run_same_recipe(checkpoint.path, checkpoint.info.recipe, run->recipe)));
        OCT_TRY(oct_trainer_restore(&run->trainer, &checkpoint));
        oct_log(OCT_LOG_INFO, "resuming %s from step %lld of %lld", run->recipe->output,
                (long long)run->trainer.step, (long long)oct_plan_steps(&run->trainer.plan));
    }
    if (first && checkpoint.path)
        status = oct_checkpoint_clean(run->saver.folder, checkpoint.info.recipe);
    if (first && status == OCT_OK)
        status = oct_run_folder_rewind(&run->folder, run->trainer.step,
                                       oct_plan_steps(&run->trainer.plan));
    return oct_session_agree(run->session, status);
}

/* Collective: rank 0 opens the run folder and writes what is known before the steps. */
static oct_status open_folder(oct_train_run *run)
{
    const oct_recipe *recipe = run->recipe;
    const char *output = recipe->output;
    char *copy = NULL;
    oct_status status = OCT_OK;
    if (oct_train_run_speaks(run)) {
        status = oct_run_folder_open(&run->folder, recipe, &run->trainer.report);
        /* The copy of an ONNX file, by which the checkpoints are understood when the file itself has gone. */
        if (status == OCT_OK) status = oct_run_path(output, OCT_ONNX_COPY, &copy);
        if (status == OCT_OK && recipe->onnx && !oct_file_exists(copy))
            status = oct_file_write(copy, recipe->onnx, recipe->onnx_size);
        oct_free(&copy);
        if (status == OCT_OK)
            oct_log(OCT_LOG_INFO, "exports that the int8 model will have: %s",
                    run->trainer.exports.data ? run->trainer.exports.data : "none");
    }
    OCT_TRY(oct_session_agree(run->session, status));
    oct_failure_log(output);
    status = oct_run_path(output, "checkpoints", &run->saver.folder);
    if (status == OCT_OK) status = oct_run_path(output, "model.int8.h5", &run->model_path);
    return oct_session_agree(run->session, status);
}

/* Logs the model, the data and the phases with their last steps. */
static void log_plan(const oct_train_run *run)
{
    const oct_plan *plan = &run->trainer.plan;
    const oct_dataset *data = &run->train_data;
    const oct_recipe *recipe = run->recipe;
    char outputs[48];
    int size = run->session->group->size;
    oct_log(OCT_LOG_INFO,
            "%s: %s parameters, input %lldx%lldx%lld, %s; %s training and %s test images",
            oct_recipe_model(recipe), oct_text_count(oct_float_bytes(run->trainer.model) / 4).text,
            (long long)data->h, (long long)data->w, (long long)data->c,
            oct_goal_outputs(data->goal, data->classes, outputs), oct_text_count(data->count).text,
            oct_text_count(run->test_data.count).text);
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

/* Loads the weights that init names, and logs what was not loaded. This comes before anything is written, so that
 * weights that do not fit leave no trace; a checkpoint of the run itself replaces them later. */
static oct_status start_from_init(oct_train_run *run)
{
    OCT_OWNED(oct_text_free) oct_text lines = {0};
    if (!oct_init_given(&run->init)) return OCT_OK;
    OCT_TRY(oct_session_agree(run->session, oct_init_apply(&run->init, &run->trainer, &lines)));
    for (const char *line = lines.data; line && *line;) {
        const int length = (int)strcspn(line, "\n");
        oct_log(line == lines.data ? OCT_LOG_INFO : OCT_LOG_WARN, "%.*s", length, line);
        line += length + 1;
    }
    oct_init_close(&run->init);
    return OCT_OK;
}

/* Makes the teacher that is there before the run begins: another run's model, or, where there is no float phase, the
 * weights that the run starts from, which are its end. */
static oct_status make_teacher_before_steps(oct_train_run *run)
{
    const bool has_float = run->trainer.plan.begin[OCT_PHASE_CALIBRATE] > 0;
    const bool at_start = oct_teacher_is_own(run->recipe) && !has_float;
    const oct_checkpoint *checkpoint = at_start ? &run->init.checkpoint : &run->teacher;
    if (!oct_teacher_wanted(run->recipe)) return OCT_OK;
    if (checkpoint->bytes) {
        OCT_TRY(make_teacher(run, checkpoint));
    } else if (at_start) {
        oct_module *model = NULL;
        oct_status status = oct_build_model(&model, run->recipe, &run->train_data);
        if (status == OCT_OK)
            status = oct_init_weights(&run->init, model, run->recipe, &run->train_data, NULL);
        if (status == OCT_OK)
            status = oct_teacher_take(&run->trainer.teacher, &model, &run->train_data);
        oct_module_destroy(&model);
        OCT_TRY(oct_session_agree(run->session, status));
        oct_log(OCT_LOG_INFO, "teacher: the float weights that the run starts from");
    }
    oct_checkpoint_close(&run->teacher);
    return OCT_OK;
}

/* Makes all that steps need: data, trainer, teacher, initial weights, folder, and the state of an earlier session. */
static oct_status start_run(oct_train_run *run)
{
    json_t *description;
    oct_status status = OCT_OK;
    oct_session_set_deadline(run->session, OCT_FILES_DEADLINE_S);
    oct_job_threads(run->session, run->recipe->threads);
    OCT_TRY(oct_job_data(run->session, run->recipe, OCT_TRAIN, &run->train_data));
    OCT_TRY(oct_job_data(run->session, run->recipe, OCT_TEST, &run->test_data));
    OCT_TRY(oct_session_agree(run->session,
                              oct_trainer_create(&run->trainer, run->recipe, run->session->group,
                                                 &run->train_data, &run->test_data)));
    run->trainer.saver = &run->saver;
    if (oct_train_run_speaks(run)) {
        /* Parameters and what the optimizer keeps of them are most of a checkpoint. */
        const int64_t copies = 1 + oct_optim_slots(run->recipe->optimizer_kind);
        status = oct_check_room(run->recipe, run->trainer.training.params.numel * copies *
                                                 (int64_t)sizeof(float));
        if (status == OCT_OK) status = oct_checkpoint_writer_create(&run->saver.writer);
    }
    OCT_TRY(oct_session_agree(run->session, status));
    OCT_TRY(make_teacher_before_steps(run));
    OCT_TRY(start_from_init(run));
    OCT_TRY(open_folder(run));
    log_plan(run);
    OCT_TRY(resume_run(run));
    if (run->trainer.step == 0) oct_warn_of_model(run->recipe, run->trainer.model);
    OCT_TRY(oct_job_describe(run->session, run->args, run->recipe, &run->train_data,
                             &run->test_data, &description));
    if (oct_train_run_speaks(run)) {
        json_object_set_new(description, "from_step", json_integer(run->trainer.step));
        status = oct_run_folder_session(&run->folder, description);
    }
    OCT_TRY(oct_session_agree(run->session, status));
    oct_record_start(run);
    oct_session_set_deadline(run->session, OCT_DEADLINE_S);
    return OCT_OK;
}

/* Collective: finds the result of a finished run in the output folder, which is then only reported again. */
static oct_status find_finished_result(const oct_train_run *run, json_t **result, bool *finished)
{
    const oct_collective *group = run->session->group;
    const bool first = group->rank == 0;
    OCT_TRY(
        oct_session_agree(run->session, first ? oct_run_folder_look(run->recipe, result) : OCT_OK));
    *finished = *result != NULL;
    OCT_TRY(group->broadcast(group, finished, sizeof(*finished), 0));
    if (*finished)
        oct_log(
            OCT_LOG_INFO,
            "%s is finished; showing its results again (choose another output= to start a new run)",
            run->recipe->output);
    return OCT_OK;
}

static oct_status run_in_session(oct_train_run *run, oct_recipe *recipe, json_t **result)
{
    bool finished = false;
    OCT_TRY(oct_init_share(run->session, recipe, &run->init));
    OCT_TRY(oct_teacher_share(run->session, recipe, &run->teacher));
    OCT_TRY(find_finished_result(run, result, &finished));
    if (finished) return OCT_OK;
    OCT_TRY(stop_before_steps(run));
    OCT_TRY(start_run(run));
    if (!oct_trainer_done(&run->trainer)) OCT_TRY(stop_before_steps(run));
    while (!oct_trainer_done(&run->trainer))
        OCT_TRY(run_step(run));
    if (run->saver.waited_s >= 1)
        oct_log(OCT_LOG_WARN,
                "%lld checkpoint%s came while the one before was still being written, and training "
                "waited %.1f s for it in all; raise checkpoint.every to wait less",
                (long long)run->saver.waits, run->saver.waits == 1 ? "" : "s", run->saver.waited_s);
    if (run->trainer.audit.done > 0)
        oct_log(OCT_LOG_INFO, "%lld leaves were computed again, to the same bits",
                (long long)run->trainer.audit.done);
    if (run->trainer.skips.all > 0)
        oct_log(OCT_LOG_WARN, "%lld of %lld steps were skipped because of NaN or infinity",
                (long long)run->trainer.skips.all, (long long)run->trainer.step);
    return oct_run_result(run, result);
}

oct_status oct_train(oct_session *session, const oct_args *args, oct_recipe *recipe,
                     json_t **result)
{
    oct_train_run run = {
        .session = session,
        .args = args,
        .recipe = recipe,
        .folder = {.lock = -1, .metrics = -1, .events = {.fd = -1}},
    };
    run.saver = (oct_saver){
        .session = session, .trainer = &run.trainer, .records = &run.folder, .step = -1};
    *result = NULL;
    const oct_status status = run_in_session(&run, recipe, result);
    oct_init_close(&run.init);
    oct_checkpoint_close(&run.teacher);
    oct_checkpoint_writer_destroy(&run.saver.writer);
    oct_free(&run.saver.file.path);
    oct_free(&run.saver.folder);
    oct_trainer_destroy(&run.trainer);
    oct_dataset_close(&run.train_data);
    oct_dataset_close(&run.test_data);
    oct_run_folder_close(&run.folder);
    oct_free(&run.model_path);
    return status;
}
