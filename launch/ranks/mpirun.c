/* What differs between the mpiruns that --ranks starts is one row of a table each, and nothing else in this folder asks
 * which it is. Rows are tried by the tests with the mpirun that is installed: Open MPI 4.1 and MPICH 4.0 of
 * Debian 12, Open MPI 5.0 and MPICH 4.2 of Debian 13. That of Intel MPI is from its documentation (Developer
 * Reference 2021, Global Hydra Options).
 *
 * What a user of mpirun has to know is known here: more ranks than cores want leave; mpirun pins each rank to one
 * core, which threads must not share; root needs two variables; a host that lost its power is noticed after eight
 * minutes unless keepalives come sooner. What a rank finds in its environment is in dist/process.c. */
#include "launch/ranks/mpirun.h"

#include "core/base/text.h"
#include "dist/comm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SAID_BYTES = 4096, EXPORTED_MAX = 32 };

extern char **environ;

/* The table. */

#define OPEN_MPI_SETTINGS(prefix)                                                                  \
    {OCT_MPIRUN_AS_ROOT, {"OMPI_ALLOW_RUN_AS_ROOT", "1"}},                                         \
        {OCT_MPIRUN_AS_ROOT, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}},                             \
        {OCT_MPIRUN_ON_HOSTS, {prefix "MCA_oob_tcp_keepalive_time", "10"}},                        \
        {OCT_MPIRUN_ON_HOSTS, {prefix "MCA_oob_tcp_keepalive_intvl", "3"}},                        \
    {                                                                                              \
        OCT_MPIRUN_ON_HOSTS,                                                                       \
        {                                                                                          \
            prefix "MCA_oob_tcp_keepalive_probes", "3"                                             \
        }                                                                                          \
    }

/* mpirun's account of a rank that has ended. Its --quiet would leave out all it says, reasons too. */
#define OPEN_MPI_ACCOUNTS                                                                          \
    "Primary job  terminated normally, but", " noticed that process rank",                         \
        " detected that one or more processes", " has exited due to process rank",                 \
        "MPI_ABORT was invoked on rank", " Forwarding signal", "/show_help.c at line",             \
        " has sent help message", " have sent help message", "_base_help_aggregate"

