/* `--ranks N` runs the same command line again, under mpirun with the flags that this machine needs. */
#pragma once

#include "launch/base/args.h"

/* Runs mpirun and waits; OCT_OK: *exit_status is the command's. A recipe among the words is read
 * first: its mistakes are told before any rank starts. SIGINT, SIGTERM and SIGUSR1 reach the ranks as
 * a SIGUSR1; a second SIGINT or SIGTERM ends them. OCT_LOST: a signal ended a rank. Where mpirun
 * cannot be started, the child returns too, with OCT_RESOURCE and the sentence; the parent returns
 * the child's exit status. */
oct_status oct_launch_ranks(const oct_args *args, int64_t ranks, int *exit_status) OCT_NODISCARD;

/* Writes the command line that is run: fills argv (`capacity` pointers, ended by NULL; strings are
 * borrowed, the number of ranks is written into `number`) and returns its length. threads: of each
 * rank. bar: progress is a bar, since stderr of the process that starts mpirun is a terminal. */
size_t oct_ranks_command(const oct_args *args, int64_t ranks, int64_t threads, int64_t cores,
                         bool bar, const char *program, char number[24], const char **argv,
                         size_t capacity);
