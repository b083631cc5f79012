/* This is the octet program: it finds the command, parses its line, runs it, says what failed, and
 * exits. Nothing else exits.
 *
 * Before ranks have found each other only the launcher's rank 0 speaks, so a mistake that all of them
 * see is said once. */
#include "core/base/cpu.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/kernel/float_kernel.h"
#include "dist/comm.h"
#include "dist/rank_table.h"
#include "launch/cmd/command.h"
#include "launch/base/output.h"
#include "launch/base/meter.h"
#include "launch/session/plugin_load.h"
#include "launch/ranks/ranks.h"
#include <octet/version.h>

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* A file opened by the program must never become its stdout: closed streams are filled. Writing to
 * the filled ones fails, which is then reported where it can be. What a parent had blocked must reach this process,
 * and one that ignored the ends of its children would have those of this one lost. */
static void prepare_process(void)
{
    sigset_t none;
    oct_process_own();
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGCHLD, SIG_DFL);
    while (true) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (fd < 0) break;
        if (fd > STDERR_FILENO) {
            close(fd);
            break;
        }
        fcntl(fd, F_SETFD, 0);
    }
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is an error of write */
    signal(SIGXFSZ, SIG_IGN); /* and so is the limit on file sizes */
    oct_log_setup(OCT_LOG_INFO, true);
    setenv("OPENBLAS_NUM_THREADS", "1", 1); /* it would start them when it is loaded */
}

/* Whether --help is among the words before "--". */
static bool asks_for_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

/* Fails with the names of all commands, and the nearest one. */
static oct_status fail_unknown_command(const char *name)
{
    const char *names[64];
    size_t count = oct_command_count();
    OCT_OWNED(oct_text_free) oct_text list = {0};
    OCT_ASSERT(count <= OCT_COUNT(names));
    for (size_t i = 0; i < count; i++) {
        names[i] = oct_command_at(i)->name;
        OCT_TRY(oct_text_add(&list, "%s%s", i ? ", " : "", names[i]));
    }
    char hint[OCT_HINT_BYTES];
    return oct_fail(OCT_USAGE, "command line: unknown %s '%s'; %s\ncommands: %s",
                    name[0] == '-' ? "option" : "command", name,
                    oct_did_you_mean(hint, name, names, count, "see octet help"), list.data);
}

/* The exit status of the ranks that this process started and waited for; below 0: it started none. */
static int ranks_exit = -1;

/* Starts the ranks where a parallel command has --ranks, or hosts for them; the command itself does not see
 * these options. */
static oct_status start_ranks(const oct_command *command, const oct_args *args)
{
    bool asked = false;
    oct_ranks_request request = {0};
    if (!command->parallel) return OCT_OK;
    for (size_t i = 0; command->options && command->options[i].name; i++) {
        const char *name = command->options[i].name;
        if (!args->option[i].given) continue;
        bool is_one = true;
        if (strcmp(name, "--ranks") == 0)
            request.ranks = args->option[i].count;
        else if (strcmp(name, "--restart") == 0)
            request.restarts = args->option[i].count;
        else if (strcmp(name, "--hostfile") == 0)
            request.hostfile = args->option[i].text;
        else if (strcmp(name, "--hosts") == 0)
            request.hosts = args->option[i].text;
        else
            is_one = false;
        asked = asked || is_one;
    }
    return asked ? oct_launch_ranks(args, &request, &ranks_exit) : OCT_OK;
}

static oct_status run_command(const oct_command *command, int argc, char **argv)
{
    static oct_args args;
    int rank, size;
    bool launched = oct_launched(&rank, &size);
    OCT_TRY(oct_args_parse(&args, command, argc - 2, argv + 2));
    args.argc = argc;
    args.argv = argv;
    OCT_TRY(oct_zoo_paths(&args));
    OCT_CHECK(command->parallel || !launched || size == 1, OCT_USAGE,
              "octet %s is for one process, but %d were started; run it without the launcher",
              command->name, size);
    oct_log_level level = args.quiet     ? OCT_LOG_ERROR
                          : args.verbose ? OCT_LOG_VERBOSE
                                         : OCT_LOG_INFO;
    oct_log_setup(level, rank == 0);
    oct_meter_choose(args.progress);
    OCT_TRY(start_ranks(command, &args));
    if (ranks_exit >= 0) return OCT_OK;
    if (command->parallel) OCT_TRY(oct_wait_policy(&args));
    if (args.allow_plugins) oct_plugins_allow();
    return command->run(&args);
}

