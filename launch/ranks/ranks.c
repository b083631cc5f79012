/* A loss costs the steps since the newest checkpoint, and no more than somebody at the keyboard who repeats the
 * command. */
#include "launch/ranks/ranks.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/text.h"
#include "dist/comm.h"
#include "io/checkpoint/checkpoint.h"
#include "io/file/file.h"
#include "launch/base/machine.h"
#include "launch/base/meter.h"
#include "launch/base/output.h"
#include "launch/cmd/command.h"
#include "launch/cmd/recipe_args.h"
#include "launch/ranks/watch.h"
#include "launch/runfolder/run_folder.h"
#include "launch/train/run_check.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Hosts. Their names go to mpirun and ssh, so nothing but a name may pass for one. */

enum {
    FILE_BYTES_MAX = 1 << 20,
    SLOTS_MAX = 4096,
    AGENT_WORDS = 16,
    SHOWN = 40,
    LOOK_NS = 20000000
};

static const char name_letters[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

/* "localhost", or what gethostname says, with or without its domain. */
static bool is_this_host(const char *name)
{
    char host[256] = "";
    if (strcmp(name, "localhost") == 0 || strcmp(name, "127.0.0.1") == 0) return true;
    if (gethostname(host, sizeof(host) - 1) != 0) return false;
    const size_t length = strcspn(host, ".");
    return strcmp(name, host) == 0 || (strlen(name) == length && strncmp(name, host, length) == 0);
}

static oct_status add_host(oct_rank_hosts *hosts, const char *name, size_t length, int64_t slots)
{
    for (size_t i = 0; i < hosts->count; i++) {
        oct_rank_host *host = &hosts->host[i];
        if (strlen(host->name) != length || strncmp(host->name, name, length) != 0) continue;
        OCT_CHECK(host->slots + slots <= SLOTS_MAX, OCT_USAGE,
                  "host %s has more than %d slots altogether", host->name, SLOTS_MAX);
        host->slots += slots;
        return OCT_OK;
    }
    OCT_TRY(oct_grow(&hosts->host, &hosts->capacity, hosts->count + 1, sizeof(*hosts->host)));
    oct_rank_host *host = &hosts->host[hosts->count++];
    *host = (oct_rank_host){.slots = slots};
    memcpy(host->name, name, length);
    host->here = is_this_host(host->name);
    return OCT_OK;
}

/* Reads one host: "node1", "node1:16" or "node1 slots=16". The text ends with the line. */
static oct_status read_host(oct_rank_hosts *hosts, const char *text)
{
    static const char slots_word[] = "slots";
    const size_t length = strspn(text, name_letters);
    const char *at = text + length;
    int64_t slots = 1;
    OCT_CHECK(length > 0 && text[0] != '-' && text[0] != '.' && strchr(" \t:", *at), OCT_USAGE,
              "'%.*s' is no host; write a name and how many ranks it takes: node1:16", SHOWN, text);
    OCT_CHECK(length < sizeof(hosts->host->name), OCT_USAGE,
              "'%.*s...' is no host: a name has less than %zu letters", SHOWN, text,
              sizeof(hosts->host->name));
    const bool colon = *at == ':';
    at += colon;
    at += strspn(at, " \t");
    if (!colon && strncmp(at, slots_word, strlen(slots_word)) == 0) {
        at += strlen(slots_word);
        at += strspn(at, " \t");
        OCT_CHECK(*at == '=', OCT_USAGE, "'%.*s': write slots=16", SHOWN, text);
        at += 1 + strspn(at + 1, " \t");
    } else {
        OCT_CHECK(colon || !*at, OCT_USAGE, "'%.*s': after a host write slots=16, :16 or nothing",
                  SHOWN, text);
    }
    OCT_CHECK((!colon && !*at && at == text + length) ||
                  (oct_parse_i64(at, &slots) && slots >= 1 && slots <= SLOTS_MAX),
              OCT_USAGE, "'%.*s': slots are a number from 1 to %d", SHOWN, text, SLOTS_MAX);
    return add_host(hosts, text, length, slots);
}

oct_status oct_rank_hosts_read(oct_rank_hosts *hosts, const char *path)
{
    OCT_OWNED(oct_free) void *bytes = NULL;
    size_t size, number = 1;
    *hosts = (oct_rank_hosts){.file = -1};
    OCT_TRY(oct_file_read(path, FILE_BYTES_MAX, &bytes, &size));
    OCT_CHECK(!memchr(bytes, '\0', size), OCT_USAGE, "%s: is no text", path);
    for (char *line = bytes, *next; line; line = next, number++) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        line[strcspn(line, "#\r")] = '\0';
        line += strspn(line, " \t");
        for (size_t end = strlen(line); end > 0 && strchr(" \t", line[end - 1]);)
            line[--end] = '\0';
        if (!*line) continue;
        if (read_host(hosts, line) != OCT_OK) return oct_fail_prefix("%s:%zu", path, number);
    }
    OCT_CHECK(hosts->count > 0, OCT_USAGE, "%s: names no host; write lines such as node1 slots=16",
              path);
    return OCT_OK;
}

