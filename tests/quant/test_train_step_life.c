/* Networks of one's own, from the first float step to the integer program (train_step_life.c beside this):
 * every line of digests is the same on any instruction set and number of threads, and valgrind finds
 * nothing. */
#include "tests/support/process.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define LIFE OCT_BINARY_DIR "/tests/quant/train_step_life"

TestSuite(train_step_life, .timeout = 600);

static oct_process job_on(const char *isa, const char *threads)
{
    if (isa)
        cr_assert(setenv("OCT_ISA", isa, 1) == 0);
    else
        cr_assert(unsetenv("OCT_ISA") == 0);
    cr_assert(setenv("OMP_NUM_THREADS", threads, 1) == 0);
    cr_assert(setenv("OMP_WAIT_POLICY", "passive", 1) == 0);
    oct_process job = oct_process_run(300, LIFE, NULL);
    oct_check_exit(job, 0);
    return job;
}

/* All pairs with OCT_LONG=1; otherwise each instruction set and each number of threads once or twice. */
static bool is_wanted(size_t isa, size_t threads, size_t of)
{
    static const size_t with[] = {1, 0, 2, 1};
    return oct_test_is_long() || of == 1 || threads == with[isa] || (isa == 0 && threads == 2);
}

Test(train_step_life, has_the_same_bits_on_any_instruction_set_and_any_threads)
{
    static const char *const isas[] = {NULL, "avx512vnni", "avx2", "ref"};
#ifdef __SANITIZE_ADDRESS__ /* which looks at memory; the bits are those of other builds */
    static const char *const threads[] = {"2"};
#else
    static const char *const threads[] = {"1", "2", "3"};
#endif
    oct_process first = job_on(NULL, "1");
    cr_assert(strstr(first.out, "residual jit_strip pow2 at_prepare ") != NULL, "%s", first.out);
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++)
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
            if (!is_wanted(i, t, sizeof threads / sizeof *threads)) continue;
            oct_process job = job_on(isas[i], threads[t]);
            cr_assert_str_eq(job.out, first.out, "%s, %s threads", isas[i] ? isas[i] : "all",
                             threads[t]);
            oct_process_free(&job);
        }
    oct_process_free(&first);
}

/* The graph methods train the same bits, whatever is folded when. */
Test(train_step_life, has_the_same_bits_in_every_graph_method)
{
    oct_process job =
        oct_process_run(120, "/bin/bash", "-c",
                        LIFE " | grep -v ' eager ' | awk '{ print $1, $3, $4, $5 }' | sort -u | "
                             "awk '{ n[$1 $2 $3]++ } END { for (k in n) if (n[k] != 1) exit 1 }'",
                        NULL);
    oct_check_exit(job, 0);
    oct_process_free(&job);
}

static void check_valgrind(const char *network, const char *target, const char *fold)
{
    cr_assert(setenv("OCT_ISA", "avx2", 1) == 0); /* as far as valgrind goes */
    cr_assert(setenv("OMP_NUM_THREADS", "1", 1) == 0);
    oct_process job = oct_process_run(300, "valgrind", "-q", "--error-exitcode=9", LIFE, network,
                                      "jit", target, fold, NULL);
    oct_check_exit(job, 0);
    cr_assert(strstr(job.out, fold) != NULL, "%s", job.out);
    oct_process_free(&job);
}

#ifndef __SANITIZE_ADDRESS__ /* which does the same, and does not run below valgrind */
Test(train_step_life, is_clean_under_valgrind)
{
    if (oct_test_is_long()) check_valgrind("residual", "x86", "at_prepare");
    check_valgrind("residual", "x86", "later");
    check_valgrind("pair", "pow2", "at_prepare");
}
#endif
