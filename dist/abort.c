/* Any rank can end the whole job at any time: before MPI starts, while peers wait, and after MPI
 * has ended. */
#include "dist/comm_impl.h"

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* mpirun of Open MPI 5 ends its forwarding with the first rank that ends badly, so what was said gets a moment. */
static void wait_for_output_to_pass(void)
{
    int rank, size;
    if (oct_launched(&rank, &size)) nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}

static bool own_process;

static void abort_after_defect(void)
{
    oct_abort(oct_status_exit(OCT_DEFECT));
}

void oct_process_own(void)
{
    own_process = true;
    oct_assert_hook(abort_after_defect);
}

bool oct_process_is_own(void)
{
    return own_process;
}

static volatile sig_atomic_t last_status;

/* On the alarm, mpirun has not ended the job: kills the other ranks of this host by their table, then ends this one. */
static void end_unaided(int signal_number)
{
    (void)signal_number;
    for (int i = 0; i < oct_rank_table_lines(); i++) {
        const int pid = oct_rank_table_line(i).pid;
        if (pid > 0 && pid != getpid()) kill(pid, SIGKILL);
    }
    _exit(last_status);
}

/* MPI_Abort waits for mpirun, and one that is stopped does not answer: then an alarm ends the ranks of this host. */
void oct_abort(int exit_status)
{
    enum { ANSWERS_WITHIN_S = 10, STOPPED_S = 1 };
    int started = 0, ended = 0;
    oct_rank_note_end(exit_status);
    fflush(NULL);
    wait_for_output_to_pass();
    MPI_Initialized(&started);
    MPI_Finalized(&ended);
    last_status = exit_status;
    signal(SIGALRM, end_unaided);
    const bool mpirun_is_stopped = oct_launcher_stopped("").text[0] != '\0';
    alarm(mpirun_is_stopped ? STOPPED_S : ANSWERS_WITHIN_S);
    if (started && !ended) MPI_Abort(MPI_COMM_WORLD, exit_status);
    _exit(exit_status);
}

void oct_exit_now(int exit_status)
{
    oct_rank_note_end(exit_status);
    wait_for_output_to_pass();
    _exit(exit_status);
}
