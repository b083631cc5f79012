/* Training by quant/train_step.h on ranks: the trained state has the same bytes on any number of them. */
#include "core/base/status.h"
#include "tests/support/mpirun.h"

#include <criterion/criterion.h>
#include <string.h>

Test(train_step, trained_state_does_not_depend_on_ranks, .timeout = 240)
{
    static const int ranks[] = {1, 2, 3, 4, 5};
    char digest[72] = "";
    for (size_t i = 0; i < OCT_COUNT(ranks); i++) {
        oct_process job = oct_mpirun(ranks[i], 60, "rank_train_step", NULL);
        oct_check_exit(job, 0);
        const char *said = strstr(job.out, "digest ");
        cr_assert(said != NULL, "%s", job.out);
        if (i == 0) memcpy(digest, said, 71);
        cr_assert(strncmp(said, digest, 71) == 0, "%d ranks: %s", ranks[i], job.out);
        oct_process_free(&job);
    }
}
