/* Ctrl-C makes mpirun kill its ranks within a second, before a checkpoint is written. So mpirun runs in
 * a process group of its own, which the terminal's signals do not reach; the ranks find the request in
 * their table. A second request ends mpirun as Ctrl-C does.
 *
 * mpirun's exit status alone does not tell who was lost: 137 is any rank's end by signal 9, and 1 is
 * mpirun's own end as well as an answer; that of MPICH holds the bits of all ranks' statuses, and 9 for a
 * rank's end by signal 9. The table of ranks tells the rest. */
#include "launch/ranks/watch.h"

#include "core/base/log.h"
#include "dist/comm.h"
#include "dist/rank_table.h"
#include "launch/base/failure.h"
#include "launch/ranks/guard.h"
#include "launch/ranks/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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

/* What has been seen of the ranks and of mpirun while they live. */
typedef struct job {
    const oct_ranks_start *start;
    pid_t mpirun;
    oct_relay relay;
    int64_t ranks;
    double deadline_s;
    double asked_s;       /* the clock when the request to stop was seen; 0: none */
    bool passed_on, ends; /* the request, to mpirun; and that it shall end at once */
    bool found;           /* a rank whose process ended and said nothing: */
    oct_rank_view gone;
    char report[4096]; /* what all did when it was found */
    double last_s;     /* the clock of the last look */
    double stopped_s;  /* how long mpirun has been stopped; below 0: it was said */
    double alone_s;    /* how long it has lived after all its ranks */
    double unborn_s;   /* and before the first of them */
    double late_s;     /* how long a rank has lived after another that ended well */
    char late[192];    /* that rank, when it was given up */
    child children[CHILDREN_MAX];
    int num_children;
    bool child_ended;     /* one that had lived for a while */
    const char *given_up; /* why it was ended, */
    double given_up_s;    /* and how long ago */
} job;

/* timeout(1) sends its signal twice, to the process and to its group: what comes within a second is
 * the same request. */
static void ask_to_stop(int signal_number)
{
    int saved_errno = errno;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!requests.first) {
        requests.first = signal_number;
        requests.asked = now;
    } else if (signal_number != SIGUSR1 && signal_number != SIGHUP &&
               now.tv_sec - requests.asked.tv_sec > 1) {
        requests.again = 1;
    }
    errno = saved_errno;
}

static bool trains(const job *j)
{
    return strcmp(j->start->job.args->argv[1], "train") == 0;
}

/* The child becomes mpirun, without stdin, which stops a background group that reads from the terminal.
 * It returns when mpirun cannot be started. */
static void become_mpirun(const char **argv, const int ends[OCT_RELAY_STREAMS])
{
    setpgid(0, 0);
    oct_relay_enter(ends);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0) dup2(null, STDIN_FILENO);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
}

static bool all_have_started(int64_t ranks)
{
    int64_t started = 0;
    for (int i = 0; i < oct_rank_table_lines(); i++)
        started += oct_rank_table_line(i).pid > 0;
    return started >= ranks;
}

/* Ranks of this host read the request in their table, at whatever point of their start they are. Those
 * of other hosts get SIGUSR1 through mpirun, which ends itself and ranks that do not yet listen; so it is
 * sent when all are there, or cannot be seen for long. */
static void pass_on(job *j)
{
    static const double unseen_s = 10;
    if (requests.first && j->asked_s == 0) {
        j->asked_s = oct_seconds();
        oct_rank_table_ask_to_stop();
    }
    if (j->asked_s == 0 || j->ends) return;
    if (requests.again || !trains(j)) {
        kill(j->mpirun, SIGINT);
        j->ends = true;
    } else if (!j->passed_on &&
               (all_have_started(j->ranks) || oct_seconds() - j->asked_s > unseen_s)) {
        if (!all_have_started(j->ranks)) kill(j->mpirun, SIGUSR1);
        j->passed_on = true;
    }
}