const oct_mpirun_dialect oct_mpirun_dialects[OCT_MPIRUN_DIALECTS] = {
    [OCT_MPIRUN_OPEN_MPI_4] =
        {.name = "Open MPI",
         .said = {"(Open MPI)", "(OpenRTE)", "Open MPI "},
         .package = "openmpi-bin",
         .slots = " slots=",
         .agent = "OMPI_MCA_plm_rsh_agent",
         .default_hosts = "OMPI_MCA_orte_default_hostfile",
         .exports = true,
         .flags = {{OCT_MPIRUN_ALWAYS, {"-n", OCT_MPIRUN_RANKS}},
                   {OCT_MPIRUN_CROWDED, {"--oversubscribe"}},
                   {OCT_MPIRUN_ON_HOSTS, {"--map-by", "slot"}},
                   {OCT_MPIRUN_ON_HOSTS, {"--hostfile", OCT_MPIRUN_HOSTFILE}},
                   {OCT_MPIRUN_PINNED, {"--bind-to", "core"}},
                   {OCT_MPIRUN_LOOSE, {"--bind-to", "none"}}},
         .settings = {OPEN_MPI_SETTINGS("OMPI_"),
                      {OCT_MPIRUN_WITH_FOLDER, {"OMPI_MCA_orte_tmpdir_base", OCT_MPIRUN_FOLDER}},
                      {OCT_MPIRUN_WITH_FOLDER,
                       {"OMPI_MCA_btl_vader_backing_directory", OCT_MPIRUN_FOLDER}}},
         .accounts = {OPEN_MPI_ACCOUNTS}},
    [OCT_MPIRUN_OPEN_MPI_5] =
        {.name = "Open MPI",
         .said = {"(Open MPI)", "(OpenRTE)", "Open MPI "},
         .since = 5,
         .package = "openmpi-bin",
         .slots = " slots=",
         .agent = "PRTE_MCA_plm_ssh_agent",
         .default_hosts = "PRTE_MCA_prte_default_hostfile",
         .exports = true,
         .flags = {{OCT_MPIRUN_ALWAYS, {"-n", OCT_MPIRUN_RANKS}},
                   {OCT_MPIRUN_CROWDED, {"--map-by", "slot:OVERSUBSCRIBE"}},
                   {OCT_MPIRUN_ON_HOSTS, {"--map-by", "slot"}},
                   {OCT_MPIRUN_ON_HOSTS, {"--hostfile", OCT_MPIRUN_HOSTFILE}},
                   {OCT_MPIRUN_PINNED, {"--bind-to", "core"}},
                   {OCT_MPIRUN_LOOSE, {"--bind-to", "none"}},
                   {OCT_MPIRUN_WITH_FOLDER, {"--prtemca", "prte_tmpdir_base", OCT_MPIRUN_FOLDER}}},
         .settings = {OPEN_MPI_SETTINGS("PRTE_"),
                      {OCT_MPIRUN_WITH_FOLDER,
                       {"OMPI_MCA_btl_sm_backing_directory", OCT_MPIRUN_FOLDER}}},
         .accounts = {OPEN_MPI_ACCOUNTS, "User defined signal 1", "[warn] Epoll ",
                      "PMIX_ERR_UNREACH"}},
    [OCT_MPIRUN_MPICH] = {.name = "MPICH",
                          .said = {"HYDRA", "MPICH "},
                          .number = "Version:",
                          .package = "mpich",
                          .slots = ":",
                          .agent = "HYDRA_LAUNCHER_EXEC",
                          .merges = true,
                          .flags = {{OCT_MPIRUN_ALWAYS, {"-n", OCT_MPIRUN_RANKS}},
                                    {OCT_MPIRUN_ON_HOSTS, {"-f", OCT_MPIRUN_HOSTFILE}},
                                    {OCT_MPIRUN_PINNED, {"-bind-to", "core"}},
                                    {OCT_MPIRUN_LOOSE, {"-bind-to", "none"}},
                                    {OCT_MPIRUN_ALWAYS, {"-genvall"}}},
                          .accounts = {"Abort("}},
    [OCT_MPIRUN_INTEL] = {.name = "Intel MPI",
                          .said = {"Intel(R) MPI Library"},
                          .number = "Version",
                          .package = "none; Intel has it",
                          .slots = ":",
                          .agent = "I_MPI_HYDRA_BOOTSTRAP_EXEC",
                          .merges = true,
                          .flags = {{OCT_MPIRUN_ALWAYS, {"-n", OCT_MPIRUN_RANKS}},
                                    {OCT_MPIRUN_ON_HOSTS, {"-machinefile", OCT_MPIRUN_HOSTFILE}},
                                    {OCT_MPIRUN_ALWAYS, {"-silent-abort"}},
                                    {OCT_MPIRUN_ALWAYS, {"-genvall"}}},
                          .settings = {{OCT_MPIRUN_LOOSE, {"I_MPI_PIN", "0"}}},
                          .accounts = {"Abort("}},
};

/* Programs that are asked something. */

bool oct_spawn(const char *const *argv, int out, pid_t *pid)
{
    posix_spawn_file_actions_t streams;
    posix_spawnattr_t group;
    posix_spawn_file_actions_init(&streams);
    posix_spawnattr_init(&group);
    posix_spawn_file_actions_addopen(&streams, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        if (out >= 0)
            posix_spawn_file_actions_adddup2(&streams, out, fd);
        else
            posix_spawn_file_actions_addopen(&streams, fd, "/dev/null", O_WRONLY, 0);
    }
    posix_spawnattr_setflags(&group, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&group, 0);
    const int error =
        posix_spawnp(pid, argv[0], &streams, &group, (char *const *)(uintptr_t)argv, environ);
    posix_spawnattr_destroy(&group);
    posix_spawn_file_actions_destroy(&streams);
    errno = error;
    return error == 0;
}