oct_status oct_rank_hosts_parse(oct_rank_hosts *hosts, const char *list)
{
    OCT_OWNED(oct_free) char *text = NULL;
    *hosts = (oct_rank_hosts){.file = -1};
    OCT_TRY(oct_strdup(&text, list));
    for (char *one = text, *next; one; one = next) {
        next = strchr(one, ',');
        if (next) *next++ = '\0';
        if (read_host(hosts, one) != OCT_OK) return oct_fail_prefix("command line: --hosts");
    }
    return OCT_OK;
}

void oct_rank_hosts_free(oct_rank_hosts *hosts)
{
    if (hosts->file >= 0) close(hosts->file);
    hosts->file = -1;
    hosts->count = 0;
    oct_free(&hosts->host);
}

int64_t oct_rank_hosts_slots(const oct_rank_hosts *hosts)
{
    int64_t slots = 0;
    for (size_t i = 0; i < hosts->count; i++)
        slots += hosts->host[i].silent ? 0 : hosts->host[i].slots;
    return slots;
}

bool oct_rank_hosts_beyond(const oct_rank_hosts *hosts)
{
    for (size_t i = 0; i < hosts->count; i++)
        if (!hosts->host[i].here) return true;
    return false;
}

oct_status oct_rank_hosts_write(oct_rank_hosts *hosts, const oct_mpirun_dialect *dialect,
                                char path[64])
{
    bool written = true;
    if (hosts->file >= 0) close(hosts->file);
    hosts->file = memfd_create("octet-hosts", MFD_CLOEXEC);
    for (size_t i = 0; i < hosts->count; i++) {
        const oct_rank_host *host = &hosts->host[i];
        if (host->silent) continue;
        written = dprintf(hosts->file, "%s%s%lld\n", host->name, dialect->slots,
                          (long long)host->slots) > 0 &&
                  written;
    }
    OCT_CHECK(hosts->file >= 0 && written, OCT_RESOURCE, "no memory for the list of hosts");
    snprintf(path, 64, "/proc/%ld/fd/%d", (long)getpid(), hosts->file);
    return OCT_OK;
}

/* Starts `ssh HOST true`, or the agent of the environment in place of ssh: its exit status 0 is the answer. */
static bool start_agent(const char *name, const oct_mpirun_dialect *dialect, pid_t *pid)
{
    char command[1024] = "ssh -o BatchMode=yes -o ConnectTimeout=5";
    const char *argv[AGENT_WORDS + 3], *agent = getenv(dialect->agent);
    if (agent && *agent) snprintf(command, sizeof(command), "%s", agent);
    /* "ssh : rsh" names two agents; the first is asked. */
    size_t n = 0;
    char *rest = NULL;
    for (char *word = strtok_r(command, " ", &rest);
         word && strcmp(word, ":") != 0 && n < AGENT_WORDS; word = strtok_r(NULL, " ", &rest))
        argv[n++] = word;
    argv[n++] = name;
    argv[n++] = "true";
    argv[n] = NULL;
    return oct_spawn(argv, -1, pid);
}

/* Marks as silent the hosts whose agent has failed; returns how many agents have not ended. */
static size_t collect_answers(oct_rank_hosts *hosts, pid_t *asked)
{
    size_t left = 0;
    for (size_t i = 0; i < hosts->count; i++) {
        int ended = 0;
        if (asked[i] <= 0) continue;
        if (waitpid(asked[i], &ended, WNOHANG) == asked[i]) {
            hosts->host[i].silent = !WIFEXITED(ended) || WEXITSTATUS(ended) != 0;
            asked[i] = 0;
        } else {
            left++;
        }
    }
    return left;
}

