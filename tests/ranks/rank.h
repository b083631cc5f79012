/* For the rank programs: plain MPI programs that Criterion tests start under mpirun. A check that
 * fails ends the whole job with exit status 1, so the test sees it. */
#pragma once

#include "core/base/log.h"
#include "core/base/status.h"
#include "core/base/text.h"
#include "dist/comm_impl.h"
#include "dist/rank_table.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RANK_CHECK(comm, condition, ...)                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %d, %s:%d: ", oct_comm_rank(comm), __FILE__, __LINE__);          \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            oct_abort(1);                                                                          \
        }                                                                                          \
    } while (0)

/* A call that must succeed. */
#define RANK_OK(comm, call)                                                                        \
    do {                                                                                           \
        if ((call) != OCT_OK) RANK_CHECK(comm, false, "%s: %s", #call, oct_error_message(0));      \
    } while (0)

/* Prints the record as the command does, one line a problem; returns its exit status. If several
 * ranks see one lost, one of them reports it. */
static inline int rank_report(oct_status status)
{
    if (status == OCT_LOST && !oct_rank_may_report()) return oct_status_exit(status);
    for (size_t i = 0; i < oct_error_count(); i++)
        fprintf(stderr, "octet: error: %s\n", oct_error_message(i));
    return oct_status_exit(status);
}

/* A number of the command line; -1 when it is none. */
static inline int rank_number(const char *text)
{
    int64_t number;
    return oct_parse_i64(text, &number) && number >= 0 && number < 1000 ? (int)number : -1;
}

static inline bool rank_threads_are_stopped(int pid)
{
    char path[64];
    bool stopped = true;
    int64_t id;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *threads = opendir(path);
    for (struct dirent *thread; threads && (thread = readdir(threads));)
        if (oct_parse_i64(thread->d_name, &id)) stopped &= oct_process_state((int)id) == 'T';
    if (threads) closedir(threads);
    return stopped;
}

/* Stops mpirun, or MPICH's proxy. A child wakes it `seconds` later, and says which ranks are still there then.
 * On a busy machine a thread of it still serves the ranks for a while after the signal, so all are waited for. */
static inline void rank_stop_launcher(unsigned seconds)
{
    const int launcher = oct_launcher_process();
    if (fork() != 0) {
        kill(launcher, SIGSTOP);
        while (!rank_threads_are_stopped(launcher))
            usleep(1000);
        return;
    }
    sleep(seconds);
    for (int i = 0; i < oct_rank_table_lines(); i++)
        if (!strchr("Z", oct_process_state(oct_rank_table_line(i).pid)))
            fprintf(stderr, "rank %d is still there\n", i);
    kill(launcher, SIGCONT);
    _exit(0);
}

static inline oct_comm *rank_open(double deadline_s)
{
    oct_comm *comm = NULL;
    oct_log_setup(OCT_LOG_INFO, true);
    oct_process_own();
    oct_status status = oct_comm_open(&comm, deadline_s);
    if (status != OCT_OK) exit(rank_report(status));
    return comm;
}
