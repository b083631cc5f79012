/* Batch norm in groups on ranks: the same bytes on any number of them, and three synchronizations a step where no group
 * crosses them. */
#include "core/base/leaves.h"
#include "core/base/status.h"
#include "tests/support/mpirun.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* Those of rank_norm_groups.c. */
enum { LEAVES = 11, NORMS = 4, MOST = 4 };

static bool crosses(int64_t group, int ranks)
{
    for (int r = 1; r < ranks; r++)
        if (LEAVES * r / ranks % group != 0) return true;
    return false;
}

static int64_t synchronizations_wanted(int64_t group, int ranks)
{
    return group > 0 && !crosses(group, ranks) ? 3 : 3 + 2 * NORMS;
}

Test(norm_groups, bits_and_synchronizations_on_ranks_and_threads, .timeout = 240)
{
    char digest[MOST + 1][65] = {""};
    /* Up to 6 ranks of 4 threads: those that wait must leave the cores to those that are waited for, as the threads of
     * `octet --ranks` do. Awake they take minutes where other work shares the machine. */
    setenv("OMP_WAIT_POLICY", "passive", 1);
    for (int ranks = 1; ranks <= 6; ranks++) {
        oct_process job = oct_mpirun(ranks, 60, "rank_norm_groups", NULL);
        int lines = 0;
        oct_check_exit(job, 0);
        for (char *at = strstr(job.out, "group "); at; at = strstr(at, "group "), lines++) {
            const int64_t group = strtoll(at + strlen("group "), &at, 10);
            cr_assert(group >= 0 && group <= MOST);
            const char *hex = at + 1;
            const int64_t in_float = strtoll(hex + 64, &at, 10), in_qat = strtoll(at, &at, 10);
            if (!digest[group][0]) memcpy(digest[group], hex, 64);
            cr_assert(strncmp(hex, digest[group], 64) == 0, "group %d on %d ranks: %s", (int)group,
                      ranks, job.out);
            cr_assert_eq(in_float, synchronizations_wanted(group, ranks), "%d ranks: %s", ranks,
                         job.out);
            cr_assert_eq(in_qat, synchronizations_wanted(group, ranks), "%d ranks: %s", ranks,
                         job.out);
        }
        cr_assert_eq(lines, 6, "%s", job.out);
        oct_process_free(&job);
    }
    cr_assert_str_neq(digest[0], digest[1]);
    cr_assert_str_neq(digest[1], digest[2]);
    cr_assert_str_neq(digest[2], digest[4]);
}