/* mpirun lets the others live for a second, so the first that is missing is the cause. */
static void look_for_gone(job *j)
{
    for (int i = 0; !j->found && i < oct_rank_table_lines(); i++) {
        oct_rank_view view = oct_rank_table_line(i);
        if (view.pid == 0 || view.stage == OCT_RANK_ENDED) continue;
        char state = oct_process_state(view.pid);
        if (state != 0 && state != 'Z') continue;
        view = oct_rank_table_line(i); /* it may have ended between the two looks */
        j->found = view.stage != OCT_RANK_ENDED;
        j->gone = view;
        if (j->found) oct_rank_table_report(j->report, sizeof(j->report));
    }
}

/* Every rank that this process can see has ended, and none is still to come. */
static bool all_have_ended(const job *j)
{
    if (!all_have_started(j->ranks)) return false;
    for (int i = 0; i < oct_rank_table_lines(); i++) {
        oct_rank_view view = oct_rank_table_line(i);
        char state = oct_process_state(view.pid);
        if (view.pid > 0 && state != 'Z' && state != 0) return false;
    }
    return true;
}

/* A stopped mpirun is said once: what the ranks say and how they end goes through it. */
static void look_for_stopped_mpirun(job *j, double passed_s)
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
    j->given_up = why;
}

static void kill_what_was_given_up(job *j, double passed_s)
{
    static const double heeds_within_s = 3;
    if (!j->given_up) return;
    j->given_up_s += passed_s;
    if (j->given_up_s >= heeds_within_s) oct_guard_kill(j->mpirun);
}

/* Returns the exit status of a rank that failed, of one with a reason of its own if there is one; 0: none did. */
static int failed_status(void)
{
    const int lost = oct_status_exit(OCT_LOST);
    int failed = 0;
    for (int i = 0; i < oct_rank_table_lines(); i++) {
        const oct_rank_view view = oct_rank_table_line(i);
        if (view.stage != OCT_RANK_ENDED || view.exit_status == 0) continue;
        if (failed == 0 || failed == lost) failed = view.exit_status;
    }
    return failed;
}

static bool is_known(const job *j, pid_t pid, double *since_s)
{
    for (int i = 0; i < j->num_children; i++) {
        if (j->children[i].pid != pid) continue;
        *since_s = j->children[i].since_s;
        return true;
    }
    return false;
}

/* What happens on other hosts shows here by the processes that mpirun reaches them with, which live as long as its
 * ranks there. Those that it needs at its start alone are gone soon. */
static void look_for_ended_children(job *j)
{
    static const double settled_s = 5;
    const double now = oct_seconds();
    char file[64], text[4096], *at = text;
    child alive[CHILDREN_MAX];
    int count = 0, settled = 0, settled_alive = 0;
    snprintf(file, sizeof(file), "task/%ld/children", (long)j->mpirun);
    if (!j->start->beyond || oct_process_read(j->mpirun, file, text, sizeof(text)) < 0) return;
    for (int i = 0; i < j->num_children; i++)
        settled += now - j->children[i].since_s > settled_s;
    for (long pid; count < CHILDREN_MAX && (pid = strtol(at, &at, 10)) > 0;) {
        double since_s = now;
        if (oct_process_state((int)pid) == 'Z') continue;
        settled_alive += is_known(j, (pid_t)pid, &since_s) && now - since_s > settled_s;
        alive[count++] = (child){(pid_t)pid, since_s};
    }
    j->child_ended |= settled_alive < settled;
    memcpy(j->children, alive, (size_t)count * sizeof(*alive));
    j->num_children = count;
}

/* When all ranks have ended, or one has failed, mpirun ends the job within seconds; if it does not, it is
 * stopped, or stuck with a rank or a host that is. */
static void look_for_lonely_mpirun(job *j, double passed_s)
{
    const double ends_within_s = fmin(6, 2 * j->deadline_s);
    bool over = j->found || j->child_ended || failed_status() != 0 || all_have_ended(j);
    j->alone_s = over ? j->alone_s + passed_s : 0;
    if (j->alone_s >= ends_within_s && !j->given_up)
        give_up(j, "mpirun did not end with its ranks (stopped or stuck) and was killed");
}

