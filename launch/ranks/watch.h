/* One mpirun is started, looked after until it has ended, and judged. */
#pragma once

#include "dist/rank_table.h"
#include "launch/ranks/ranks.h"

#include <sys/types.h>

typedef struct oct_ranks_start {
    oct_mpi_launcher mpirun;
    oct_mpirun_job job;
    const oct_rank_hosts *hosts; /* the list that is given to mpirun */
    const char *allocation;      /* what the environment says of hosts; NULL: nothing */
    double deadline_s; /* of the ranks; also how long mpirun may take to start the first */
    bool goes_on;      /* the caller will start them again if one is lost */
} oct_ranks_start;

/* Makes SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU and (unless nohup has had it ignored) SIGHUP requests to the ranks to
 * stop. */
void oct_ranks_listen(void);
bool oct_ranks_stop_asked(void);

/* Runs mpirun and waits; OCT_OK: *exit_status is the command's. OCT_LOST: a signal ended a rank or mpirun, or mpirun
 * was stuck and is ended. Requests to stop reach the ranks as a SIGUSR1; a second SIGINT or SIGTERM
 * ends them. Where mpirun cannot be started, the child returns too, with OCT_RESOURCE and the
 * sentence; the parent returns the child's exit status. */
oct_status oct_ranks_watch(const oct_ranks_start *start, int *exit_status);

/* relay.c: what mpirun and its ranks say goes through the process that started mpirun, since that of Open MPI 4 crashes with its
 * ranks where the reader of its output leaves (head, a tee that Ctrl-C has ended, a terminal that is closed), and does
 * not report that results could not be written. */

enum {
    OCT_RELAY_STREAMS = 2,
    OCT_RELAY_BYTES = 4096
}; /* stdout, stderr; what a pipe takes whole */

/* Whoever looks after the job says what of stderr is for him, or said otherwise. */
typedef struct oct_relay_editor {
    const char *const *accounts;  /* of mpirun (mpirun.h): lines, or blocks between two rules */
    bool (*explained)(void *job); /* that a rank has ended is said without these */
    void (*began)(void *job, int ranks, const char *host); /* a line of ranks (rank_table.h) */
    void *job;
} oct_relay_editor;

typedef struct oct_relay {
    struct oct_relayed {
        int from, to;           /* -1: ended; nobody reads it */
        size_t length, written; /* of text; bytes */
        char text[2 * OCT_RELAY_BYTES];
    } stream[OCT_RELAY_STREAMS];
    oct_relay_editor editor;
    bool passes_line;  /* the line of stderr at hand is passed on as it comes */
    size_t kept_bytes; /* of lines that may be left out */
    char kept_text[OCT_RELAY_BYTES];
    char tail[2 * OCT_RELAY_BYTES]; /* of stderr, as it was passed on */
    size_t tail_bytes;
    bool open_line; /* what was last said on stderr has no end of line, such as a bar */
    int failed;     /* errno of the first write to stdout that failed; 0: none did */
} oct_relay;

/* Makes a pipe for each stream; ends[] are to be stdout and stderr of the child, and the caller closes
 * them here. */
oct_status oct_relay_open(oct_relay *relay, const oct_relay_editor *editor,
                          int ends[OCT_RELAY_STREAMS]);
/* Passes on what there is, after it has waited for something up to patience_ms. A reader who reads nothing
 * delays only that stream; after one has left the rest is dropped. */
void oct_relay_move(oct_relay *relay, int patience_ms);
/* Passes on all that is left and closes the pipes. A reader who takes nothing is waited for, unless asked() says that
 * somebody wants an end. Then says the last words of ranks (rank_table.h) that were not passed on. */
void oct_relay_close(oct_relay *relay, bool (*asked)(void));

/* verdict.c: how one start of mpirun has ended: whose exit status it is, or who is lost. */

/* What has been seen of a start while it lasted. */
typedef struct oct_ranks_seen {
    const oct_ranks_start *start;
    bool stop_asked;         /* by this process */
    bool end_asked;          /* and at once */
    int64_t begun_elsewhere; /* ranks that have begun on other hosts */
    bool rank_gone;          /* a rank's process ended and said nothing: this one */
    oct_rank_view gone_rank;
    char report[4096];    /* what all did when it was found */
    const char *given_up; /* why mpirun was ended by this process; NULL: it was not */
} oct_ranks_seen;

/* Whether the command is train, whose ranks save a checkpoint when they are asked to stop. */
bool oct_ranks_train(const oct_ranks_start *start);
/* Counts the ranks of this host that have begun, and those of others. */
int64_t oct_ranks_begun(const oct_ranks_seen *seen);
/* The exit status of a rank that failed, if possible not one that only lost another; 0: none did. */
int oct_ranks_failed_status(void);

/* Finds the command's exit status, or who is lost (OCT_LOST), from how mpirun ended (a wait status) and what the ranks
 * left in their table. OCT_RESOURCE: no rank began. OCT_STOPPED only where a stop was asked for. */
oct_status oct_ranks_judge(const oct_ranks_seen *seen, int ended, int *exit_status);

/* guard.c: the guard is a process that outlives the one that starts mpirun, for what would be left of a job then: mpirun
 * and ranks that did not notice, and the files that they keep in shared memory.
 *
 * These lie in a folder of the job's own. What killed jobs of this user have left, guard and all, goes when the next one
 * begins. */

/* Starts a guard, then makes and locks the job's folder; NULL where it cannot be had, and then there is no guard. */
const char *oct_guard_begin(void);
/* Starts a guard who knows the table of ranks and whom to watch, in place of the one before; 0: mpirun has ended. */
void oct_guard_watch(pid_t mpirun);
/* Ends the guard and removes the folder, which has gone when this returns. */
void oct_guard_end(void);

/* Kills mpirun with what it has started, which may have left its process group and may be stopped. */
void oct_guard_kill(pid_t mpirun);
