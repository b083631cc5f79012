/* Any rank can end the whole job at any time: before MPI starts, while peers wait, and after MPI
 * has ended. */
#include "dist/comm_impl.h"

#include <mpi.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* mpirun of Open MPI 5 ends its forwarding with the first rank that ends badly, so what was said gets a moment. */
static void let_words_pass(void)
{
    int rank, size;
    if (oct_launched(&rank, &size)) nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}

void oct_abort(int exit_status)
{
    int started = 0, ended = 0;
    oct_rank_note_end(exit_status);
    fflush(NULL);
    let_words_pass();
    MPI_Initialized(&started);
    MPI_Finalized(&ended);
    if (started && !ended) MPI_Abort(MPI_COMM_WORLD, exit_status);
    _exit(exit_status);
}

void oct_exit_now(int exit_status)
{
    oct_rank_note_end(exit_status);
    let_words_pass();
    _exit(exit_status);
}

void oct_abort_defect(void)
{
    oct_abort(oct_status_exit(OCT_DEFECT));
}