/* mpirun waits without end for a process that stands still before it has become a rank. Ranks that have
 * started look after each other, and those of other hosts cannot be seen. */
static void look_for_first_rank(job *j, double passed_s)
{
    if (j->start->beyond || j->given_up || j->asked_s > 0 || all_have_started(1)) return;
    double before_s = j->unborn_s;
    j->unborn_s += passed_s;
    if (before_s < said_after_s && j->unborn_s >= said_after_s)
        oct_log(OCT_LOG_WARN,
                "mpirun (process %ld) has started no rank in %.0f s; the job ends after "
                "%.0f s",
                (long)j->mpirun, j->unborn_s, j->deadline_s);
    if (j->unborn_s >= j->deadline_s)
        give_up(j,
                "mpirun started no rank before the deadline (it is stopped, or a process that it "
                "started is) and was killed");
}

/* Finds a rank that is behind its last collective call but has not ended, though another has, and well. */
static bool find_late(oct_rank_view *late)
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
static void look_for_late_rank(job *j, double passed_s)
{
    oct_rank_view late;
    const double warned_s = fmin(said_after_s, j->deadline_s / 2), before_s = j->late_s;
    if (j->given_up) return;
    j->late_s = find_late(&late) ? before_s + passed_s : 0;
    if (j->late_s < warned_s) return;
    char what[160];
    snprintf(what, sizeof(what), "rank %d (process %d%s) did not end within %.0f s of another",
             late.rank, late.pid, oct_process_state(late.pid) == 'T' ? ", which is stopped" : "",
             j->late_s);
    if (before_s < warned_s)
        oct_log(OCT_LOG_WARN, "%s; the job ends after %.0f s", what, j->deadline_s);
    if (j->late_s < j->deadline_s) return;
    snprintf(j->late, sizeof(j->late), "%s and was killed", what);
    give_up(j, j->late);
}

/* Only time in which this process runs counts: all may have been stopped together. */
static void look_at_mpirun(job *j)
{
    static const double awake_s = 1;
    double now = oct_seconds(), passed_s = j->last_s > 0 ? now - j->last_s : 0;
    if (passed_s > awake_s) passed_s = awake_s;
    j->last_s = now;
    look_for_first_rank(j, passed_s);
    look_for_ended_children(j);
    look_for_stopped_mpirun(j, passed_s);
    look_for_lonely_mpirun(j, passed_s);
    look_for_late_rank(j, passed_s);
    kill_what_was_given_up(j, passed_s);
}

