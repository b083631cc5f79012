/* `--ranks N` runs the same command line again, under mpirun with the flags that this machine needs, and again when
 * a rank is lost and --restart allows it. */
#pragma once

#include "launch/base/args.h"

/* What the command line asks for. */
typedef struct oct_ranks_request {
    int64_t ranks;        /* 0: as many as the hosts have slots */
    int64_t restarts;     /* how often at most */
    const char *hostfile; /* NULL: not given */
    const char *hosts;    /* a list, or NULL */
} oct_ranks_request;

/* Runs the ranks and waits; OCT_OK: *exit_status is the command's. A recipe among the words is read
 * first: its mistakes are reported before any rank starts. A loss (OCT_LOST, or exit status 6) is
 * followed by another start from the newest checkpoint:
 *   - hosts that do not answer are left out, and there are at most as many ranks as slots are left;
 *   - on the slots that are left as many ranks as before, but one less where the last start brought
 *     no newer checkpoint: what ended it, such as a lack of memory, would end it again.
 * No other end is followed by a start: the next one would be the same, or was asked for. */
oct_status oct_launch_ranks(const oct_args *args, const oct_ranks_request *request,
                            int *exit_status) OCT_NODISCARD;
