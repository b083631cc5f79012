/* The environment says who started this process, before MPI does.
 *
 * A launcher that Octet's MPI cannot talk to is the worst start there is: N copies of a one-rank
 * run, all writing the same files. srun without PMI and the mpirun of another MPI library both do
 * that, silently; the first is refused here, the second in transport_mpi.c.
 */
#include "dist/comm_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Counts the tasks of the srun step that this process is in; 0 outside of one. A batch script knows
 * SLURM_NTASKS too, but is no step of several tasks. */
static int slurm_tasks(void)
{
    int tasks = 0, step = 0;
    if (oct_env_count("SLURM_STEP_NUM_TASKS", &tasks)) return tasks;
    if (oct_env_count("SLURM_STEP_ID", &step) || oct_env_count("SLURM_STEPID", &step))
        if (oct_env_count("SLURM_NTASKS", &tasks)) return tasks;
    return 0;
}

bool oct_launched_here(int *local_rank, int *local_ranks)
{
    static const char *const names[][2] = {
        {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"}, /* Open MPI */
        {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},                       /* MPICH, Intel MPI */
    };
    for (size_t i = 0; i < OCT_COUNT(names); i++)
        if (oct_env_count(names[i][0], local_rank) && oct_env_count(names[i][1], local_ranks))
            return true;
    return false;
}

/* True when a process manager that an MPI library can ask has started this process. */
static bool managed(int *rank, int *size)
{
    if (oct_env_count("OMPI_COMM_WORLD_RANK", rank) && oct_env_count("OMPI_COMM_WORLD_SIZE", size))
        return true;
    if (oct_env_count("PMI_RANK", rank) && oct_env_count("PMI_SIZE", size)) return true;
    if (oct_env_count("PMIX_RANK", rank)) {
        int tasks = slurm_tasks();
        *size = tasks > *rank ? tasks : *rank + 1;
        return true;
    }
    return false;
}

bool oct_launched(int *rank, int *size)
{
    *rank = 0;
    *size = 1;
    if (managed(rank, size)) return true;
    int tasks = slurm_tasks();
    if (tasks <= 1) return false;
    *size = tasks;
    if (!oct_env_count("SLURM_PROCID", rank)) *rank = 0;
    return true;
}

oct_status oct_launcher_check(void)
{
    int rank = 0, size = 1;
    if (managed(&rank, &size) || !oct_launched(&rank, &size)) return OCT_OK;
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

static int parent_of(int pid)
{
    char text[512];
    int parent = 0;
    if (oct_process_read(pid, "stat", text, sizeof(text)) < 0) return 0;
    const char *after = strrchr(text, ')');
    return after && sscanf(after + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

int oct_launcher_process(void)
{
    int pid = getppid();
    for (int i = 0; i < ANCESTORS_MAX && pid > 1; i++, pid = parent_of(pid))
        if (is_launcher(pid)) return pid;
    return 0;
}

const char *oct_launcher_stopped(const char *before, char text[128])
{
    int pid = oct_launcher_process();
    while (pid > 1 && !(is_launcher(pid) && oct_process_state(pid) == 'T'))
        pid = parent_of(pid); /* MPICH has a proxy between mpirun and the ranks */
    text[0] = '\0';
    if (pid > 1)
        snprintf(text, 128, "%smpirun (process %d) is stopped, and kill -CONT %d wakes it", before,
                 pid, pid);
    return text;
}
