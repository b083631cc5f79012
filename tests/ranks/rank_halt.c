/* A rank that hangs inside a call of MPI which waits for all: rank_halt CALL RANK DEADLINE [mpirun].
 * CALL: init, dup or finalize. The calls are taken over by MPI's profiling names. mpirun: that is stopped instead. */
#include "tests/ranks/rank.h"

#include <mpi.h>

static const char *halting_call;
static int halting_rank, deadline_s;
static bool stops_launcher;

static void halt_at(const char *call)
{
    const char *text = getenv("OMPI_COMM_WORLD_RANK");
    if (!text) text = getenv("PMI_RANK");
    if (!text || rank_number(text) != halting_rank || strcmp(call, halting_call) != 0) return;
    if (stops_launcher)
        rank_stop_launcher((unsigned)deadline_s + 2);
    else
        kill(getpid(), SIGSTOP);
}

int MPI_Init_thread(int *argc, char ***argv, int wanted, int *provided)
{
    halt_at("init");
    return PMPI_Init_thread(argc, argv, wanted, provided);
}

int MPI_Comm_idup(MPI_Comm comm, MPI_Comm *copy, MPI_Request *request)
{
    halt_at("dup");
    return PMPI_Comm_idup(comm, copy, request);
}

int MPI_Finalize(void)
{
    halt_at("finalize");
    return PMPI_Finalize();
}

int main(int argc, char **argv)
{
    if (argc < 4) return 2;
    halting_call = argv[1];
    halting_rank = rank_number(argv[2]);
    deadline_s = rank_number(argv[3]);
    stops_launcher = argc > 4;
    oct_comm *comm = rank_open(deadline_s);
    printf("met\n");
    fflush(stdout);
    oct_comm_close(&comm);
    printf("ended\n");
    return 0;
}
