/* The hosts that ranks are started on, from --hostfile or -H: names and how many ranks each takes. */
#pragma once

#include "launch/ranks/mpirun.h"

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
oct_status oct_rank_hosts_read(oct_rank_hosts *hosts, const char *path) OCT_NODISCARD;
/* Reads "node1:16,node2:16" from the command line. */
oct_status oct_rank_hosts_parse(oct_rank_hosts *hosts, const char *list) OCT_NODISCARD;
void oct_rank_hosts_free(oct_rank_hosts *hosts);

int64_t oct_rank_hosts_slots(const oct_rank_hosts *hosts); /* of those that are not left out */
bool oct_rank_hosts_beyond(const oct_rank_hosts *hosts);   /* others than this one are among them */
/* Writes those that are not left out, for mpirun, into a file without a name that is there as long as this process
 * or until the next call. */
oct_status oct_rank_hosts_write(oct_rank_hosts *hosts, const oct_mpirun_dialect *dialect,
                                char path[64]) OCT_NODISCARD;
/* Leaves out the hosts on which the agent of mpirun (ssh, unless the environment names one) cannot run `true` within
 * patience_s. */
oct_status oct_rank_hosts_ask(oct_rank_hosts *hosts, const oct_mpirun_dialect *dialect,
                              double patience_s) OCT_NODISCARD;
