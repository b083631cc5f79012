/* A run goes through its folder: resume, steps with evaluations and checkpoints between them, conversion.
 *
 * Every decision here is the same on all ranks: it is made from the step, from what a step's control reduction
 * said, or from an agreement.
 */
#include "launch/train/training.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "dist/rank_table.h"
#include "launch/base/meter.h"
#include "launch/session/build.h"
#include "launch/deploy/certificate.h"
#include "launch/deploy/device.h"
#include "launch/session/task.h"
#include "launch/session/job.h"
#include "launch/train/run_check.h"
#include "launch/train/training_impl.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>

/* The first signal asks for a stop at the end of the step; a second one acts as usual. */
static volatile sig_atomic_t stop_asked;

static void ask_to_stop(int signal_number)
{
    (void)signal_number;
    stop_asked = 1;
    oct_rank_note_stop();
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

/* Evaluation and checkpoints. */

static oct_status evaluate_run(oct_training *r, oct_phase phase, oct_verdict *verdict)
{
    oct_trainer *trainer = &r->trainer;
    oct_scores scores;
    double begin = oct_seconds();
    OCT_TRY(oct_session_agree(r->session, oct_trainer_evaluate(trainer, &scores)));
    oct_record_evaluation(r, phase, &scores, (double)scores.images / (oct_seconds() - begin));
    oct_record_weights(r);
    /* The phase may end by the verdict, and with it the run, which is then finished. */
    *verdict = oct_early_stopping_judge(&trainer->stopping, &trainer->plan, r->recipe,
                                        trainer->step, &scores);
    if (verdict->ends && oct_trainer_done(trainer))
        OCT_TRY(oct_session_agree(r->session, oct_trainer_finish(trainer)));
    oct_record_verdict(r, phase, verdict);
    return OCT_OK;
}

/* last: the run ends or stops with this one, which must be on the disk then. */
static oct_status save_run(oct_training *r, bool required, bool last)
{
    oct_saver *saver = &r->saver;
    oct_checkpoint_written written = {0};
    const int64_t step = r->trainer.step;
    double begin = oct_seconds();
    if (saver->under_way.begun) {
        OCT_TRY(oct_saver_settle(saver));
        saver->waits++;
        saver->waited_s += oct_seconds() - begin;
        begin = oct_seconds();
    }
    OCT_TRY(oct_replica_check_whole(&r->trainer.training, r->session->group, step));
    const double now = oct_seconds();
    if (!last)
        return oct_saver_note_begun(saver, oct_trainer_save_begin(&r->trainer, r->checkpoints),
                                    (oct_save_under_way){true, required, step, now - begin});
    const oct_status status = oct_trainer_save(&r->trainer, r->checkpoints, &written.file);
    written.seconds = written.blocked = oct_seconds() - now;
    return oct_saver_end(saver, status, true, step, &written);
}

/* Collective. Before the steps begin there is nothing to save. */
static oct_status stop_before_steps(const oct_training *r)
{
    int64_t asked = stop_is_asked();
    OCT_TRY(r->session->group->max_i64(r->session->group, &asked, 1));
    OCT_CHECK(
        !asked, OCT_STOPPED,
        "stopped before the first step of this session as asked; repeat the command to continue");
    return OCT_OK;
}

/* Steps. */

/* Opens the checkpoint of a step that no other can replace; what: what it is. */
static oct_status open_needed(const oct_training *r, int64_t step, const char *what,
                              oct_checkpoint *checkpoint)
{
    char why[640];
    const oct_status status = oct_checkpoint_open_step(checkpoint, r->checkpoints, step);
    if (status != OCT_DATA) return status;
    snprintf(why, sizeof why, "%s", oct_fail_text(0));
    return oct_fail(OCT_DATA,
                    "%s; restore it from a copy, since it is %s, or train again in another output "
                    "folder",
                    why, what);
}

/* The best state of QAT becomes the model, if that is not the last. */
static oct_status go_back(oct_training *r)
{
    const int64_t best = oct_early_stopping_best(&r->trainer.stopping, &r->trainer.plan);
    oct_checkpoint checkpoint = {0};
    oct_status status = OCT_OK;
    if (best == 0 || best == r->trainer.step) return OCT_OK;
    if (oct_training_speaks(r))
        status = open_needed(r, best, "the best state of this run (evaluate.best)", &checkpoint);
    OCT_TRY_OUT(oct_session_agree(r->session, status));
    OCT_TRY_OUT(oct_job_share(r->session, &checkpoint));
    OCT_TRY_OUT(oct_session_agree(r->session, oct_trainer_go_back(&r->trainer, &checkpoint)));
    oct_log(OCT_LOG_INFO, "back to step %lld, whose evaluation was the best", (long long)best);
out:
    oct_checkpoint_close(&checkpoint);
    return status;
}

/* Makes the model of a checkpoint, which all ranks have, the teacher. */
static oct_status call_teacher(oct_training *r, oct_checkpoint *checkpoint)
{
    const oct_status status =
        oct_teacher_create(&r->trainer.teacher, checkpoint, r->recipe, &r->train_data);
    OCT_TRY(oct_session_agree(r->session, status));
    oct_log(OCT_LOG_INFO, "teacher: %s (step %lld, phase %s)", checkpoint->path,
            (long long)checkpoint->info.step, checkpoint->info.phase);
    return OCT_OK;
}

/* Before the first QAT step, loads the model at the end of its float phase, whose checkpoint is kept. */
static oct_status call_own_teacher(oct_training *r)
{
    const oct_trainer *trainer = &r->trainer;
    oct_checkpoint own = {0};
    oct_status status = OCT_OK;
    if (!oct_teacher_wanted(r->recipe) || trainer->teacher.model ||
        oct_plan_phase(&trainer->plan, trainer->step) < OCT_PHASE_QAT)
        return OCT_OK;
    OCT_TRY(oct_saver_settle(&r->saver));
    if (oct_training_speaks(r))
        status = open_needed(r, trainer->plan.begin[OCT_PHASE_CALIBRATE],
                             "the end of the float phase, which is the teacher", &own);
    OCT_TRY_OUT(oct_session_agree(r->session, status));
    OCT_TRY_OUT(oct_job_share(r->session, &own));
    status = call_teacher(r, &own);
out:
    oct_checkpoint_close(&own);
    return status;
}

static oct_status run_step(oct_training *r)
{
    oct_trainer *trainer = &r->trainer;
    oct_step_result result;
    oct_verdict verdict = {0};
    oct_phase phase = oct_plan_phase(&trainer->plan, trainer->step);
    trainer->stop = stop_is_asked();
    oct_rank_note_step(trainer->step + 1);
    OCT_TRY(call_own_teacher(r));
    const int64_t before = oct_comm_syncs(r->session->comm);
    const double deadline_s = oct_straggler_deadline(&trainer->straggler);
    /* The first step of a phase also prepares the model. */
    if (deadline_s > 0 && phase == trainer->phase) oct_session_set_deadline(r->session, deadline_s);
    OCT_TRY(oct_trainer_step(trainer, &result));
    oct_session_set_deadline(r->session, OCT_DEADLINE_S);
    r->syncs += oct_comm_syncs(r->session->comm) - before;
    if (r->saver.ended) OCT_TRY(oct_saver_settle(&r->saver));

    bool phase_ends =
        oct_trainer_done(trainer) || oct_plan_phase(&trainer->plan, trainer->step) != phase;
    oct_record_step(r, phase, &result, phase_ends);
    /* What was measured before a checkpoint is kept with it, so a resumed run need not repeat it. */
    if (oct_plan_evaluates(&trainer->plan, r->recipe, trainer->step))
        OCT_TRY(evaluate_run(r, phase, &verdict));
    if (verdict.ends && !phase_ends) oct_record_phase_end(r, phase);
    if (trainer->stop && !phase_ends && !verdict.ends) oct_record_so_far(r, phase);
    if (oct_trainer_done(trainer)) {
        OCT_TRY(oct_saver_settle(&r->saver));
        OCT_TRY(go_back(r));
    }
    const bool required = phase_ends || verdict.ends || verdict.best || trainer->stop;
    const bool last = oct_trainer_done(trainer) || trainer->stop;
    if (required || trainer->step % r->recipe->checkpoint_every == 0) {
        oct_session_set_deadline(r->session, OCT_FILES_DEADLINE_S);
        OCT_TRY(save_run(r, required, last));
        oct_session_set_deadline(r->session, OCT_DEADLINE_S);
    }
    r->progress.last = oct_seconds(); /* evaluation and checkpoint are no part of a step */
    OCT_CHECK(!trainer->stop || oct_trainer_done(trainer), OCT_STOPPED,
              "stopped after step %lld as requested; checkpoint step-%08lld.h5 is safe; repeat the "
              "command to continue",
              (long long)trainer->step, (long long)r->saver.step);
    return OCT_OK;
}

/* The start. */

static oct_status resume_run(oct_training *r)
{
    oct_checkpoint checkpoint = {0};
    oct_status status = OCT_OK;
    if (oct_training_speaks(r)) status = oct_checkpoint_newest_on_disk(&checkpoint, r->checkpoints);
    OCT_TRY_OUT(oct_session_agree(r->session, status));
    OCT_TRY_OUT(oct_job_share_info(r->session, &checkpoint));
    if (checkpoint.path) {
        if (oct_training_speaks(r))
            status = oct_run_folder_same_data(&r->folder,
                                              oct_job_data_record(&r->train_data, &r->test_data));
        OCT_TRY_OUT(oct_session_agree(r->session, status));
        OCT_TRY_OUT(oct_session_agree(
            r->session, oct_run_same_recipe(checkpoint.path, checkpoint.info.recipe, r->recipe)));
        OCT_TRY_OUT(oct_trainer_restore(&r->trainer, &checkpoint));
        oct_log(OCT_LOG_INFO, "resuming %s from step %lld of %lld", r->recipe->output,
                (long long)r->trainer.step, (long long)oct_plan_steps(&r->trainer.plan));
    }
    if (oct_training_speaks(r) && checkpoint.path)
        status = oct_checkpoint_clean(r->checkpoints, checkpoint.info.recipe);
    if (oct_training_speaks(r) && status == OCT_OK)
        status =
            oct_run_folder_rewind(&r->folder, r->trainer.step, oct_plan_steps(&r->trainer.plan));
    OCT_TRY_OUT(oct_session_agree(r->session, status));
out:
    oct_checkpoint_close(&checkpoint);
    return status;
}

static oct_status open_folder(oct_training *r)
{
    const char *output = r->recipe->output;
    oct_status status = OCT_OK;
    if (oct_training_speaks(r))
        status = oct_run_folder_open(&r->folder, r->recipe, &r->trainer.report);
    if (oct_training_speaks(r) && status == OCT_OK) status = oct_onnx_model_keep(r->recipe, output);
    if (oct_training_speaks(r) && status == OCT_OK)
        oct_log(OCT_LOG_INFO, "exports that the int8 model will have: %s",
                r->trainer.exports.data ? r->trainer.exports.data : "none");
    OCT_TRY(oct_session_agree(r->session, status));
    status = oct_run_folder_log_failure(output);
    if (status == OCT_OK) status = oct_run_path(output, "checkpoints", &r->checkpoints);
    if (status == OCT_OK) status = oct_run_path(output, "model.int8.h5", &r->model_path);
    return oct_session_agree(r->session, status);
}

static void say_what_comes(const oct_training *r)
{
    const oct_plan *plan = &r->trainer.plan;
    const oct_dataset *data = &r->train_data;
    const oct_recipe *recipe = r->recipe;
    char parameters[32], train[32], test[32], outputs[48];
    int size = r->session->group->size;
    oct_log(
        OCT_LOG_INFO, "%s: %s parameters, input %lldx%lldx%lld, %s; %s training and %s test images",
        oct_recipe_model(recipe), oct_text_count(oct_float_bytes(r->trainer.model) / 4, parameters),
        (long long)data->h, (long long)data->w, (long long)data->c,
        oct_goal_outputs(data->goal, data->classes, outputs), oct_text_count(data->count, train),
        oct_text_count(r->test_data.count, test));
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
static oct_status start_from_init(oct_training *r)
{
    oct_text lines = {0};
    if (!oct_init_given(r->init)) return OCT_OK;
    oct_status status = oct_session_agree(r->session, oct_init_apply(r->init, &r->trainer, &lines));
    for (const char *line = lines.data; status == OCT_OK && line && *line;) {
        const int length = (int)strcspn(line, "\n");
        oct_log(line == lines.data ? OCT_LOG_INFO : OCT_LOG_WARN, "%.*s", length, line);
        line += length + 1;
    }
    oct_text_free(&lines);
    oct_init_close(r->init);
    return status;
}

/* Makes the float model, with the weights that the run starts from, the teacher. */
static oct_status call_start(oct_training *r)
{
    oct_module *model = NULL;
    oct_text lines = {0};
    oct_status status = oct_build_model(&model, r->recipe, &r->train_data);
    if (status == OCT_OK)
        status = oct_init_weights(r->init, model, r->recipe, &r->train_data, &lines);
    if (status == OCT_OK) status = oct_teacher_take(&r->trainer.teacher, &model, &r->train_data);
    oct_module_destroy(&model);
    oct_text_free(&lines);
    OCT_TRY(oct_session_agree(r->session, status));
    oct_log(OCT_LOG_INFO, "teacher: the float weights that the run starts from");
    return OCT_OK;
}

/* Where there is no float phase, the weights that the run starts from are its end. */
static oct_status call_other_teacher(oct_training *r)
{
    const bool has_float = r->trainer.plan.begin[OCT_PHASE_CALIBRATE] > 0;
    const bool at_start = oct_teacher_is_own(r->recipe) && !has_float;
    oct_checkpoint *other = at_start ? &r->init->checkpoint : r->teacher;
    if (!oct_teacher_wanted(r->recipe)) return OCT_OK;
    if (other->bytes)
        OCT_TRY(call_teacher(r, other));
    else if (at_start)
        OCT_TRY(call_start(r));
    oct_checkpoint_close(r->teacher);
    return OCT_OK;
}

static oct_status start_run(oct_training *r)
{
    json_t *description;
    oct_status status = OCT_OK;
    oct_session_set_deadline(r->session, OCT_FILES_DEADLINE_S);
    oct_job_threads(r->session, r->recipe->threads);
    OCT_TRY(oct_job_data(r->session, r->recipe, OCT_TRAIN, &r->train_data));
    OCT_TRY(oct_job_data(r->session, r->recipe, OCT_TEST, &r->test_data));
    OCT_TRY(
        oct_session_agree(r->session, oct_trainer_create(&r->trainer, r->recipe, r->session->group,
                                                         &r->train_data, &r->test_data)));
    r->trainer.saver = &r->saver;
    if (oct_training_speaks(r)) {
        /* Parameters and what the optimizer keeps of them are most of a checkpoint. */
        const int64_t copies = 1 + oct_optim_slots(r->recipe->optimizer_kind);
        status = oct_check_room(r->recipe,
                                r->trainer.training.params.numel * copies * (int64_t)sizeof(float));
        if (status == OCT_OK) status = oct_checkpoint_writer_create(&r->saver.writer);
    }
    OCT_TRY(oct_session_agree(r->session, status));
    OCT_TRY(call_other_teacher(r));
    OCT_TRY(start_from_init(r));
    OCT_TRY(open_folder(r));
    say_what_comes(r);
    OCT_TRY(resume_run(r));
    if (r->trainer.step == 0) oct_warn_of_model(r->recipe, r->trainer.model);
    OCT_TRY(oct_job_describe(r->session, r->args, r->recipe, &r->train_data, &r->test_data,
                             &description));
    if (oct_training_speaks(r)) {
        json_object_set_new(description, "from_step", json_integer(r->trainer.step));
        status = oct_run_folder_session(&r->folder, description);
    }
    OCT_TRY(oct_session_agree(r->session, status));
    oct_record_start(r);
    oct_session_set_deadline(r->session, OCT_DEADLINE_S);
    return OCT_OK;
}

static oct_status run_in_session(oct_training *r, json_t **result)
{
    OCT_TRY(stop_before_steps(r));
    OCT_TRY(start_run(r));
    if (!oct_trainer_done(&r->trainer)) OCT_TRY(stop_before_steps(r));
    while (!oct_trainer_done(&r->trainer))
        OCT_TRY(run_step(r));
    if (r->saver.waited_s >= 1)
        oct_log(OCT_LOG_WARN,
                "%lld checkpoint%s came while the one before was still being written, and training "
                "waited %.1f s for it in all; raise checkpoint.every to wait less",
                (long long)r->saver.waits, r->saver.waits == 1 ? "" : "s", r->saver.waited_s);
    if (r->trainer.audit.done > 0)
        oct_log(OCT_LOG_INFO, "%lld leaves were computed again, to the same bits",
                (long long)r->trainer.audit.done);
    if (r->trainer.skips.all > 0)
        oct_log(OCT_LOG_WARN, "%lld of %lld steps were skipped because of NaN or infinity",
                (long long)r->trainer.skips.all, (long long)r->trainer.step);
    return oct_run_result(r, result);
}

/* Collective: a finished run only reports its result again. */
static oct_status find_finished(oct_training *r, json_t **result, bool *finished)
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
                     oct_train_files *files, json_t **result)
{
    oct_training r = {
        .session = session,
        .args = args,
        .recipe = recipe,
        .init = &files->init,
        .teacher = &files->teacher,
        .folder = {.lock = -1, .metrics = -1, .events = {.fd = -1}},
    };
    r.saver = (oct_saver){.session = session,
                          .records = &r.folder,
                          .now = &r.trainer.step,
                          .every = recipe->checkpoint_every,
                          .step = -1};
    bool finished = false;
    *result = NULL;
    OCT_TRY(find_finished(&r, result, &finished));
    if (finished) return OCT_OK;

    oct_status status = run_in_session(&r, result);
    oct_checkpoint_writer_destroy(&r.saver.writer);
    oct_free(&r.saver.file.path);
    oct_trainer_destroy(&r.trainer);
    oct_dataset_close(&r.train_data);
    oct_dataset_close(&r.test_data);
    oct_run_folder_close(&r.folder);
    oct_free(&r.checkpoints);
    oct_free(&r.model_path);
    return status;
}
