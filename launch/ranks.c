/* What a user of mpirun has to know and --ranks knows for him: more ranks than cores need
 * --oversubscribe; mpirun pins each rank to one core, which threads must not share; root needs two
 * variables; and the bar must be decided here, where stderr is still the user's.
 *
 * And that Ctrl-C makes mpirun kill its ranks within a second, before a checkpoint is written. So it
 * runs in a process group of its own, which the terminal's signals do not reach, and gets SIGUSR1
 * instead, which it passes on at once. A second request ends it as Ctrl-C does.
 */
#include "launch/ranks.h"

#include "dist/comm.h"
#include "io/recipe.h"
#include "launch/job.h"
#include "launch/progress.h"
#include "launch/shipped.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MPIRUN_WORDS = 16 };

size_t oct_ranks_command(const oct_args *args, int64_t ranks, int64_t threads, int64_t cores,
                         bool bar, const char *program, char number[24], const char **argv,
                         size_t capacity)
{
    size_t n = 0;
    OCT_ASSERT(capacity >= (size_t)args->argc + MPIRUN_WORDS);
    snprintf(number, 24, "%" PRId64, ranks);
    argv[n++] = "mpirun";
    argv[n++] = "--quiet"; /* the sentences are ours */
    argv[n++] = "-n";
    argv[n++] = number;
    if (ranks > cores) argv[n++] = "--oversubscribe";
    argv[n++] = "--bind-to";
    argv[n++] = ranks * threads > cores || threads > 1 ? "none" : "core";
    argv[n++] = program;
    argv[n++] = args->argv[1]; /* the command */
    if (!args->progress && bar) {
        argv[n++] = "--progress";
        argv[n++] = "bar";
    }
    for (int i = 2; i < args->argc; i++) {
        if (strcmp(args->argv[i], "--ranks") == 0)
            i++;
        else if (strncmp(args->argv[i], "--ranks=", 8) != 0)
            argv[n++] = args->argv[i];
    }
    argv[n] = NULL;
    return n;
}

/* Of a recipe on the command line, which is read here also so that its mistakes are told before any
 * rank starts; 1 for other files. */
static oct_status threads_wanted(const oct_args *args, int64_t *threads)
{
    *threads = 1;
    const char *ending = args->num_words ? strrchr(args->word[0], '.') : NULL;
    if (!ending || (strcmp(ending, ".yaml") != 0 && strcmp(ending, ".yml") != 0)) return OCT_OK;
    oct_recipe recipe;
    OCT_TRY(oct_recipe_of_args(&recipe, args));
    *threads = recipe.threads;
    oct_recipe_free(&recipe);
    return OCT_OK;
}

/* Of the one mpirun that this process starts. */
static struct {
    volatile sig_atomic_t pid, first; /* first: the signal that asked to stop, or 0 */
    volatile sig_atomic_t again;      /* a second one came: no longer a polite request */
    struct timespec asked;            /* when the first came; only the handler uses it */
} mpirun;

/* timeout(1) sends its signal twice, to the process and to its group: what comes within a second is
 * the same request. */
static void ask_to_stop(int signal_number)
{
    int saved_errno = errno;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!mpirun.first) {
        mpirun.first = signal_number;
        mpirun.asked = now;
        kill(mpirun.pid, SIGUSR1);
    } else if (signal_number != SIGUSR1 && now.tv_sec - mpirun.asked.tv_sec > 1) {
        mpirun.again = 1;
        kill(mpirun.pid, SIGINT);
    }
    errno = saved_errno;
}

/* In the child. Without stdin, which stops a background group that reads from the terminal. Returns
 * when mpirun cannot be started. */
static void become_mpirun(const char **argv, const sigset_t *mask)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0) dup2(null, STDIN_FILENO);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
}

/* Signals are passed on from here; the status is the shell's: 128 + s after an end by signal s. */
static oct_status wait_for_mpirun(pid_t pid, const sigset_t *signals, const sigset_t *mask,
                                  int *exit_status)
{
    int ended;
    struct sigaction action = {.sa_handler = ask_to_stop, .sa_flags = SA_RESTART};
    action.sa_mask = *signals;
    mpirun.pid = pid;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    while (waitpid(pid, &ended, 0) < 0)
        OCT_CHECK(errno == EINTR, OCT_LOST, "mpirun: %s", strerror(errno));
    *exit_status = WIFSIGNALED(ended) ? 128 + WTERMSIG(ended) : WEXITSTATUS(ended);
    return OCT_OK;
}

/* Ranks that do not listen for SIGUSR1, and those of a second request, have ended as the user asked:
 * that is the end by his signal. Others that a signal ended are lost. */
static oct_status judge_end(const oct_args *args, int *exit_status)
{
    if (mpirun.again || (mpirun.first && *exit_status == 128 + SIGUSR1)) {
        *exit_status = 128 + mpirun.first;
        return OCT_OK;
    }
    int signal_number = *exit_status - 128;
    if (signal_number <= 0) return OCT_OK;
    bool continues = strcmp(args->argv[1], "train") == 0;
    return oct_fail(OCT_LOST, "a rank was ended by signal %d (%s)%s", signal_number,
                    strsignal(signal_number),
                    continues ? "; repeat the command to continue from the newest checkpoint" : "");
}

oct_status oct_launch_ranks(const oct_args *args, int64_t ranks, int *exit_status)
{
    int rank, size;
    int64_t threads = 1;
    OCT_CHECK(!oct_launched(&rank, &size), OCT_USAGE,
              "command line: --ranks cannot be used under mpirun or another launcher; use only one "
              "of them");
    OCT_TRY(threads_wanted(args, &threads));
    bool bar = !args->quiet && oct_progress_terminal();

    const char *argv[OCT_ARGS_MAX + MPIRUN_WORDS];
    char number[24], program[4096];
    OCT_CHECK(args->argc <= OCT_ARGS_MAX, OCT_USAGE, "command line: more than %d arguments",
              OCT_ARGS_MAX);
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    OCT_CHECK(length > 0, OCT_RESOURCE, "/proc/self/exe: %s", strerror(errno));
    program[length] = '\0';
    oct_ranks_command(args, ranks, threads, oct_job_cores(), bar, program, number, argv,
                      OCT_COUNT(argv));

    if (geteuid() == 0) {
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    }
    sigset_t signals, mask;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, &mask); /* until there is somebody to pass them on to */
    fflush(NULL);
    pid_t pid = fork();
    if (pid > 0) {
        OCT_TRY(wait_for_mpirun(pid, &signals, &mask, exit_status));
        return judge_end(args, exit_status);
    }
    if (pid == 0) become_mpirun(argv, &mask);
    return oct_fail(
        OCT_RESOURCE,
        "--ranks %s: mpirun cannot be started (%s); install it (Debian: openmpi-bin), or "
        "leave --ranks out",
        number, strerror(errno));
}
