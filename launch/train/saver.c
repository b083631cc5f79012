/* Checkpoints of a run: what is in one, and how it is saved beside the steps. */
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/model/class_names.h"
#include "launch/base/output.h"
#include "launch/train/trainer.h"

#include <stdio.h>

enum { FAILURES_ALLOWED = 2 };

/* Rank 0 writes a checkpoint, or has the writer do it beside what follows. Whoever reads it gets the model that was
 * evaluated: where weights are averaged, the averages. */
static oct_status write_checkpoint(oct_trainer *trainer, const char *folder,
                                   oct_checkpoint_writer *writer, oct_checkpoint_file *file)
{
    oct_optim *optim = oct_trainer_optim(trainer);
    OCT_OWNED(oct_text_free) oct_text identity = {0};
    OCT_OWNED(oct_free) char *class_names = NULL;
    if (trainer->group->rank != 0) return OCT_OK;
    OCT_TRY(oct_recipe_write(trainer->recipe, true, &identity));
    OCT_TRY(oct_class_names_make(&class_names, trainer->train_data));
    oct_checkpoint_info info = {
        .step = trainer->step,
        .updates = optim ? optim->updates : 0,
        .stopping = trainer->stopping,
        .skips = trainer->skips,
        .recipe = identity.data,
        .class_names = class_names,
    };
    snprintf(info.phase, sizeof(info.phase), "%s", oct_phase_name(trainer->phase));
    /* The end of the float phase may be the start of other runs. */
    const oct_keep keep = {trainer->recipe->checkpoint_keep,
                           trainer->plan.begin[OCT_PHASE_CALIBRATE],
                           oct_early_stopping_best(&trainer->stopping, &trainer->plan)};
    return writer ? oct_checkpoint_writer_begin(writer, folder, &info, trainer->model, optim, keep)
                  : oct_checkpoint_save(folder, &info, trainer->model, optim, keep, file);
}

oct_status oct_trainer_save(oct_trainer *trainer, const char *folder, oct_checkpoint_file *file)
{
    if (file) *file = (oct_checkpoint_file){0};
    return write_checkpoint(trainer, folder, NULL, file);
}

void oct_saver_wait_copied(const oct_saver *saver)
{
    if (saver) oct_checkpoint_writer_wait_copied(saver->writer);
}

/* Makes a warning of a save that failed for lack of room, up to twice in a row: a disk may be full for a while.
 * Saves that end a phase or a run must not fail, and do not come here. */
static oct_status forgive_failure(oct_saver *saver, oct_status status, int64_t step)
{
    const oct_trainer *trainer = saver->trainer;
    const int64_t every = trainer->recipe->checkpoint_every;
    if (oct_fail_code() != OCT_RESOURCE || ++saver->failures > FAILURES_ALLOWED) return status;
    oct_log(OCT_LOG_WARN,
            "%s\nno checkpoint of step %lld was written; the run continues and tries again at step "
            "%lld",
            oct_error_message(0), (long long)step,
            (long long)((trainer->step / every + 1) * every));
    oct_fail_clear();
    oct_comm_go_on(saver->session->comm);
    return OCT_OK;
}

/* Agrees on the outcome of a save and records it; frees or takes written->file.path. */
static oct_status end_save(oct_saver *saver, oct_status status, bool required, int64_t step,
                           oct_checkpoint_written *written)
{
    status = oct_session_agree(saver->session, status);
    if (status == OCT_OK) {
        saver->failures = 0;
        saver->step = step;
        if (saver->session->group->rank == 0) {
            oct_log(OCT_LOG_VERBOSE, "checkpoint %s (written in %.2f s; training waited %.3f s)",
                    written->file.path, written->seconds, written->blocked);
            oct_run_folder_record(saver->records,
                                  json_pack("{s:s, s:I, s:o, s:f, s:f}", "kind", "checkpoint",
                                            "step", (json_int_t)step, "file",
                                            oct_json_string(written->file.path), "seconds",
                                            oct_rounded(written->seconds, 0.001), "blocked",
                                            oct_rounded(written->blocked, 0.0001)));
        }
        oct_free(&saver->file.path);
        saver->file = written->file;
        written->file.path = NULL;
    } else if (!required) {
        status = forgive_failure(saver, status, step);
    }
    oct_free(&written->file.path);
    return status;
}

oct_status oct_saver_settle(oct_saver *saver)
{
    oct_checkpoint_written written = {0};
    oct_status status = OCT_OK;
    if (!saver || !saver->under_way.begun) return OCT_OK;
    const oct_save_under_way save = saver->under_way;
    saver->under_way = (oct_save_under_way){0};
    if (saver->writer) status = oct_checkpoint_writer_take(saver->writer, &written);
    written.blocked += save.compared;
    return end_save(saver, status, save.required, save.step, &written);
}

oct_status oct_saver_save(oct_saver *saver, bool required, bool last)
{
    oct_trainer *trainer = saver->trainer;
    oct_checkpoint_written written = {0};
    const int64_t step = trainer->step;
    double begin = oct_seconds();
    if (saver->under_way.begun) {
        OCT_TRY(oct_saver_settle(saver));
        saver->waits++;
        saver->waited_s += oct_seconds() - begin;
        begin = oct_seconds();
    }
    OCT_TRY(oct_replica_check_whole(&trainer->training, trainer->group, step));
    const double compared = oct_seconds();
    if (last) {
        const oct_status status = oct_trainer_save(trainer, saver->folder, &written.file);
        written.seconds = written.blocked = oct_seconds() - compared;
        return end_save(saver, status, true, step, &written);
    }
    const oct_status status = oct_session_agree(
        saver->session, write_checkpoint(trainer, saver->folder, saver->writer, NULL));
    if (status != OCT_OK) return required ? status : forgive_failure(saver, status, step);
    saver->under_way = (oct_save_under_way){true, required, step, compared - begin};
    return OCT_OK;
}
