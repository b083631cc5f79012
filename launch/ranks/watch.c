/* Ctrl-C makes mpirun kill its ranks within a second, before a checkpoint is written. So mpirun runs in
 * a process group of its own, which the terminal's signals do not reach; the ranks find the request in
 * their table. A second request ends mpirun as Ctrl-C does. */
#include "launch/ranks/watch.h"

#include "core/base/log.h"
#include "dist/comm.h"
#include "dist/rank_table.h"
#include "launch/base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const double said_after_s = 30;

/* These are requests to the one mpirun that this process starts. */
static struct {
    volatile sig_atomic_t first; /* the signal that asked to stop, or 0 */
    volatile sig_atomic_t again; /* a second one came: no longer a polite request */
    struct timespec asked;       /* when the first came; only the handler uses it */
} requests;

enum { CHILDREN_MAX = 64 };

/* A process that mpirun has started: a rank of this host, or what reaches another host. */
typedef struct child {
    pid_t pid;
    double since_s; /* on the clock, when it was first seen */
} child;

/* A start while it lasts. */
typedef struct job {
    const oct_ranks_start *start;
    oct_ranks_seen seen;
    pid_t mpirun;
    oct_relay relay;
    int64_t ranks;
    double deadline_s;
    double asked_s;        /* the clock when the request to stop was seen; 0: none */
    bool passed_on;        /* to mpirun */
    double last_s;         /* the clock of the last look */
    double stopped_s;      /* how long mpirun has been stopped; below 0: it was said */
    double alone_s;        /* how long it has lived after all its ranks */
    double missing_s;      /* and before all of them had begun */
    double stop_ignored_s; /* of that, since a stop was asked for */
    double late_s;         /* how long a rank has lived after another that ended well */
    char why[640];         /* a rank or hosts, when they were given up */
    char begun[1024];      /* " host2 host3 ": other hosts where ranks have begun, */
    int num_begun;         /* and their number */
    child children[CHILDREN_MAX];
    int num_children;
    bool child_ended;  /* one that had lived for a while */
    double given_up_s; /* how long ago it was given up */
} job;

/* Handles a signal as a request to stop. timeout(1) sends its signal twice, to the process and to its group: what comes
 * within a second is the same request. */
static void ask_to_stop(int signal_number)
{
    int saved_errno = errno;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!requests.first) {
        requests.first = signal_number;
        requests.asked = now;
    } else if ((signal_number == SIGINT || signal_number == SIGTERM) &&
               now.tv_sec - requests.asked.tv_sec > 1) {
        requests.again = 1;
    }
    errno = saved_errno;
}

/* The child becomes mpirun, without stdin, which stops a background group that reads from the terminal.
 * It returns when mpirun cannot be started. */
static void become_mpirun(const char **argv, const int ends[OCT_RELAY_STREAMS])
{
    setpgid(0, 0);
    for (int i = 0; i < OCT_RELAY_STREAMS; i++)
        dup2(ends[i], STDOUT_FILENO + i);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0) dup2(null, STDIN_FILENO);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
}

/* Ranks of this host read the request in their table, at whatever point of their start they are. Those
 * of other hosts get SIGUSR1 through mpirun, which ends itself and ranks that do not yet listen; so it is
 * sent when all have begun, or it is not known for long. */
static void pass_on_stop_request(job *j)
{
    static const double unseen_s = 10;
    if (requests.first && j->asked_s == 0) {
        j->asked_s = oct_seconds();
        j->seen.stop_asked = true;
        oct_rank_table_ask_to_stop();
    }
    if (j->asked_s == 0 || j->seen.end_asked) return;
    if (requests.again || !oct_ranks_train(j->start)) {
        kill(j->mpirun, SIGINT);
        j->seen.end_asked = true;
    } else if (!j->passed_on &&
               (oct_ranks_begun(&j->seen) >= j->ranks || oct_seconds() - j->asked_s > unseen_s)) {
        if (oct_ranks_begun(&j->seen) - j->seen.begun_elsewhere < j->ranks)
            kill(j->mpirun, SIGUSR1);
        j->passed_on = true;
    }
}

/* Finds a rank that ended without a message; mpirun lets the others live for a second, so it is the cause. */
static void find_gone_rank(oct_ranks_seen *seen)
{
    for (int i = 0; !seen->rank_gone && i < oct_rank_table_lines(); i++) {
        oct_rank_view view = oct_rank_table_line(i);
        if (view.pid == 0 || view.stage == OCT_RANK_ENDED) continue;
        char state = oct_process_state(view.pid);
        if (state != 0 && state != 'Z') continue;
        view = oct_rank_table_line(i); /* it may have ended between the two looks */
        seen->rank_gone = view.stage != OCT_RANK_ENDED;
        seen->gone_rank = view;
        if (seen->rank_gone) oct_ranks_report(NULL, seen->report, sizeof(seen->report));
    }
}