oct_status oct_rank_hosts_ask(oct_rank_hosts *hosts, const oct_mpirun_dialect *dialect,
                              double patience_s)
{
    OCT_OWNED(oct_free) pid_t *asked = NULL;
    OCT_TRY(oct_alloc(&asked, hosts->count, sizeof(*asked)));
    for (size_t i = 0; i < hosts->count; i++) {
        oct_rank_host *host = &hosts->host[i];
        if (host->here || host->silent) continue;
        host->silent = !start_agent(host->name, dialect, &asked[i]);
    }
    const double until = oct_seconds() + patience_s;
    while (collect_answers(hosts, asked) > 0 && oct_seconds() < until)
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    for (size_t i = 0; i < hosts->count; i++) {
        if (asked[i] <= 0) continue;
        hosts->host[i].silent = true;
        oct_spawn_end(asked[i]);
    }
    return OCT_OK;
}

/* The launch. */

/* More ranks than these on a core are refused, unless there are few altogether; from how many on the
 * start is slow. */
enum { RANKS_A_CORE = 16, RANKS_ALWAYS = 64, RANKS_QUICK = 16 };

/* What Open MPI may take of /dev/shm; where that is not there, as in a container, it looks for a place itself. */
enum { SHARED_BYTES = 16 << 20, RANK_BYTES = 8 << 20 };

/* How long mpirun may take to say its version, and a host to answer. */
static const double version_within_s = 5, answers_within_s = 10;

static oct_status check_load(int64_t ranks, int64_t threads)
{
    const int64_t cores = oct_machine_cores(), most = cores * RANKS_A_CORE;
    OCT_CHECK_ARGS(ranks <= most || ranks <= RANKS_ALWAYS,
                   "--ranks %lld on %lld core%s: more than %d for each would mostly wait; use "
                   "--ranks %lld, which gives the same bits",
                   (long long)ranks, (long long)cores, cores == 1 ? "" : "s", RANKS_A_CORE,
                   (long long)cores);
    if (ranks * threads > cores)
        oct_log(
            OCT_LOG_WARN,
            "%lld rank%s of %lld thread%s on %lld core%s: this is slow%s; fewer are faster, and "
            "give the same bits",
            (long long)ranks, ranks == 1 ? "" : "s", (long long)threads, threads == 1 ? "" : "s",
            (long long)cores, cores == 1 ? "" : "s",
            ranks > RANKS_QUICK ? ", the start alone may take a minute" : "");
    return OCT_OK;
}

/* What stays the same over the starts of one command. */
typedef struct launch {
    const oct_args *args;
    const oct_ranks_request *request;
    oct_ranks_start start;
    oct_rank_hosts hosts;
    char program[4096], hostfile[64];
    int64_t restarts, step; /* so far; of the newest checkpoint then, -1: not looked */
} launch;

/* Finds the hosts of the job, given or of a batch system, and its number of ranks. */
static oct_status read_hosts(launch *l)
{
    const oct_ranks_request *request = l->request;
    oct_mpirun_job *job = &l->start.job;
    l->hosts.file = -1;
    OCT_CHECK_ARGS(!request->hostfile || !request->hosts,
                   "--hostfile and --hosts cannot be used together");
    if (request->hostfile) OCT_TRY(oct_rank_hosts_read(&l->hosts, request->hostfile));
    if (request->hosts) OCT_TRY(oct_rank_hosts_parse(&l->hosts, request->hosts));
    /* Batch systems and Open MPI's own settings name hosts beyond this one to mpirun. */
    static const char *const variables[] = {"SLURM_JOB_NODELIST", "SLURM_JOB_ID", "PBS_NODEFILE",
                                            "LSB_HOSTS", "PE_HOSTFILE"};
    const char **allocation = &l->start.allocation;
    for (size_t i = 0; i < OCT_COUNT(variables) && !*allocation; i++)
        *allocation = getenv(variables[i]);
    for (size_t i = 0; i < OCT_MPIRUN_DIALECTS && !*allocation; i++)
        if (oct_mpirun_dialects[i].default_hosts)
            *allocation = getenv(oct_mpirun_dialects[i].default_hosts);
    job->beyond = l->start.allocation || oct_rank_hosts_beyond(&l->hosts);
    job->ranks = request->ranks;
    if (l->hosts.count == 0) {
        OCT_CHECK_ARGS(job->ranks > 0, "--restart is for several ranks; add --ranks N");
        return OCT_OK;
    }
    const int64_t slots = oct_rank_hosts_slots(&l->hosts);
    if (job->ranks == 0) job->ranks = slots;
    OCT_CHECK_ARGS(job->ranks <= slots,
                   "--ranks %lld, but %s has slots for %lld; name more, or leave --ranks out",
                   (long long)job->ranks, request->hostfile ? request->hostfile : "--hosts",
                   (long long)slots);
    return OCT_OK;
}

