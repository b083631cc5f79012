/* Four kinds of mpirun say the same in four ways. The flags of Open MPI 4 and MPICH are tried here; those of
 * Open MPI 5 and Intel MPI are from their documentation (mpirun(1) of Open MPI 5.0; Developer Reference of
 * Intel MPI 2021, Global Hydra Options).
 *
 * What a user of mpirun has to know is known here: more ranks than cores want leave; mpirun pins each
 * rank to one core, which threads must not share; root needs two variables; a host that lost its power is
 * noticed after eight minutes unless keepalives come sooner. */
#include "launch/ranks/mpirun.h"

#include "core/base/text.h"
#include "dist/comm.h"
#include "launch/ranks/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAID_BYTES = 4096, EXPORTED_MAX = 32 };

extern char **environ;

static bool is_open_mpi(oct_mpirun_dialect dialect)
{
    return dialect == OCT_MPIRUN_OPEN_MPI_4 || dialect == OCT_MPIRUN_OPEN_MPI_5;
}

static void set_name(oct_mpi_launcher *mpirun, const char *library, const char *version)
{
    snprintf(mpirun->name, sizeof(mpirun->name), "%s %.*s", library,
             (int)strspn(version, "0123456789."), version);
}

static const char *behind(const char *text, const char *words)
{
    const char *at = strstr(text, words);
    if (!at) return NULL;
    at += strlen(words);
    return at + strspn(at, " \t");
}

bool oct_mpirun_recognize(oct_mpi_launcher *mpirun, const char *said)
{
    const char *version = behind(said, "(Open MPI)");
    if (!version) version = behind(said, "(OpenRTE)");
    if (version) {
        mpirun->dialect =
            strtol(version, NULL, 10) >= 5 ? OCT_MPIRUN_OPEN_MPI_5 : OCT_MPIRUN_OPEN_MPI_4;
        set_name(mpirun, "Open MPI", version);
    } else if (strstr(said, "Intel(R) MPI Library")) {
        version = behind(said, "Version");
        mpirun->dialect = OCT_MPIRUN_INTEL;
        set_name(mpirun, "Intel MPI", version ? version : "");
    } else if (strstr(said, "HYDRA")) {
        version = behind(said, "Version:");
        mpirun->dialect = OCT_MPIRUN_MPICH;
        set_name(mpirun, "MPICH", version ? version : "");
    } else {
        return false;
    }
    return true;
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

/* Asks a program for its version, and ends it: it may be one that does not end. *found: PATH has it. */
static bool ask(oct_mpi_launcher *mpirun, double patience_s, bool *found)
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
        const bool known = ask(mpirun, patience_s, &found);
        if (known && is_open_mpi(mpirun->dialect) == open) return OCT_OK;
        if (found && !known) break;
        if (known) snprintf(other, sizeof(other), "%s", mpirun->name);
    }
    OCT_CHECK(!other[0], OCT_USAGE,
              "--ranks: mpirun is that of %s, but this octet is linked with %s, so each rank would "
              "take itself for the only one; put the mpirun of %s first in PATH",
              other, library, library);
    *mpirun = (oct_mpi_launcher){.program = found ? mpirun->program : programs[0],
                                 .dialect = open ? OCT_MPIRUN_OPEN_MPI_4 : OCT_MPIRUN_MPICH};
    snprintf(mpirun->name, sizeof(mpirun->name), "%s", library);
    return OCT_OK;
}

/* A rank has a core of its own where all their threads have one. */
static bool pinned(const oct_mpirun_job *job)
{
    return job->threads == 1 && job->ranks <= job->cores && !job->hostfile;
}

typedef struct words {
    const char **argv;
    size_t count;
} words;

static void add(words *to, const char *word)
{
    to->argv[to->count++] = word;
}

static void add_pair(words *to, const char *flag, const char *value)
{
    add(to, flag);
    add(to, value);
}

/* Open MPI gives ranks of other hosts no variable that is not named. */
static void add_exported(words *to)
{
    static const char *const prefixes[] = {"OMP_", "GOMP_", "OCT_", "LD_LIBRARY_PATH="};
    int exported = 0;
    for (char **variable = environ; *variable && exported < EXPORTED_MAX; variable++)
        for (size_t i = 0; i < OCT_COUNT(prefixes); i++)
            if (strncmp(*variable, prefixes[i], strlen(prefixes[i])) == 0) {
                add_pair(to, "-x", *variable);
                exported++;
            }
}

