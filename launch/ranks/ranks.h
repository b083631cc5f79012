/* `--ranks N` runs the same command line again, under mpirun with the flags that this machine needs, and again when
 * a rank is lost and --restart allows it. */
#pragma once

#include "launch/ranks/mpirun.h"

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
                            int *exit_status);

/* The wait policy decides how the threads of a rank wait for each other between two pieces of work. */

/* Threads wait awake for a tenth of a millisecond, as long as a piece of work may take, then asleep: a longer spin
 * takes the time of a control group's quota, or of other work, from the threads that are waited for. Where the threads
 * of a host's ranks have no core each, they wait asleep at once. The OpenMP runtime reads this when the program is
 * loaded, so a process of several threads starts itself once more. OMP_WAIT_POLICY or GOMP_SPINCOUNT of the user's own
 * are left as they are. */
oct_status oct_wait_policy(const oct_args *args);
/* Chooses for the processes that this one starts. */
void oct_wait_policy_choose(bool cores_suffice);

/* This is what a recipe on the command line says of the ranks. */
typedef struct oct_ranks_wanted {
    int64_t threads;   /* of each; 1 without a recipe */
    double deadline_s; /* --deadline goes before it */
} oct_ranks_wanted;
/* Reads it before any rank starts, so that mistakes of the recipe are reported first. */
oct_status oct_ranks_want(const oct_args *args, oct_ranks_wanted *wanted);

/* The hosts that ranks are started on, from --hostfile or -H: names and how many ranks each takes. */

typedef struct oct_rank_host {
    char name[256];
    int64_t slots;
    bool here;   /* it is the one that this process runs on */
    bool silent; /* it did not answer, and is left out */
} oct_rank_host;

typedef struct oct_rank_hosts {
    oct_rank_host *host;
    size_t count, capacity;
    int file; /* of oct_rank_hosts_write; -1: none */
} oct_rank_hosts;

/* Reads a file of lines "node1", "node1 slots=16" or "node1:16" with comments from '#' on, as Open MPI, MPICH and
 * batch systems write them; slots of a host that is named again are added. OCT_USAGE with file and line for
 * anything else. */
oct_status oct_rank_hosts_read(oct_rank_hosts *hosts, const char *path);
/* Reads "node1:16,node2:16" from the command line. */
oct_status oct_rank_hosts_parse(oct_rank_hosts *hosts, const char *list);
void oct_rank_hosts_free(oct_rank_hosts *hosts);

/* Counts the slots of the hosts that are not left out. */
int64_t oct_rank_hosts_slots(const oct_rank_hosts *hosts);
bool oct_rank_hosts_beyond(const oct_rank_hosts *hosts); /* others than this one are among them */
/* Writes those that are not left out, for mpirun, into a file without a name that is there as long as this process
 * or until the next call. */
oct_status oct_rank_hosts_write(oct_rank_hosts *hosts, const oct_mpirun_dialect *dialect,
                                char path[64]);
/* Leaves out the hosts on which the agent of mpirun (ssh, unless the environment names one) cannot run `true` within
 * patience_s. */
oct_status oct_rank_hosts_ask(oct_rank_hosts *hosts, const oct_mpirun_dialect *dialect,
                              double patience_s);
