/* Preloaded into ranks, stops rank 1 when MPI_Finalize has let all of them go: none of the others misses it then.
 * Preloaded into octet, kills it as soon as the folder of its job is there, where OCT_KILL_AFTER_FOLDER is set. */
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int MPI_Finalize(void);

int MPI_Finalize(void)
{
    int (*finalize)(void) = NULL;
    *(void **)&finalize = dlsym(RTLD_NEXT, "MPI_Finalize");
    const int status = finalize();
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!rank) rank = getenv("PMI_RANK");
    if (rank && strcmp(rank, "1") == 0) kill(getpid(), SIGSTOP);
    return status;
}

int mkdir(const char *path, mode_t mode)
{
    static const char job[] = "/dev/shm/octet-job.";
    int (*make)(const char *, mode_t) = NULL;
    *(void **)&make = dlsym(RTLD_NEXT, "mkdir");
    const int status = make(path, mode);
    if (status == 0 && getenv("OCT_KILL_AFTER_FOLDER") && strncmp(path, job, strlen(job)) == 0)
        kill(getpid(), SIGKILL);
    return status;
}
