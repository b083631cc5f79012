/* Ranks that are threads of this process, over a transport that copies messages: sums over many ranks are
 * tested without MPI, and what they exchange is counted. */
#pragma once

#include "dist/comm.h"

enum { OCT_THREAD_RANKS_MAX = 64 };

/* What a rank has exchanged since it began to be counted. */
typedef struct oct_traffic {
    int64_t messages, bytes; /* sent */
    int connections;         /* ranks that it has ever sent to or received from */
} oct_traffic;

/* Runs `body` as each of these ranks, on a thread each, and returns when all have ended. `on_a_host` consecutive
 * ranks see themselves on one host. */
void oct_run_thread_ranks(int ranks, int on_a_host, void (*body)(const oct_comm *comm, void *user),
                          void *user);
/* The same, but the lanes of sums besides other work (dist/sums.c) share no memory, as where it is out for them: each rank
 * of them sees itself on a host of its own. */
void oct_run_thread_ranks_lanes_apart(int ranks, int on_a_host,
                                      void (*body)(const oct_comm *comm, void *user), void *user);
/* From the body: what this rank has exchanged so far. */
oct_traffic oct_traffic_of(const oct_comm *comm);
