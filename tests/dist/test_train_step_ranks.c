/* Training by quant/train/train_step.h on ranks: the trained state has the same bytes on any number of them. */
#include "core/base/status.h"
#include "tests/support/mpirun.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* Runs the program on more and more ranks, their threads set by the environment, and compares its digest. */
static void check_on_ranks(const char *program, const int *ranks, size_t count, char digest[72])
{
    for (size_t i = 0; i < count; i++) {
        oct_process job = oct_mpirun(ranks[i], 60, program, NULL);
        oct_check_exit(job, 0);
        const char *said = strstr(job.out, "digest ");
        cr_assert(said != NULL, "%s", job.out);
        if (!digest[0]) memcpy(digest, said, 71);
        cr_assert(strncmp(said, digest, 71) == 0, "%d ranks: %s", ranks[i], job.out);
        oct_process_free(&job);
    }
}

Test(train_step, trained_state_does_not_depend_on_ranks, .timeout = 240)
{
    static const int ranks[] = {1, 2, 3, 4, 5};
    char digest[72] = "";
    check_on_ranks("rank_train_step", ranks, OCT_COUNT(ranks), digest);
    /* Two parts of an MPI program at once, while its other threads use MPI. */
    oct_process job = oct_mpirun(4, 60, "rank_train_step", "pairs", NULL);
    oct_check_exit(job, 0);
    cr_assert_eq(oct_process_said_times(&job, digest), 2, "%s and\n%s", digest, job.out);
    oct_process_free(&job);
}

Test(train_step, a_transformer_does_not_depend_on_ranks_or_threads, .timeout = 240)
{
    static const int ranks[] = {1, 2, 3};
    char digest[72] = "";
    check_on_ranks("rank_token_net", ranks, OCT_COUNT(ranks), digest);
    setenv("OMP_NUM_THREADS", "3", 1);
    setenv("OMP_WAIT_POLICY", "passive", 1); /* more threads than cores must not wait awake */
    check_on_ranks("rank_token_net", ranks, 2, digest);
}