/* What the relay asks, and reports. */
static bool is_explained(void *user)
{
    job *j = user;
    find_gone_rank(&j->seen);
    return j->seen.rank_gone || oct_ranks_failed_status() != 0;
}

static void note_ranks_begun(void *user, int ranks, const char *host)
{
    job *j = user;
    const size_t used = strlen(j->begun);
    j->seen.begun_elsewhere += ranks;
    j->num_begun++;
    snprintf(j->begun + used, sizeof(j->begun) - used, "%s%.*s ", used > 0 ? "" : " ",
             (int)strcspn(host, "."), host);
}

/* Warns once when mpirun has been stopped for long: the output of the ranks and their ends go through it. */
static void check_for_stopped_mpirun(job *j, double passed_s)
{
    if (oct_process_state(j->mpirun) != 'T')
        j->stopped_s = 0;
    else if (j->stopped_s >= 0)
        j->stopped_s += passed_s;
    if (j->stopped_s < said_after_s) return;
    oct_log(
        OCT_LOG_WARN,
        "mpirun (process %ld) has been stopped for %.0f s: what its ranks say, and their end, wait "
        "for it; kill -CONT %ld wakes it",
        (long)j->mpirun, j->stopped_s, (long)j->mpirun);
    j->stopped_s = -1;
}

/* An mpirun that is stopped does not see a SIGTERM, and one that is stuck may not heed it. */
static void give_up(job *j, const char *why)
{
    kill(-j->mpirun, SIGTERM);
    kill(-j->mpirun, SIGCONT);
    j->seen.given_up = why;
}

/* What happens on other hosts shows here by the processes that mpirun reaches them with, which live as long as its
 * ranks there. Those that it needs at its start alone are gone soon. */
static void check_for_ended_children(job *j)
{
    static const double settled_s = 5;
    const double now = oct_seconds();
    char file[64], text[4096], *at = text;
    child alive[CHILDREN_MAX];
    int count = 0, settled = 0, settled_alive = 0;
    snprintf(file, sizeof(file), "task/%ld/children", (long)j->mpirun);
    if (!j->start->job.beyond || oct_process_read(j->mpirun, file, text, sizeof(text)) < 0) return;
    for (int i = 0; i < j->num_children; i++)
        settled += now - j->children[i].since_s > settled_s;
    for (long pid; count < CHILDREN_MAX && (pid = strtol(at, &at, 10)) > 0;) {
        if (oct_process_state((int)pid) == 'Z') continue;
        child *seen = &alive[count++];
        *seen = (child){(pid_t)pid, now};
        for (int i = 0; i < j->num_children; i++)
            if (j->children[i].pid == (pid_t)pid) seen->since_s = j->children[i].since_s;
        settled_alive += now - seen->since_s > settled_s;
    }
    j->child_ended |= settled_alive < settled;
    memcpy(j->children, alive, (size_t)count * sizeof(*alive));
    j->num_children = count;
}

/* When all ranks have ended, or one has failed, mpirun ends the job within seconds; if it does not, it is
 * stopped, or stuck with a rank or a host that is. */
static void check_for_lonely_mpirun(job *j, double passed_s)
{
    const double ends_within_s = fmin(6, 2 * j->deadline_s);
    bool all_ended = oct_ranks_begun(&j->seen) - j->seen.begun_elsewhere >= j->ranks;
    for (int i = 0; i < oct_rank_table_lines() && all_ended; i++) {
        const oct_rank_view view = oct_rank_table_line(i);
        const char state = oct_process_state(view.pid);
        all_ended = view.pid <= 0 || state == 'Z' || state == 0;
    }
    const bool over =
        j->seen.rank_gone || j->child_ended || oct_ranks_failed_status() != 0 || all_ended;
    j->alone_s = over ? j->alone_s + passed_s : 0;
    if (j->alone_s >= ends_within_s && !j->seen.given_up)
        give_up(j, "mpirun did not end with its ranks (stopped or stuck) and was killed");
}

/* Writes "no rank on node2, node3", or "2 of 4 ranks, none on node3". Where the list has other names than the hosts
 * themselves, or there is only an allocation, it writes what there is, and where ranks have begun. */
