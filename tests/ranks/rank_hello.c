/* Says who it is: "rank R of S, LIBRARY". Any argument: what the environment says instead, without
 * starting MPI. */
#include "tests/ranks/rank.h"

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) {
        int rank, size;
        bool launched = oct_launched(&rank, &size);
        printf("launched %d rank %d of %d\n", launched, rank, size);
        return 0;
    }
    oct_comm *comm = rank_open(20);
    printf("rank %d of %d, %s, host %s\n", oct_comm_rank(comm), oct_comm_size(comm),
           oct_comm_library(comm), oct_comm_host(comm)[0] ? "known" : "unknown");
    oct_comm_close(&comm);
    return 0;
}
