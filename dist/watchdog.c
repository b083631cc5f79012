/* A watchdog times the calls of MPI that wait for all ranks without a deadline: its start, the
 * duplicate of its communicator, and its end.
 *
 * A thread counts while the call lasts. It knows of the other ranks of this host what the table of
 * ranks and /proc show: who has not come as far, who is stopped, who is gone. After half a minute it
 * says for whom the call waits, and after the deadline it ends this process and with it the job. It
 * counts only time in which it runs, so a rank that was stopped itself blames no other when it wakes.
 */
#include "core/base/log.h"
#include "core/base/text.h"
#include "dist/comm_impl.h"

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STACK_BYTES = 512 << 10, NAMED_MAX = 8, NAMES_BYTES = 1024 };

static const double tick_s = 0.1, tick_counts_s = 0.5, look_for_gone_s = 2;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t over_changed;
    pthread_t thread;
    bool running, over;
    oct_rank_stage stage;
    double deadline_s;
} watchdog = {.lock = PTHREAD_MUTEX_INITIALIZER, .over_changed = PTHREAD_COND_INITIALIZER};

static const char *stage_name(oct_rank_stage stage)
{
    return stage == OCT_RANK_IN_FINALIZE ? "MPI_Finalize"
           : stage == OCT_RANK_IN_DUP    ? "MPI_Comm_dup"
                                         : "MPI_Init";
}

/* Counts the ranks of this host, as the environment says. */
static int64_t count_ranks_here(void)
{
    int local_rank, ranks;
    return oct_launched_here(&local_rank, &ranks) ? ranks : 1;
}

static bool all_are_here(void)
{
    int rank, size;
    oct_launched(&rank, &size);
    return count_ranks_here() == size;
}

/* Returns a variable in the environment of a process that is a whole number >= 0; -1: it has none; -2: not readable. */
static int64_t read_number_of_process(int pid, const char *name)
{
    char text[32768];
    size_t length = strlen(name);
    int64_t number = -1;
    const ssize_t used = oct_process_read(pid, "environ", text, sizeof(text));
    if (used <= 0) return -2;
    for (const char *at = text; at < text + used; at += strlen(at) + 1)
        if (strncmp(at, name, length) == 0 && at[length] == '=')
            return oct_parse_i64(at + length + 1, &number) ? number : -1;
    return -1;
}

/* True when a process of the launcher exists with this rank among those of the host, or
 * when that is not known. Wrappers count: they have the environment of their rank. */