static void name_missing(const job *j, char text[512])
{
    const oct_rank_hosts *hosts = j->start->hosts;
    const int64_t begun = oct_ranks_begun(&j->seen);
    const bool some_here = begun > j->seen.begun_elsewhere;
    char missing[300] = "", started[64] = "no rank";
    size_t used = 0;
    int found = 0;
    for (size_t i = 0; i < hosts->count && used < sizeof(missing); i++) {
        const oct_rank_host *host = &hosts->host[i];
        char own[sizeof(host->name) + 2];
        snprintf(own, sizeof(own), " %.*s ", (int)strcspn(host->name, "."), host->name);
        const bool has_begun = strstr(j->begun, own) != NULL;
        found += has_begun;
        if (has_begun || host->silent || (host->here && some_here)) continue;
        used += (size_t)snprintf(missing + used, sizeof(missing) - used, "%s%s",
                                 used > 0 ? ", " : "", host->name);
    }
    if (hosts->count == 0 && j->start->allocation)
        used = (size_t)snprintf(missing, sizeof(missing), "%s", j->start->allocation);
    if (begun > 0)
        snprintf(started, sizeof(started), "%lld of %lld ranks", (long long)begun,
                 (long long)j->ranks);
    if (used == 0)
        snprintf(text, 512, "%s", started);
    else if (hosts->count > 0 && found == j->num_begun)
        snprintf(text, 512, "%s%s on %s", started, begun > 0 ? ", none" : "", missing);
    else
        snprintf(text, 512, "%s (of the hosts %.200s, begun on:%s%.200s)", started, missing,
                 some_here    ? " this host"
                 : begun == 0 ? " none"
                              : "",
                 j->begun);
}

/* mpirun waits without end for a process that is stopped before it has become a rank, and for a host that does not
 * call back. Ranks that have begun look after each other and end the job, but know no hosts without a rank. */
static void check_for_missing_ranks(job *j, double passed_s)
{
    static const double asked_within_s = 10;
    const int64_t begun = oct_ranks_begun(&j->seen);
    const double before_s = j->missing_s, warned_s = fmin(said_after_s, j->deadline_s / 2);
    char what[512];
    if (j->seen.given_up || begun >= j->ranks || (begun > 0 && !j->start->job.beyond)) return;
    j->missing_s += passed_s;
    j->stop_ignored_s += j->seen.stop_asked ? passed_s : 0;
    name_missing(j, what);
    if (before_s < warned_s && j->missing_s >= warned_s)
        oct_log(OCT_LOG_WARN,
                "mpirun (process %ld) has started %s in %.0f s; the job ends after %.0f s",
                (long)j->mpirun, what, j->missing_s, j->deadline_s);
    if (begun > 0 || (j->missing_s < j->deadline_s && j->stop_ignored_s < asked_within_s)) return;
    snprintf(j->why, sizeof(j->why),
             "mpirun started %s before the deadline (it is stopped, or a process that it "
             "started is) and was killed",
             what);
    give_up(j, j->why);
}

/* Finds a rank that is after its last collective call but has not ended, though another has, and well. */
static bool find_late_rank(oct_rank_view *late)
{
    bool one_ended = false;
    *late = (oct_rank_view){.pid = 0};
    for (int i = 0; i < oct_rank_table_lines(); i++) {
        const oct_rank_view view = oct_rank_table_line(i);
        if (view.stage < OCT_RANK_IN_FINALIZE) continue;
        const char state = oct_process_state(view.pid);
        const bool lives = state != 0 && state != 'Z';
        one_ended |= !lives && view.stage == OCT_RANK_ENDED && view.exit_status == 0;
        if (lives && late->pid == 0) *late = view;
    }
    return one_ended && late->pid > 0;
}

/* Once MPI_Finalize lets ranks go, none waits for another any more: nobody but mpirun misses one that is stopped or
 * stuck there, and mpirun waits without end. */
static void check_for_late_rank(job *j, double passed_s)
{
    oct_rank_view late;
    const double warned_s = fmin(said_after_s, j->deadline_s / 2), before_s = j->late_s;
    if (j->seen.given_up) return;
    j->late_s = find_late_rank(&late) ? before_s + passed_s : 0;
    if (j->late_s < warned_s) return;
    char what[160];
    oct_snprintf(what, sizeof(what), "rank %d (process %d%s) did not end within %.0f s of another",
                 late.rank, late.pid,
                 oct_process_state(late.pid) == 'T' ? ", which is stopped" : "", j->late_s);
    if (before_s < warned_s)
        oct_log(OCT_LOG_WARN, "%s; the job ends after %.0f s", what, j->deadline_s);
    if (j->late_s < j->deadline_s) return;
    snprintf(j->why, sizeof(j->why), "%s and was killed", what);
    give_up(j, j->why);
}

/* Looks for each way in which a job hangs, and gives it up then. Only time in which this process runs counts: all
 * may have been stopped together. */
