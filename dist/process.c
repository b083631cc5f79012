/* What the environment and the system know of this process and of others: its host, its launcher, the memory that a
 * process of this host shares.
 *
 * A launcher that Octet's MPI cannot talk to is the worst start there is: N copies of a one-rank run, all writing the
 * same files. srun without PMI and the mpirun of another MPI library both do that, silently; the first is refused here,
 * the second in transport_mpi.c. */
#include "core/base/text.h"
#include "dist/comm_impl.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void oct_host_name(char host[OCT_HOST_BYTES])
{
    host[OCT_HOST_BYTES - 1] = '\0';
    if (gethostname(host, OCT_HOST_BYTES - 1) != 0) snprintf(host, OCT_HOST_BYTES, "unknown host");
}

/* Reads a variable of the environment that is a number from 0 to a million; false when it is none. */
static bool read_env_count(const char *name, int *count)
{
    const char *text = getenv(name);
    int64_t number;
    if (!text || !oct_parse_i64(text, &number) || number < 0 || number >= 1 << 20) return false;
    *count = (int)number;
    return true;
}

ssize_t oct_process_read(int pid, const char *file, char *text, size_t size)
{
    char path[64];
    size_t used = 0;
    snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    for (ssize_t got; used < size - 1 && (got = read(fd, text + used, size - 1 - used)) > 0;)
        used += (size_t)got;
    close(fd);
    text[used] = '\0';
    return (ssize_t)used;
}

char oct_process_state(int pid)
{
    char text[512];
    const ssize_t length = oct_process_read(pid, "stat", text, sizeof(text));
    if (length < 0) return kill(pid, 0) == 0 ? 'R' : 0; /* no /proc here */
    if (length == 0) return 0;
    const char *name_end = strrchr(text, ')'); /* "PID (NAME) STATE": the name may hold anything */
    return name_end && name_end[1] == ' ' ? name_end[2] : 'R';
}

void *oct_memory_map(int file, size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void *oct_memory_of_process(int32_t pid, int32_t file, size_t bytes)
{
    char path[64];
    struct stat info;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, (int)file);
    const int opened = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (opened < 0) return NULL;
    const bool good =
        fstat(opened, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == (off_t)bytes;
    void *memory = good ? oct_memory_map(opened, bytes) : NULL;
    close(opened);
    return memory;
}

/* The launcher. */

/* Counts the tasks of the srun step that this process is in; 0 outside of one. A batch script knows
 * SLURM_NTASKS too, but is no step of several tasks. */
static int count_slurm_tasks(void)
{
    int tasks = 0, step = 0;
    if (read_env_count("SLURM_STEP_NUM_TASKS", &tasks)) return tasks;
    if (read_env_count("SLURM_STEP_ID", &step) || read_env_count("SLURM_STEPID", &step))
        if (read_env_count("SLURM_NTASKS", &tasks)) return tasks;
    return 0;
}

bool oct_launched_here(int *local_rank, int *local_ranks)
{
    static const char *const names[][2] = {
        {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"}, /* Open MPI */
        {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},                       /* MPICH, Intel MPI */
    };
    for (size_t i = 0; i < OCT_COUNT(names); i++)
        if (read_env_count(names[i][0], local_rank) && read_env_count(names[i][1], local_ranks))
            return true;
    return false;
}

/* True when a process manager that an MPI library can ask has started this process. */
static bool find_managed_rank(int *rank, int *size)
{
    if (read_env_count("OMPI_COMM_WORLD_RANK", rank) &&
        read_env_count("OMPI_COMM_WORLD_SIZE", size))
        return true;
    if (read_env_count("PMI_RANK", rank) && read_env_count("PMI_SIZE", size)) return true;
    if (read_env_count("PMIX_RANK", rank)) {
        int tasks = count_slurm_tasks(); /* PMIx has no variable for the size */
        *size = tasks > *rank ? tasks : *rank + 1;
        return true;
    }
    return false;
}

bool oct_launched(int *rank, int *size)
{
    *rank = 0;
    *size = 1;
    if (find_managed_rank(rank, size)) return true;
    int tasks = count_slurm_tasks();
    if (tasks <= 1) return false;
    *size = tasks;
    if (!read_env_count("SLURM_PROCID", rank)) *rank = 0;
    return true;
}

oct_status oct_launcher_check(void)
{
    int rank = 0, size = 1;
    if (find_managed_rank(&rank, &size) || !oct_launched(&rank, &size)) return OCT_OK;
    return oct_fail(OCT_USAGE,
                    "srun started %d tasks without PMI, so each would train alone; use "
                    "\"srun --mpi=pmix octet ...\", or mpirun inside the allocation",
                    size);
}

enum { ANCESTORS_MAX = 16 };

static bool is_launcher(int pid)
{
    static const char *const names[] = {"mpirun",  "mpiexec", "orterun",         "orted",
                                        "prterun", "prted",   "hydra_pmi_proxy", "hydra_bstrap_pr"};
    char name[64];
    if (oct_process_read(pid, "comm", name, sizeof(name)) < 0) return false;
    name[strcspn(name, ".\n")] = '\0';
    for (size_t i = 0; i < OCT_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static int find_parent(int pid)
{
    char text[512];
    int parent = 0;
    if (oct_process_read(pid, "stat", text, sizeof(text)) < 0) return 0;
    const char *name_end = strrchr(text, ')'); /* "PID (NAME) STATE PARENT" */
    return name_end && sscanf(name_end + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

int oct_launcher_process(void)
{
    int pid = getppid();
    for (int i = 0; i < ANCESTORS_MAX && pid > 1; i++, pid = find_parent(pid))
        if (is_launcher(pid)) return pid;
    return 0;
}

oct_launcher_text oct_launcher_stopped(const char *before)
{
    oct_launcher_text t = {""};
    int pid = oct_launcher_process();
    while (pid > 1 && !(is_launcher(pid) && oct_process_state(pid) == 'T'))
        pid = find_parent(pid); /* MPICH has a proxy between mpirun and the ranks */
    if (pid > 1)
        snprintf(t.text, sizeof t.text,
                 "%smpirun (process %d) is stopped, and kill -CONT %d wakes it", before, pid, pid);
    return t;
}