static void add_open_mpi(words *to, const oct_mpirun_job *job, bool since_5)
{
    const bool crowded = job->ranks > job->cores && !job->hostfile;
    if (since_5 && (crowded || job->hostfile))
        add_pair(to, "--map-by", crowded ? "slot:OVERSUBSCRIBE" : "slot");
    if (!since_5 && crowded) add(to, "--oversubscribe");
    if (!since_5 && job->hostfile) add_pair(to, "--map-by", "slot");
    if (job->hostfile) add_pair(to, "--hostfile", job->hostfile);
    add_pair(to, "--bind-to", pinned(job) ? "core" : "none");
    if (since_5 && job->folder) {
        add_pair(to, "--prtemca", "prte_tmpdir_base");
        add(to, job->folder);
    }
    if (job->hostfile) add_exported(to);
}

static void add_flags(words *to, const oct_mpi_launcher *mpirun, const oct_mpirun_job *job)
{
    switch (mpirun->dialect) {
    case OCT_MPIRUN_OPEN_MPI_4:
        add_open_mpi(to, job, false);
        break;
    case OCT_MPIRUN_OPEN_MPI_5:
        add_open_mpi(to, job, true);
        break;
    case OCT_MPIRUN_MPICH:
        if (job->hostfile) add_pair(to, "-f", job->hostfile);
        add_pair(to, "-bind-to", pinned(job) ? "core" : "none");
        add(to, "-genvall");
        break;
    case OCT_MPIRUN_INTEL: /* which pins by its environment */
        if (job->hostfile) add_pair(to, "-machinefile", job->hostfile);
        add(to, "-silent-abort");
        add(to, "-genvall");
        break;
    }
}

/* Options that this process has taken, with their values, are not the ranks' own. */
static bool is_taken(const char *word, bool *with_value)
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

static void add_program(words *to, const oct_mpirun_job *job)
{
    const oct_args *args = job->args;
    bool own = false, with_value;
    add(to, job->program);
    add(to, args->argv[1]); /* the command */
    if (!args->progress && job->bar) add_pair(to, "--progress", "bar");
    for (int i = 2; i < args->argc; i++) {
        own = own || strcmp(args->argv[i], "--") == 0;
        if (own || !is_taken(args->argv[i], &with_value))
            add(to, args->argv[i]);
        else if (!with_value)
            i++;
    }
}

size_t oct_mpirun_command(const oct_mpi_launcher *mpirun, const oct_mpirun_job *job,
                          char number[24], const char **argv, size_t capacity)
{
    words all = {.argv = argv};
    OCT_ASSERT(capacity >= (size_t)job->args->argc + OCT_MPIRUN_WORDS);
    snprintf(number, 24, "%" PRId64, job->ranks);
    add(&all, mpirun->program);
    if (mpirun->dialect == OCT_MPIRUN_OPEN_MPI_4) add(&all, "--quiet"); /* the sentences are ours */
    add_pair(&all, "-n", number);
    add_flags(&all, mpirun, job);
    add_program(&all, job);
    argv[all.count] = NULL;
    return all.count;
}

static void set_open_mpi(const oct_mpirun_job *job)
{
    static const char *const keepalive[][2] = {
        {"MCA_oob_tcp_keepalive_time", "10"},
        {"MCA_oob_tcp_keepalive_intvl", "3"},
        {"MCA_oob_tcp_keepalive_probes", "3"},
    };
    if (geteuid() == 0) {
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    }
    for (size_t i = 0; job->hostfile && i < OCT_COUNT(keepalive); i++) {
        char name[64];
        snprintf(name, sizeof(name), "OMPI_%s", keepalive[i][0]);
        setenv(name, keepalive[i][1], 0);
        snprintf(name, sizeof(name), "PRTE_%s", keepalive[i][0]);
        setenv(name, keepalive[i][1], 0);
    }
    if (!job->folder) return;
    setenv("OMPI_MCA_orte_tmpdir_base", job->folder, 1);
    setenv("OMPI_MCA_btl_vader_backing_directory", job->folder, 1);
    setenv("OMPI_MCA_btl_sm_backing_directory", job->folder, 1);
}

void oct_mpirun_environment(const oct_mpi_launcher *mpirun, const oct_mpirun_job *job)
{
    if (is_open_mpi(mpirun->dialect)) set_open_mpi(job);
    if (mpirun->dialect == OCT_MPIRUN_INTEL && !pinned(job)) setenv("I_MPI_PIN", "0", 1);
}