enum { STACK_BYTES = 1 << 20, STACK_LEAST = 512 << 10, PAGE_BYTES = 4096 };

/* Writes to each page of the stack, so that the system gives them now. */
__attribute__((noinline)) static void touch_stack(void)
{
    volatile char room[STACK_BYTES];
    for (size_t i = 0; i < sizeof(room); i += PAGE_BYTES)
        room[i] = 0;
}

/* Grows the stack now. Under a memory limit (ulimit -v) a process is killed when its stack cannot grow, most likely while
 * it reports that memory is short; here the shortage can still be reported. */
static oct_status grow_stack(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0) return OCT_OK;
    OCT_CHECK(limit.rlim_cur >= STACK_LEAST, OCT_RESOURCE,
              "the stack is limited to %s, and Octet needs %s; run `ulimit -s 8192` first",
              oct_text_size((int64_t)limit.rlim_cur).text, oct_text_size(STACK_LEAST).text);
    if (limit.rlim_cur < 2 * STACK_BYTES) return OCT_OK;
    OCT_TRY(oct_mem_check_available(STACK_BYTES));
    touch_stack();
    return OCT_OK;
}

/* Finds the command, or shows help, once this machine is known to suffice. */
static oct_status run_main(int argc, char **argv, int rank)
{
    OCT_TRY(grow_stack());
    OCT_TRY(oct_cpu_check());
    OCT_TRY(oct_float_kernel_check());
    const bool asks_version = argc > 1 && strcmp(argv[1], "--version") == 0;
    const bool asks_overview = argc < 2 || asks_for_help(1, argv + 1);
    if (asks_version || asks_overview) {
        if (rank == 0 && asks_version) oct_print("octet %s\n", OCT_VERSION);
        if (rank == 0 && asks_overview) oct_print_help(NULL);
        return OCT_OK;
    }
    const oct_command *command = oct_command_find(argv[1]);
    if (!command) return fail_unknown_command(argv[1]);
    if (!asks_for_help(argc - 2, argv + 2)) return run_command(command, argc, argv);
    if (rank == 0) oct_print_help(command);
    return OCT_OK;
}

/* Ranks that have not synchronized yet may all have found the same mistake, or only this one may have. Under
 * mpirun rank 0 reports it: if it fails too, its exit is the end of all. The same wait keeps the others
 * from exiting first, which would cut off what rank 0 says. */
static void report_after_rank_0(oct_status status, int rank, int argc, char **argv)
{
    enum { WAIT_S = 5 };
    char host[64] = "";
    int local_rank, local_ranks;
    if (!oct_launched_here(&local_rank, &local_ranks)) return;
    signal(SIGTERM, SIG_DFL); /* by which mpirun ends the others when one has reported */
    nanosleep(&(struct timespec){.tv_sec = WAIT_S}, NULL);
    if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '?';
    (void)oct_fail_prefix("rank %d (%s)", rank, host);
    oct_failure_print(status, argc, argv);
}

/* Runs the program, reports its failure, and finds the exit status. */
int main(int argc, char **argv)
{
    int rank, size, exit_status;
    oct_launched(&rank, &size);
    prepare_process();
    oct_status status = run_main(argc, argv, rank);
    if (status == OCT_OK || status == OCT_MISMATCH) {
        const oct_status flushed = oct_print_flush();
        if (flushed != OCT_OK) status = flushed;
    }
    if (status == OCT_OK) {
        exit_status = ranks_exit >= 0 ? ranks_exit : oct_status_exit(argc < 2 ? OCT_USAGE : OCT_OK);
    } else {
        /* Where ranks lost one before they had a session, the first of them reports it. */
        if (ranks_exit < 0 && oct_fail_code() == OCT_LOST && oct_launched(&rank, &size) &&
            !oct_rank_may_report())
            oct_failure_silence();
        if (rank == 0)
            oct_failure_print(status, argc, argv);
        else
            report_after_rank_0(status, rank, argc, argv);
        exit_status = oct_failure_exit(status);
    }
    oct_rank_note_end(exit_status);
    return exit_status;
}
