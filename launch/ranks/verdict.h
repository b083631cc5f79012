/* How one start of mpirun has ended: whose exit status it is, or who is lost. */
#pragma once

#include "dist/rank_table.h"
#include "launch/ranks/watch.h"

/* What has been seen of a start while it lasted. */
typedef struct oct_ranks_seen {
    const oct_ranks_start *start;
    bool asked;        /* to stop, by this process */
    bool ends;         /* and at once */
    int64_t elsewhere; /* ranks that have begun on other hosts */
    bool found;        /* a rank whose process ended and said nothing: */
    oct_rank_view gone;
    char report[4096];    /* what all did when it was found */
    const char *given_up; /* why mpirun was ended by this process; NULL: it was not */
} oct_ranks_seen;

/* Counts the ranks of this host that have begun, and those of others. */
int64_t oct_ranks_begun(const oct_ranks_seen *seen);
/* The exit status of a rank that failed, of one with a reason of its own if there is one; 0: none did. */
int oct_ranks_failed_status(void);

/* Finds the command's exit status, or who is lost (OCT_LOST), from how mpirun ended (a wait status) and what the ranks
 * left in their table. OCT_RESOURCE: no rank began. OCT_STOPPED only where a stop was asked for. */
oct_status oct_ranks_judge(const oct_ranks_seen *seen, int ended, int *exit_status) OCT_NODISCARD;