/* Refuses before anything starts what the recipe rules out, and a disk that is full already. A loss may be
 * logged by this process alone. */
static oct_status check_recipe(const launch *l)
{
    OCT_OWNED(oct_recipe_free) oct_recipe recipe = {0};
    OCT_OWNED(oct_free) char *model = NULL;
    const oct_command *command = oct_command_find(l->args->argv[1]);
    if (!command || !command->recipe) return OCT_OK;
    OCT_TRY(command->recipe(&recipe, l->args));
    OCT_TRY(oct_check_ranks(&recipe, recipe.batch_size, (int)l->start.job.ranks));
    OCT_TRY(oct_run_path(recipe.output, "model.int8.h5", &model));
    if (!l->start.job.beyond && !oct_file_exists(model)) OCT_TRY(oct_check_room(&recipe, 0));
    oct_failure_log(recipe.output);
    return OCT_OK;
}

static oct_status prepare_launch(launch *l)
{
    oct_ranks_wanted wanted;
    oct_mpirun_job *job = &l->start.job;
    OCT_TRY(oct_ranks_want(l->args, &wanted));
    OCT_TRY(read_hosts(l));
    *job = (oct_mpirun_job){.args = l->args,
                            .ranks = job->ranks,
                            .beyond = job->beyond,
                            .threads = wanted.threads,
                            .cores = oct_machine_cores(),
                            .bar = !l->args->quiet && oct_progress_terminal(),
                            .program = l->program};
    job->narrowed = job->cores < sysconf(_SC_NPROCESSORS_ONLN);
    l->start.deadline_s = wanted.deadline_s;
    if (!job->beyond) OCT_TRY(check_load(job->ranks, job->threads));
    OCT_TRY(check_recipe(l));
    ssize_t length = readlink("/proc/self/exe", l->program, sizeof(l->program) - 1);
    OCT_CHECK(length > 0, OCT_RESOURCE, "/proc/self/exe: %s", strerror(errno));
    l->program[length] = '\0';
    OCT_TRY(oct_mpirun_find(&l->start.mpirun, fmin(version_within_s, wanted.deadline_s)));
    if (job->threads > 1)
        oct_wait_policy_choose(job->beyond || job->ranks * job->threads <= job->cores);
    return OCT_OK;
}

/* Finds the step of the newest good checkpoint, 0 where there is none, and logs into the run's log from here on: the
 * ranks, which did, are gone. A log that cannot be written hinders nothing. */
static oct_status find_newest_step(const oct_args *args, int64_t *step)
{
    OCT_OWNED(oct_recipe_free) oct_recipe recipe = {0};
    OCT_OWNED(oct_checkpoint_close) oct_checkpoint newest = {0};
    OCT_OWNED(oct_free) char *folder = NULL;
    *step = 0;
    OCT_TRY(oct_recipe_of_args(&recipe, args));
    if (access(recipe.output, F_OK) == 0 && oct_run_folder_log(recipe.output) != OCT_OK)
        oct_fail_clear();
    OCT_TRY(oct_run_checkpoints(recipe.output, &folder));
    if (access(folder, F_OK) != 0) return OCT_OK;
    OCT_TRY(oct_checkpoint_newest_on_disk(&newest, folder));
    if (newest.file) *step = newest.info.step;
    return OCT_OK;
}

