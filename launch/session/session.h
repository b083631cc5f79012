/* A session starts the ranks of one command, makes them agree on failures and ends them.
 *
 *     oct_session session;
 *     OCT_TRY(oct_session_open(&session, args));
 *     return oct_session_end(&session, work(&session, args));
 *
 * Three kinds of failure, and what `work` does with each:
 * - the same on every rank by construction (a pure function of what all have: OCT_NUMERIC, OCT_STOPPED,
 *   OCT_MISMATCH): return it;
 * - may differ from rank to rank (files, memory at start, saving on rank 0): all ranks agree (here or
 *   anywhere below through group->agree), then return what that gives;
 * - a failure on one rank between agreements, while the others wait for it: return it. The end of the
 *   session names the rank and stops the whole job.
 * Commands never print errors: main does, or the end of the session for a lone rank.
 */
#pragma once

#include "dist/comm.h"
#include "launch/base/args.h"

typedef struct oct_session {
    const oct_args *args;
    oct_comm *comm;
    const oct_collective *group; /* the ranks, for all work of the command */
    bool own_deadline;           /* none was given */
} oct_session;

/* A rank waits so long for another where neither a recipe nor --deadline says it. Writing a checkpoint
 * to a slow disk and reading a data set must fit. */
#define OCT_DEADLINE_S 300.0
/* And so long while rank 0 reads or writes files. */
#define OCT_FILES_DEADLINE_S 3600.0

/* Starts the ranks, and compares their command lines. (main has set up the log as -q and -v ask; rank 0
 * speaks.) deadline_s: how long a rank waits for another; --deadline goes before it; 0: as it is set below, at first
 * OCT_DEADLINE_S. */
oct_status oct_session_open(oct_session *session, const oct_args *args, double deadline_s);

/* Sets how long a rank waits for another from now on, unless the user has said it. */
void oct_session_set_deadline(oct_session *session, double deadline_s);

/* Collective: compares a text of all ranks. OCT_USAGE when one is not that of rank 0, naming the rank and the
 * first line that differs. */
oct_status oct_session_same(oct_session *session, const oct_text *text);

/* Collective: agrees on an outcome (group->agree). OK if OK on all ranks; otherwise a failure on all of them, and rank 0's
 * record holds what there is to say: its own problems, or those of the first rank that failed, which
 * is named. */
oct_status oct_session_agree(oct_session *session, oct_status mine);

/* Collective: gives rank 0's block to all ranks: sets the pointer at `block` and *bytes on the others, which own it then.
 * NULL where it is empty. A failure is the same on all ranks. */
oct_status oct_session_share(oct_session *session, void *block, size_t *bytes);

/* Ends the ranks and passes `status` on. Does not return after a lone failure among several ranks. */
oct_status oct_session_end(oct_session *session, oct_status status);