static void check_job(job *j)
{
    static const double awake_s = 1, heeds_within_s = 3;
    double now = oct_seconds(), passed_s = j->last_s > 0 ? now - j->last_s : 0;
    if (passed_s > awake_s) passed_s = awake_s;
    j->last_s = now;
    check_for_missing_ranks(j, passed_s);
    check_for_ended_children(j);
    check_for_stopped_mpirun(j, passed_s);
    check_for_lonely_mpirun(j, passed_s);
    check_for_late_rank(j, passed_s);
    if (j->seen.given_up) j->given_up_s += passed_s;
    if (j->given_up_s >= heeds_within_s) oct_guard_kill(j->mpirun);
}

void oct_ranks_listen(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGHUP};
    struct sigaction action = {.sa_handler = ask_to_stop, .sa_flags = SA_RESTART}, before;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < OCT_COUNT(signals); i++)
        sigaddset(&action.sa_mask, signals[i]);
    for (size_t i = 0; i < OCT_COUNT(signals); i++) {
        sigaction(signals[i], &action, &before);
        if (signals[i] == SIGHUP && before.sa_handler == SIG_IGN) signal(SIGHUP, SIG_IGN);
    }
}

bool oct_ranks_stop_asked(void)
{
    return requests.first != 0;
}

/* Until mpirun ends, passes on its output and stop requests and looks for lost ranks; then makes an exit status of
 * how it ended. The guard holds the pipes open too, so that mpirun is not ended by SIGPIPE when this process is
 * killed. */
static oct_status watch_job(job *j, int *exit_status)
{
    enum { LOOK_MS = 20 };
    oct_status status = OCT_OK;
    int ended = 0; /* the wait status of mpirun */
    oct_guard_watch(j->mpirun);
    for (pid_t done; (done = waitpid(j->mpirun, &ended, WNOHANG)) != j->mpirun;) {
        if (done < 0 && errno != EINTR) {
            status = oct_fail(OCT_LOST, "mpirun: %s", strerror(errno));
            break;
        }
        pass_on_stop_request(j);
        find_gone_rank(&j->seen);
        check_job(j);
        oct_relay_move(&j->relay, LOOK_MS);
    }
    find_gone_rank(&j->seen);
    oct_relay_close(&j->relay, oct_ranks_stop_asked);
    oct_guard_watch(0);
    if (status == OCT_OK) status = oct_ranks_judge(&j->seen, ended, exit_status);
    const bool lost = status == OCT_LOST || *exit_status == oct_status_exit(OCT_LOST);
    const int64_t begun = oct_ranks_begun(&j->seen);
    /* beyond: ranks on other hosts */
    if (lost && j->start->job.beyond && begun > 0 && begun < j->ranks) {
        char what[512];
        name_missing(j, what);
        oct_log(OCT_LOG_WARN, "mpirun had started %s", what);
    }
    if (status != OCT_OK || *exit_status > oct_status_exit(OCT_MISMATCH)) return status;
    return j->relay.failed == 0 ? OCT_OK : oct_print_failed(j->relay.failed);
}

oct_status oct_ranks_watch(const oct_ranks_start *start, int *exit_status)
{
    const char *argv[OCT_ARGS_MAX + OCT_MPIRUN_WORDS];
    char number[24], table[64];
    int ends[OCT_RELAY_STREAMS];
    OCT_CHECK_ARGS(start->job.args->argc <= OCT_ARGS_MAX, "more than %d arguments", OCT_ARGS_MAX);
    if (oct_rank_table_create(start->job.ranks, table)) setenv(OCT_RANK_TABLE_VARIABLE, table, 1);
    oct_mpirun_environment(&start->mpirun, &start->job);
    oct_mpirun_command(&start->mpirun, &start->job, number, argv, OCT_COUNT(argv));
    fflush(NULL);
    OCT_CHECK(!requests.first, OCT_STOPPED, "stopped as asked before a rank was started");
    job j = {.start = start, .ranks = start->job.ranks, .deadline_s = start->deadline_s};
    j.seen = (oct_ranks_seen){.start = start};
    const oct_relay_editor editor = {start->mpirun.dialect->accounts, is_explained,
                                     note_ranks_begun, &j};
    OCT_TRY(oct_relay_open(&j.relay, &editor, ends));
    j.mpirun = fork();
    if (j.mpirun == 0) {
        become_mpirun(argv, ends);
    } else {
        for (int i = 0; i < OCT_RELAY_STREAMS; i++)
            close(ends[i]);
    }
    if (j.mpirun > 0) return watch_job(&j, exit_status);
    return oct_fail(OCT_RESOURCE,
                    "--ranks %s: mpirun cannot be started (%s); install it (Debian: %s), or "
                    "leave --ranks out",
                    number, strerror(errno), start->mpirun.dialect->package);
}