/* Names the hosts that are left out: ", without node3 and 2 more, which do not answer". */
static void list_silent_hosts(const oct_rank_hosts *hosts, char *text, size_t size)
{
    size_t silent = 0;
    const char *first = "";
    text[0] = '\0';
    for (size_t i = 0; i < hosts->count; i++)
        if (hosts->host[i].silent && silent++ == 0) first = hosts->host[i].name;
    if (silent == 1) snprintf(text, size, ", without %s, which does not answer", first);
    if (silent > 1)
        snprintf(text, size, ", without %s and %zu more, which do not answer", first, silent - 1);
}

/* Decides where and with how many ranks it goes on, and says so; `lost` is what happened. That is a warning: with
 * --quiet only the log has it, since nothing is wrong any more. */
static oct_status choose_restart(launch *l, const char *lost)
{
    int64_t step;
    char silent[400];
    int64_t *ranks = &l->start.job.ranks;
    OCT_TRY(find_newest_step(l->args, &step));
    if (oct_rank_hosts_beyond(&l->hosts))
        OCT_TRY(oct_rank_hosts_ask(&l->hosts, l->start.mpirun.dialect, answers_within_s));
    if (step == l->step && *ranks > 1) (*ranks)--;
    const int64_t slots = oct_rank_hosts_slots(&l->hosts);
    OCT_CHECK(l->hosts.count == 0 || slots > 0, OCT_LOST, "%s; none of the hosts answers (%s%s)",
              lost, l->hosts.host[0].name, l->hosts.count > 1 ? ", ..." : "");
    if (l->hosts.count > 0 && *ranks > slots) *ranks = slots;
    l->step = step;
    l->restarts++;
    list_silent_hosts(&l->hosts, silent, sizeof(silent));
    oct_log(OCT_LOG_WARN, "%s; restart %lld of %lld: %lld rank%s on from step %lld%s", lost,
            (long long)l->restarts, (long long)l->request->restarts, (long long)*ranks,
            *ranks == 1 ? " goes" : "s go", (long long)step, silent);
    return OCT_OK;
}

/* Starts mpirun, and again after a loss as long as restarts are left. */
static oct_status start_until_done(launch *l, int *exit_status)
{
    while (true) {
        char lost[1024] = "a rank was lost, stuck or had diverged";
        l->start.hosts = &l->hosts;
        l->start.goes_on = l->restarts < l->request->restarts;
        if (l->hosts.count > 0) {
            OCT_TRY(oct_rank_hosts_write(&l->hosts, l->start.mpirun.dialect, l->hostfile));
            l->start.job.hostfile = l->hostfile;
        }
        const oct_status status = oct_ranks_watch(&l->start, exit_status);
        if (status != OCT_OK && status != OCT_LOST) return status;
        if (status == OCT_OK && *exit_status != oct_status_exit(OCT_LOST)) return OCT_OK;
        if (!l->start.goes_on || oct_ranks_stop_asked()) return status;
        if (status == OCT_LOST) snprintf(lost, sizeof(lost), "%s", oct_error_message(0));
        lost[strcspn(lost, "\n")] = '\0';
        oct_fail_clear();
        const oct_status chosen = choose_restart(l, lost);
        OCT_TRY(oct_log_file(NULL));
        OCT_TRY(chosen);
    }
}

oct_status oct_launch_ranks(const oct_args *args, const oct_ranks_request *request,
                            int *exit_status)
{
    int rank, size;
    launch l = {.args = args, .request = request, .step = -1};
    OCT_CHECK_ARGS(!oct_launched(&rank, &size),
                   "--ranks cannot be used under mpirun or another launcher; use only one of them");
    oct_ranks_listen();
    oct_machine_unbind();
    oct_status status = prepare_launch(&l);
    if (status == OCT_OK) {
        const pid_t self = getpid();
        const char *folder = oct_guard_begin();
        const bool room =
            oct_machine_disk("/dev/shm") >= SHARED_BYTES + RANK_BYTES * l.start.job.ranks;
        if (!l.start.job.beyond && room)
            l.start.job.folder = folder; /* other hosts do not have it */
        status = start_until_done(&l, exit_status);
        if (getpid() == self)
            oct_guard_end(); /* a child that could not become mpirun comes here too */
    }
    oct_rank_hosts_free(&l.hosts);
    return status;
}
