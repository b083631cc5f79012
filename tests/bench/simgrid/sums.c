/* Sums over ranks that are simulated: the own one and that of the MPI library, in simulated seconds.
 *     sums FLOATS LEAVES [own]
 * tests/bench/simgrid/run builds and starts it. */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "dist/comm_impl.h"
#include "tests/bench/simgrid/must.h"
#include "tests/bench/simgrid/simulated.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static double synchronized_at(const oct_comm *comm)
{
    int64_t nothing = 0;
    const oct_collective *all = oct_comm_collective(comm);
    MUST(all->max_i64(all, &nothing, 1));
    return MPI_Wtime();
}

int main(int argc, char **argv)
{
    oct_transport *transport;
    oct_comm *comm;
    float *x;
    int64_t n = 0, leaves = 0;
    if (argc < 3 || !oct_parse_i64(argv[1], &n) || !oct_parse_i64(argv[2], &leaves)) return 2;
    oct_sim_may_sleep(true);
    oct_process_own();
    MUST(oct_transport_mpi(&transport, NULL, 1e9));
    MUST(oct_comm_over(&comm, transport, 1e9));
    const oct_collective *all = oct_comm_collective(comm);
    const oct_leaves mine = oct_leaves_split(leaves, 1, all->rank, all->size);
    oct_subtree parts[OCT_MAX_PARTS];
    const int count = oct_leaves_parts(&mine, parts);
    MUST(all->rows_alloc(all, &x, (size_t)(count > 0 ? count : 1), (size_t)n * sizeof *x));
    double begin = synchronized_at(comm);
    MUST(all->sum_begin(all, &mine, x, n, n));
    MUST(all->sums_finish(all));
    const double own = synchronized_at(comm) - begin;
    if (all->rank == 0)
        printf("%d ranks, %d on a node: %.1f MB in %.3f ms", all->size, comm->state->node.ranks,
               4e-6 * (double)n, 1e3 * own);
    if (argc == 3) {
        begin = synchronized_at(comm);
        MUST(oct_comm_sum_native(comm, x, n));
        const double native = synchronized_at(comm) - begin;
        if (all->rank == 0)
            printf(", MPI_Allreduce in %.3f ms, ratio %.3f", 1e3 * native, own / native);
    }
    if (all->rank == 0) printf("\n");
    all->rows_free(all, &x);
    oct_comm_close(&comm);
    return 0;
}
