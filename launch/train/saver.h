/* The saver of a run owns all that is known of its checkpoints: the newest one, the one that is being written beside the
 * steps, and how often a save failed or came too early. The trainer borrows it, and makes what is saved.
 *
 * A save begins with oct_saver_note_begun and ends with oct_saver_settle, or is written at once and ends with
 * oct_saver_end. All are collective, with the same values on all ranks. */
#pragma once

#include "io/checkpoint/checkpoint.h"
#include "launch/runfolder/run_folder.h"
#include "launch/session/session.h"

/* A save that the writer carries out. */
typedef struct oct_save_under_way {
    bool begun;
    bool required; /* its failure ends the run */
    int64_t step;
    double compared; /* seconds for which the ranks compared their state before it */
} oct_save_under_way;

typedef struct oct_saver {
    oct_session *session;
    oct_run_folder *records;       /* rank 0 */
    const int64_t *now;            /* steps done */
    int64_t every;                 /* steps between saves that are not required */
    oct_checkpoint_writer *writer; /* rank 0; made and destroyed by the run */
    oct_checkpoint_file file; /* rank 0: the newest that this process has written; no path: none */
    int64_t step;             /* of the newest checkpoint, also of an earlier session; -1: none */
    oct_save_under_way under_way;
    bool ended;      /* after a step: the save under way has ended on some rank */
    double waited_s; /* for a save under way before the next could begin */
    int64_t waits;
    int failures; /* one after another */
} oct_saver;

/* Before parameters change: waits until the save under way has copied them. NULL is fine. */
void oct_saver_wait_copied(const oct_saver *saver);
/* Takes the result of beginning a save. OCT_RESOURCE is a warning unless the save is required, or others failed. */
oct_status oct_saver_note_begun(oct_saver *saver, oct_status status,
                                oct_save_under_way save) OCT_NODISCARD;
/* Waits for the end of the save under way, if there is one, and takes its result. NULL is fine. */
oct_status oct_saver_settle(oct_saver *saver) OCT_NODISCARD;
/* Takes the result of a save of the step at hand that was written at once; frees or takes written->file.path. */
oct_status oct_saver_end(oct_saver *saver, oct_status status, bool required, int64_t step,
                         oct_checkpoint_written *written) OCT_NODISCARD;