void oct_ranks_listen(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
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

/* Waits until mpirun has ended; *ended is its wait status. */
static oct_status wait_for_mpirun(job *j, int *ended)
{
    enum { LOOK_MS = 20 };
    while (true) {
        pid_t done = waitpid(j->mpirun, ended, WNOHANG);
        if (done == j->mpirun) return OCT_OK;
        OCT_CHECK(done == 0 || errno == EINTR, OCT_LOST, "mpirun: %s", strerror(errno));
        pass_on(j);
        look_for_gone(j);
        look_at_mpirun(j);
        oct_relay_move(&j->relay, LOOK_MS);
    }
}

static const char *remedy(const job *j)
{
    if (j->start->goes_on) return "";
    return trains(j) ? "; repeat the command to continue from the newest checkpoint"
                     : "; repeat the command";
}

/* Names a rank as "rank 1 (node7)", or as "a rank" where it cannot be seen from here. */
static const char *name_gone(const job *j, char text[128])
{
    char host[64] = "";
    if (gethostname(host, sizeof(host) - 1) != 0) snprintf(host, sizeof(host), "this host");
    if (j->found)
        snprintf(text, 128, "rank %d (%s)", j->gone.rank, host);
    else
        snprintf(text, 128, "a rank");
    return text;
}

static const char *place_of_gone(const job *j, char text[64])
{
    text[0] = '\0';
    if (j->found && j->gone.step > 0) snprintf(text, 64, " in step %lld", (long long)j->gone.step);
    return text;
}

static bool some_rank_said(int exit_status)
{
    for (int i = 0; i < oct_rank_table_lines(); i++) {
        oct_rank_view view = oct_rank_table_line(i);
        if (view.stage == OCT_RANK_ENDED && view.exit_status == exit_status) return true;
    }
    return false;
}

static oct_status stopped(const job *j)
{
    bool saved = some_rank_said(oct_status_exit(OCT_STOPPED)); /* and told it */
    oct_status status = oct_fail(OCT_STOPPED, "stopped as asked%s", remedy(j));
    if (saved) oct_failure_silence();
    return status;
}

static oct_status signalled(const job *j, int signal_number)
{
    char who[128], place[64];
    return oct_fail(OCT_LOST, "%s was ended by signal %d (%s)%s%s%s%s", name_gone(j, who),
                    signal_number, strsignal(signal_number), place_of_gone(j, place), remedy(j),
                    signal_number == SIGKILL
                        ? "\nwhere nobody sent it, the kernel did, because memory was out"
                        : "",
                    j->report);
}

/* mpirun was ended from outside, by a signal, or ended itself: its own 1 is not the answer of a rank. */
static oct_status judge_mpirun(const job *j, int ended)
{
    int signal_number = WIFSIGNALED(ended) ? WTERMSIG(ended) : 0;
    bool polite = signal_number == SIGTERM || signal_number == SIGINT || signal_number == SIGHUP ||
                  signal_number == SIGUSR1;
    if (j->given_up) return oct_fail(OCT_LOST, "%s%s", j->given_up, remedy(j));
    if (signal_number != 0 && !polite)
        return oct_fail(OCT_LOST,
                        "mpirun itself was ended by signal %d (%s), and its ranks with it%s",
                        signal_number, strsignal(signal_number), remedy(j));
    if (signal_number == 0 && !j->start->beyond && !all_have_started(1))
        return oct_fail(
            OCT_RESOURCE,
            "mpirun ended with status %d before a rank had started: it was stopped, or what "
            "it said above tells why",
            WEXITSTATUS(ended));
    oct_status status =
        oct_fail(OCT_STOPPED, "mpirun was stopped, and its ranks with it%s", remedy(j));
    if (some_rank_said(oct_status_exit(OCT_STOPPED))) oct_failure_silence();
    return status;
}

/* The mpirun of MPICH and Intel MPI gives the bits of all statuses together, and a signal as it is. */
static oct_status judge_hydra(const job *j, int ended, int *exit_status)
{
    const int lost = oct_status_exit(OCT_LOST), failed = failed_status();
    *exit_status = failed != 0 ? failed : ended;
    if (!j->found || (failed != 0 && failed != lost)) return OCT_OK;
    if (ended == SIGKILL || ended == SIGSEGV) return signalled(j, ended);
    char who[128], place[64];
    return oct_fail(OCT_LOST, "%s was ended by a signal%s%s", name_gone(j, who),
                    place_of_gone(j, place), remedy(j));
}

static bool is_hydra(const job *j)
{
    return j->start->mpirun.dialect == OCT_MPIRUN_MPICH ||
           j->start->mpirun.dialect == OCT_MPIRUN_INTEL;
}

/* Of mpirun itself is what no rank of ours ends with and no signal stands for: where a host has gone, that is the
 * status of the agent that leads there (255 of ssh), or Open MPI's 205. */
static bool is_of_mpirun(int exit_status)
{
    static const int ours[] = {
#define X(status, number, text) number,
        OCT_STATUS_LIST(X)
#undef X
    };
    for (size_t i = 0; i < OCT_COUNT(ours); i++)
        if (ours[i] == exit_status) return false;
    return exit_status < 128 || exit_status > 128 + SIGRTMAX;
}

/* Finds the command's exit status, or who is lost, from how mpirun ended and what the ranks left in
 * their table. */
static oct_status judge_end(const job *j, int ended, int *exit_status)
{
    char who[128], place[64];
    *exit_status = WIFEXITED(ended) ? WEXITSTATUS(ended) : 0;
    if (WIFEXITED(ended) && (*exit_status == 0 || some_rank_said(*exit_status))) return OCT_OK;
    if (j->given_up && failed_status() != 0) { /* which has its own reason */
        oct_log(OCT_LOG_ERROR, "%s", j->given_up);
        *exit_status = failed_status();
        return OCT_OK;
    }
    if (j->given_up) return judge_mpirun(j, ended);
    if (j->ends) return stopped(j);
    if (WIFSIGNALED(ended)) return j->asked_s > 0 ? stopped(j) : judge_mpirun(j, ended);
    if (is_hydra(j) && *exit_status < 128 && (j->found || failed_status() != 0))
        return judge_hydra(j, *exit_status, exit_status);
    if (is_hydra(j) && *exit_status == SIGTERM) return judge_mpirun(j, SIGTERM);
    if (is_hydra(j) &&
        (*exit_status == SIGKILL || *exit_status == SIGSEGV)) /* before it had a line */
        return signalled(j, *exit_status);
    if (*exit_status > 128 && j->asked_s > 0 && *exit_status == 128 + SIGUSR1) return stopped(j);
    if (!j->found && is_of_mpirun(*exit_status)) {
        if (!j->start->beyond && !all_have_started(1)) return judge_mpirun(j, ended);
        return oct_fail(OCT_LOST, "mpirun ended with status %d, which no rank gave%s%s",
                        *exit_status, j->start->beyond ? ": a host is lost, or the way to it" : "",
                        remedy(j));
    }
    if (*exit_status > 128) return signalled(j, *exit_status - 128);
    if (j->found && *exit_status != oct_status_exit(OCT_NO))
        return oct_fail(OCT_LOST, "%s ended with status %d and said nothing%s%s%s",
                        name_gone(j, who), *exit_status, place_of_gone(j, place), remedy(j),
                        j->report);
    if (*exit_status == oct_status_exit(OCT_NO)) return judge_mpirun(j, ended);
    return OCT_OK;
}

/* The guard has the pipes too, so that an mpirun whose starter was killed does not crash in what it still says. */
static oct_status watch(job *j, int *exit_status)
{
    int ended = 0;
    oct_guard_watch(j->mpirun);
    oct_status status = wait_for_mpirun(j, &ended);
    oct_relay_close(&j->relay, oct_ranks_stop_asked);
    oct_guard_watch(0);
    if (status == OCT_OK) status = judge_end(j, ended, exit_status);
    if (status != OCT_OK || *exit_status > oct_status_exit(OCT_NO)) return status;
    return oct_relay_verdict(&j->relay);
}

oct_status oct_ranks_watch(const oct_ranks_start *start, int *exit_status)
{
    const char *argv[OCT_ARGS_MAX + OCT_MPIRUN_WORDS];
    char number[24], table[64];
    int ends[OCT_RELAY_STREAMS];
    OCT_CHECK(start->job.args->argc <= OCT_ARGS_MAX, OCT_USAGE,
              "command line: more than %d arguments", OCT_ARGS_MAX);
    if (oct_rank_table_create(start->job.ranks, table)) setenv(OCT_RANK_TABLE_VARIABLE, table, 1);
    oct_mpirun_environment(&start->mpirun, &start->job);
    oct_mpirun_command(&start->mpirun, &start->job, number, argv, OCT_COUNT(argv));
    fflush(NULL);
    OCT_CHECK(!requests.first, OCT_STOPPED, "stopped as asked before a rank was started");
    job j = {.start = start, .ranks = start->job.ranks, .deadline_s = start->deadline_s};
    OCT_TRY(oct_relay_open(&j.relay, ends));
    j.mpirun = fork();
    if (j.mpirun == 0) {
        become_mpirun(argv, ends);
    } else {
        for (int i = 0; i < OCT_RELAY_STREAMS; i++)
            close(ends[i]);
    }
    if (j.mpirun > 0) return watch(&j, exit_status);
    return oct_fail(OCT_RESOURCE,
                    "--ranks %s: mpirun cannot be started (%s); install it (Debian: %s), or "
                    "leave --ranks out",
                    number, strerror(errno),
                    start->mpirun.dialect == OCT_MPIRUN_MPICH ? "mpich" : "openmpi-bin");
}
