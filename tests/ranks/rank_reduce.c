/* tree_sum on any number of ranks against the definition. Prints "equal" from rank 0. */
#include "tests/ranks/sums.h"

int main(void)
{
    oct_comm *comm = rank_open(20);
    check_sums(comm, 20, 1);
    if (oct_comm_rank(comm) == 0) printf("equal on %d ranks\n", oct_comm_size(comm));
    oct_comm_close(&comm);
    return 0;
}