void oct_spawn_end(pid_t pid)
{
    kill(-pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
}

/* Which mpirun it is. */

/* Finds what is after some words and blanks in a text; NULL: the words are not in it. */
static const char *find_after(const char *text, const char *words)
{
    const char *at = strstr(text, words);
    if (!at) return NULL;
    at += strlen(words);
    return at + strspn(at, " \t");
}

/* Takes the last row of the table that fits: later rows are for later versions. */
bool oct_mpirun_recognize(oct_mpi_launcher *mpirun, const char *said)
{
    mpirun->dialect = NULL;
    for (const oct_mpirun_dialect *d = oct_mpirun_dialects;
         d < oct_mpirun_dialects + OCT_MPIRUN_DIALECTS; d++)
        for (int i = 0; d->said[i]; i++) {
            const char *version = find_after(said, d->said[i]), *later;
            if (version && d->number && (later = find_after(version, d->number)) != NULL)
                version = later;
            if (!version || strtol(version, NULL, 10) < d->since) continue;
            mpirun->dialect = d;
            snprintf(mpirun->name, sizeof(mpirun->name), "%s %.*s", d->name,
                     (int)strspn(version, "0123456789."), version);
        }
    return mpirun->dialect != NULL;
}

/* Reads until the answer is known, the program has closed its end, or patience is over. */
static bool read_answer(oct_mpi_launcher *mpirun, int from, double patience_s)
{
    char said[SAID_BYTES] = "";
    size_t used = 0;
    const double until = oct_seconds() + patience_s;
    while (used < sizeof(said) - 1) {
        const double left_s = until - oct_seconds();
        struct pollfd polled = {.fd = from, .events = POLLIN};
        const int ready = left_s > 0 ? poll(&polled, 1, (int)(left_s * 1e3) + 1) : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return false;
        const ssize_t got = read(from, said + used, sizeof(said) - 1 - used);
        if (got < 0 && errno == EINTR) continue;
        if (got > 0) used += (size_t)got;
        said[used] = '\0';
        const char *last = strrchr(said, '\n'); /* a line that is not whole may lack its number */
        if (got <= 0 || (last && strpbrk(said, "0123456789") < last))
            if (oct_mpirun_recognize(mpirun, said)) return true;
        if (got <= 0) return false;
    }
    return false;
}

/* Asks a program for its version, and ends it, since it may not end by itself. *found: PATH has it. */
static bool ask_version(oct_mpi_launcher *mpirun, double patience_s, bool *found)
{
    const char *const argv[] = {mpirun->program, "--version", NULL};
    int ends[2];
    pid_t pid;
    *found = true;
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    const bool started = oct_spawn(argv, ends[1], &pid);
    *found = started || errno != ENOENT;
    close(ends[1]);
    const bool known = started && read_answer(mpirun, ends[0], patience_s);
    close(ends[0]);
    if (started) oct_spawn_end(pid);
    return known;
}

oct_status oct_mpirun_find(oct_mpi_launcher *mpirun, double patience_s)
{
    const char *library = oct_mpi_library();
    const bool open = strncmp(library, "Open MPI", 8) == 0;
    const char *const programs[] = {"mpirun", open ? "mpirun.openmpi" : "mpirun.mpich"};
    char other[64] = "";
    bool found;
    for (size_t i = 0; i < OCT_COUNT(programs); i++) {
        *mpirun = (oct_mpi_launcher){.program = programs[i]};
        const bool known = ask_version(mpirun, patience_s, &found);
        /* Those of MPICH and Intel MPI start each other's ranks. */
        if (known && (strcmp(mpirun->dialect->name, "Open MPI") == 0) == open) return OCT_OK;
        if (found && !known) break;
        if (known) snprintf(other, sizeof(other), "%s", mpirun->name);
    }
    OCT_CHECK(!other[0], OCT_USAGE,
              "--ranks: mpirun is that of %s, but this octet is linked with %s, so each rank would "
              "take itself for the only one; put the mpirun of %s first in PATH",
              other, library, library);
    if (!found) mpirun->program = programs[0];
    if (!oct_mpirun_recognize(mpirun, library))
        mpirun->dialect = &oct_mpirun_dialects[OCT_MPIRUN_MPICH];
    return OCT_OK;
}

/* Its command line. */

/* Whether a job needs a row. Ranks that leave cores free are not pinned: those of two jobs would share cores. Nor are
 * those of a job that has some of the host's cores: mpirun counts from the first of all. */
static bool job_needs(const oct_mpirun_job *job, oct_mpirun_need need)
{
    const bool alone = !job->hostfile && !job->beyond;
    const bool pinned = alone && !job->narrowed && job->threads == 1 && job->ranks == job->cores;
    const bool needed[OCT_MPIRUN_NEEDS] = {
        [OCT_MPIRUN_ALWAYS] = true,
        [OCT_MPIRUN_CROWDED] = alone && job->ranks > job->cores,
        [OCT_MPIRUN_ON_HOSTS] = job->hostfile,
        [OCT_MPIRUN_PINNED] = pinned,
        [OCT_MPIRUN_LOOSE] = !pinned,
        [OCT_MPIRUN_WITH_FOLDER] = job->folder,
        [OCT_MPIRUN_AS_ROOT] = geteuid() == 0,
    };
    return needed[need];
}

typedef struct words {
    const char **argv;
    size_t count;
} words;

static void add_word(words *to, const char *word)
{
    to->argv[to->count++] = word;
}

static void add_pair(words *to, const char *flag, const char *value)
{
    add_word(to, flag);
    add_word(to, value);
}

/* Adds the variables that decide how a rank computes, waits and finds its libraries and files. */
static void add_exported_variables(words *to)
{
    static const char *const prefixes[] = {"OMP_",      "GOMP_", "OCT_",
                                           "OPENBLAS_", "HDF5_", "LD_LIBRARY_PATH="};
    int exported = 0;
    for (char **variable = environ; *variable && exported < EXPORTED_MAX; variable++)
        for (size_t i = 0; i < OCT_COUNT(prefixes); i++)
            if (strncmp(*variable, prefixes[i], strlen(prefixes[i])) == 0) {
                add_pair(to, "-x", *variable);
                exported++;
            }
}

/* Whether a word is an option for starting ranks, which they themselves do not get. *with_value: its value is in it. */
static bool is_launch_option(const char *word, bool *with_value)
{
    static const char *const names[] = {"--ranks", "--restart", "--hostfile", "--hosts", "-H"};
    for (size_t i = 0; i < OCT_COUNT(names); i++) {
        const size_t length = strlen(names[i]);
        if (strncmp(word, names[i], length) != 0 || (word[length] && word[length] != '=')) continue;
        *with_value = word[length] == '=';
        return true;
    }
    return false;
}

/* Each rank runs this command line again, without the options that this process has taken. */
static void add_octet_command(words *to, const oct_mpirun_job *job)
{
    const oct_args *args = job->args;
    bool only_words = false, with_value;
    add_word(to, job->program);
    add_word(to, args->argv[1]); /* the command */
    if (!args->progress && job->bar) add_pair(to, "--progress", "bar");
    for (int i = 2; i < args->argc; i++) {
        only_words = only_words || strcmp(args->argv[i], "--") == 0;
        if (only_words || !is_launch_option(args->argv[i], &with_value))
            add_word(to, args->argv[i]);
        else if (!with_value)
            i++;
    }
}

/* Returns the value in this job of a placeholder of the table, or any other word itself. */
static const char *resolve_word(const oct_mpirun_job *job, const char *word, const char *number)
{
    return strcmp(word, OCT_MPIRUN_RANKS) == 0      ? number
           : strcmp(word, OCT_MPIRUN_HOSTFILE) == 0 ? job->hostfile
           : strcmp(word, OCT_MPIRUN_FOLDER) == 0   ? job->folder
                                                    : word;
}

size_t oct_mpirun_command(const oct_mpi_launcher *mpirun, const oct_mpirun_job *job,
                          char number[24], const char **argv, size_t capacity)
{
    words all = {.argv = argv};
    OCT_ASSERT(capacity >= (size_t)job->args->argc + OCT_MPIRUN_WORDS);
    snprintf(number, 24, "%" PRId64, job->ranks);
    add_word(&all, mpirun->program);
    for (const oct_mpirun_words *flag = mpirun->dialect->flags; flag->word[0]; flag++)
        for (size_t i = 0; i < OCT_COUNT(flag->word) && flag->word[i] && job_needs(job, flag->need);
             i++)
            add_word(&all, resolve_word(job, flag->word[i], number));
    if (mpirun->dialect->exports && (job->hostfile || job->beyond)) add_exported_variables(&all);
    add_octet_command(&all, job);
    argv[all.count] = NULL;
    return all.count;
}

void oct_mpirun_environment(const oct_mpi_launcher *mpirun, const oct_mpirun_job *job)
{
    if (!getenv("HOME") && !getpwuid(geteuid()))
        setenv("HOME", "/", 1); /* that of Open MPI crashes */
    for (const oct_mpirun_words *set = mpirun->dialect->settings; set->word[0]; set++)
        if (job_needs(job, set->need))
            setenv(set->word[0], resolve_word(job, set->word[1], ""),
                   set->need != OCT_MPIRUN_ON_HOSTS);
}