static bool local_rank_is_taken(int launcher, int64_t local_rank)
{
    char path[64];
    int child;
    snprintf(path, sizeof(path), "/proc/%d/task", launcher);
    DIR *threads = opendir(path);
    if (!threads) return true;
    bool taken = false;
    for (struct dirent *entry; !taken && (entry = readdir(threads)) != NULL;) {
        char children[512];
        snprintf(children, sizeof(children), "%s/%s/children", path, entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(children, "re");
        while (file && !taken && fscanf(file, "%d", &child) == 1) {
            int64_t its = read_number_of_process(child, "OMPI_COMM_WORLD_LOCAL_RANK");
            if (its == -1) its = read_number_of_process(child, "MPI_LOCALRANKID");
            taken = its == local_rank || its == -2;
        }
        if (file) fclose(file);
    }
    closedir(threads);
    return taken;
}

/* Finds a process that ended well before it started MPI, which only its peers miss. Returns
 * its position on this host, or -1. */
static int64_t find_ended_early(void)
{
    int launcher = oct_launcher_process();
    if (launcher == 0) return -1;
    for (int64_t local_rank = 0;
         local_rank < count_ranks_here() && local_rank < oct_rank_table_lines(); local_rank++)
        if (oct_rank_table_line((int)local_rank).pid == 0 &&
            !local_rank_is_taken(launcher, local_rank))
            return local_rank;
    return -1;
}

/* Says "rank 1" where the rank is known: it has entered the table, or all ranks are on this host; otherwise "process
 * 1 of the 4". */
static int name_local_rank(int64_t local_rank, const oct_rank_view *view, char *text, size_t size)
{
    if (view->pid > 0) return snprintf(text, size, "rank %d", view->rank);
    if (all_are_here()) return snprintf(text, size, "rank %lld", (long long)local_rank);
    return snprintf(text, size, "process %lld of the %lld", (long long)local_rank,
                    (long long)count_ranks_here());
}

/* Names those of this host that have not come as far as `stage`, or are stopped there. */
static size_t name_missing(oct_rank_stage stage, char names[NAMES_BYTES])
{
    size_t missing = 0, used = 0;
    names[0] = '\0';
    for (int64_t local_rank = 0;
         local_rank < count_ranks_here() && local_rank < oct_rank_table_lines(); local_rank++) {
        oct_rank_view view = oct_rank_table_line((int)local_rank);
        bool absent = view.pid == 0, stopped = !absent && oct_process_state(view.pid) == 'T';
        if (!absent && !stopped && view.stage >= stage) continue;
        if (missing++ >= NAMED_MAX) continue;
        char name[64];
        name_local_rank(local_rank, &view, name, sizeof(name));
        used += (size_t)snprintf(names + used, NAMES_BYTES - used, "%s%s (%s)",
                                 used > 0 ? ", " : "", name,
                                 absent    ? "its process has not started Octet"
                                 : stopped ? "its process is stopped"
                                           : "it has not come as far");
    }
    if (missing > NAMED_MAX)
        snprintf(names + used, NAMES_BYTES - used, " and %zu more", missing - NAMED_MAX);
    return missing;
}

/* Says for whom the call waits, as far as this host knows. */
static void explain_wait(oct_rank_stage stage, char text[NAMES_BYTES + 256])
{
    const oct_launcher_text launcher = oct_launcher_stopped("because ");
    char names[NAMES_BYTES], host[OCT_HOST_BYTES];
    oct_host_name(host);
    if (launcher.text[0])
        snprintf(text, NAMES_BYTES + 256, "%s", launcher.text);
    else if (name_missing(stage, names) > 0)
        snprintf(text, NAMES_BYTES + 256, "for %s on %s", names, host);
    else if (oct_rank_table_lines() == 0 || !all_are_here())
        snprintf(text, NAMES_BYTES + 256,
                 "for a rank of another host: those of %s that can be seen are there", host);
    else
        snprintf(text, NAMES_BYTES + 256, "although every rank is there: MPI itself is stuck");
}

/* Ends this process with the name of a rank that ended before it started MPI. */
static void end_since_rank_is_gone(int64_t local_rank)
{
    char name[64], host[OCT_HOST_BYTES];
    oct_rank_view view = oct_rank_table_line((int)local_rank);
    oct_host_name(host);
    name_local_rank(local_rank, &view, name, sizeof(name));
    if (oct_rank_may_report())
        oct_log_anyone(OCT_LOG_ERROR,
                       "%s on %s ended before it started MPI, so the others would wait for it for "
                       "ever; start the same program on all ranks",
                       name, host);
    oct_exit_now(oct_status_exit(OCT_LOST));
}

/* Sleeps for a tick, or less when the call is over. Returns the seconds slept, few if this process was stopped. */
static double sleep_a_tick(void)
{
    struct timespec until;
    double begin = oct_seconds();
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(tick_s * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_clockwait(&watchdog.over_changed, &watchdog.lock, CLOCK_MONOTONIC, &until);
    return fmin(oct_seconds() - begin, tick_counts_s);
}

/* The thread beside a call of MPI: warns once, and ends the process after the deadline, or during MPI_Init when two
 * looks in a row find a rank that ended before it started MPI. */
static void *watch_call(void *unused)
{
    double waited_s = 0, looked_s = 0;
    int64_t gone = -1;
    bool warned = false;
    char text[NAMES_BYTES + 256];
    (void)unused;
    pthread_mutex_lock(&watchdog.lock);
    while (!watchdog.over) {
        waited_s += sleep_a_tick();
        if (watchdog.over) break;
        if (watchdog.stage == OCT_RANK_IN_INIT && waited_s - looked_s > look_for_gone_s) {
            int64_t now = find_ended_early();
            looked_s = waited_s;
            if (now >= 0 && now == gone) end_since_rank_is_gone(now);
            gone = now;
        }
        if (waited_s > watchdog.deadline_s) {
            if (oct_rank_may_report()) {
                explain_wait(watchdog.stage, text);
                oct_log_anyone(
                    OCT_LOG_ERROR,
                    "%s waited %.3g s %s; look at that process or host, then start again",
                    stage_name(watchdog.stage), waited_s, text);
            }
            oct_exit_now(oct_status_exit(OCT_LOST));
        }
        if (!warned && waited_s > oct_warn_after(watchdog.deadline_s)) {
            warned = true;
            if (!oct_rank_may_warn()) continue;
            explain_wait(watchdog.stage, text);
            oct_log_anyone(OCT_LOG_WARN, "%s has waited %.0f s %s; the job ends after %.0f s",
                           stage_name(watchdog.stage), waited_s, text, watchdog.deadline_s);
        }
    }
    pthread_mutex_unlock(&watchdog.lock);
    return NULL;
}

void oct_watchdog_begin(oct_rank_stage stage, double deadline_s)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    if (!oct_process_is_own()) return;
    oct_rank_note(OCT_RANK_STAGE, stage);
    watchdog.stage = stage;
    watchdog.deadline_s = deadline_s;
    watchdog.over = false;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the main thread */
    /* Where there is no memory for a thread, the call has no deadline. */
    watchdog.running = pthread_create(&watchdog.thread, &attributes, watch_call, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

void oct_watchdog_end(void)
{
    if (!watchdog.running) return;
    pthread_mutex_lock(&watchdog.lock);
    watchdog.over = true;
    pthread_cond_signal(&watchdog.over_changed);
    pthread_mutex_unlock(&watchdog.lock);
    pthread_join(watchdog.thread, NULL);
    watchdog.running = false;
}
