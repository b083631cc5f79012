/* One mpirun is started, looked after until it has ended, and judged. */
#pragma once

#include "launch/ranks/hosts.h"

typedef struct oct_ranks_start {
    oct_mpi_launcher mpirun;
    oct_mpirun_job job;
    const oct_rank_hosts *hosts; /* the list that is given to mpirun */
    const char *allocation;      /* what the environment says of hosts; NULL: nothing */
    double deadline_s; /* of the ranks; also how long mpirun may take to start the first */
    bool goes_on;      /* the caller will start them again if one is lost */
} oct_ranks_start;

/* Makes SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU and (unless nohup has had it ignored) SIGHUP requests to the ranks to
 * stop. */
void oct_ranks_listen(void);
bool oct_ranks_stop_asked(void);

/* Runs mpirun and waits; OCT_OK: *exit_status is the command's. OCT_LOST: a signal ended a rank or mpirun, or mpirun
 * was stuck and is ended. Requests to stop reach the ranks as a SIGUSR1; a second SIGINT or SIGTERM
 * ends them. Where mpirun cannot be started, the child returns too, with OCT_RESOURCE and the
 * sentence; the parent returns the child's exit status. */
oct_status oct_ranks_watch(const oct_ranks_start *start, int *exit_status) OCT_NODISCARD;
