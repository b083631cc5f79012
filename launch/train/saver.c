#include "launch/train/saver.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/text.h"
#include "dist/comm.h"

enum { MAY_FAIL = 2 };

void oct_saver_wait_copied(const oct_saver *saver)
{
    if (saver) oct_checkpoint_writer_wait_copied(saver->writer);
}

/* A disk may be full for a while. Checkpoints on the way may fail twice in a row; those that end a
 * phase or a run may not. */
static oct_status forgive_failure(oct_saver *saver, oct_status status, int64_t step)
{
    if (oct_fail_code() != OCT_RESOURCE || ++saver->failures > MAY_FAIL) return status;
    oct_log(OCT_LOG_WARN,
            "%s\nno checkpoint of step %lld was written; the run continues and tries again at step "
            "%lld",
            oct_fail_text(0), (long long)step,
            (long long)((*saver->now / saver->every + 1) * saver->every));
    oct_fail_clear();
    oct_comm_go_on(saver->session->comm);
    return OCT_OK;
}

oct_status oct_saver_note_begun(oct_saver *saver, oct_status status, oct_save_under_way save)
{
    status = oct_session_agree(saver->session, status);
    if (status != OCT_OK) return save.required ? status : forgive_failure(saver, status, save.step);
    saver->under_way = save;
    return OCT_OK;
}

static void record_checkpoint(const oct_saver *saver, const oct_checkpoint_written *written)
{
    if (saver->session->group->rank != 0) return;
    oct_log(OCT_LOG_VERBOSE, "checkpoint %s (written in %.2f s; training waited %.3f s)",
            written->file.path, written->seconds, written->blocked);
    oct_run_folder_record(saver->records,
                          json_pack("{s:s, s:I, s:s, s:f, s:f}", "kind", "checkpoint", "step",
                                    (json_int_t)saver->step, "file", written->file.path, "seconds",
                                    oct_rounded(written->seconds, 0.001), "blocked",
                                    oct_rounded(written->blocked, 0.0001)));
}

oct_status oct_saver_end(oct_saver *saver, oct_status status, bool required, int64_t step,
                         oct_checkpoint_written *written)
{
    status = oct_session_agree(saver->session, status);
    if (status == OCT_OK) {
        saver->failures = 0;
        saver->step = step;
        record_checkpoint(saver, written);
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
    return oct_saver_end(saver, status, save.required, save.step, &written);
}
