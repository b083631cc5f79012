/* glibc chooses another exp, log, pow, sin, cos, tanh, erf on processors without FMA, and of some arguments their doubles
 * differ in the last bit. Whatever of them reaches a bit of a run is rounded to a float first, where 20 million
 * arguments of each function showed no difference; a double that was kept would differ here within a few steps. */
#include "tests/launch/small_data.h"

TestSuite(math_library, .init = enter_with_data, .fini = leave_folder, .timeout = 200);

#define PLAIN "GLIBC_TUNABLES=glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2 "

/* Where the processor has no FMA, or the C library no such choice, there is nothing to compare. */
static bool differs(void)
{
    static const char values[] = "awk 'BEGIN { for (i = 1; i < 50000; i++) printf \"%.17g \", "
                                 "exp(i / 1711) }' | cksum";
    char compare[512];
    snprintf(compare, sizeof compare, "test \"$(%s)\" != \"$(export " PLAIN "; %s)\"", values,
             values);
    return system(compare) == 0;
}

static void check(const char *keys)
{
    char command[1024];
    snprintf(command, sizeof command,
             "rm -rf a b; for o in a b; do [ $o = a ] || export " PLAIN "; " OCT_PROGRAM
             " train r.yaml output=$o %s >log 2>&1 || { cat log; exit 1; }; done; "
             "for f in $(cd a && ls checkpoints/*.h5 model.int8.h5 layers.json); do "
             "cmp a/$f b/$f || exit 1; done",
             keys);
    must(command);
}

Test(math_library, another_choice_of_instructions_changes_no_bit_of_a_run)
{
    if (!differs()) cr_skip_test("exp, log and sin do not depend on instructions here");
    check("optimizer.kind=adamw float.schedule=cosine qat.schedule=one_cycle data.mixup=0.2 "
          "loss.label_smoothing=0.1 ema.decay=0.9 evaluate.best=top1");
    check("optimizer.kind=lamb float.schedule=cosine_restarts qat.schedule=polynomial "
          "loss.kind=bce seed=3");
}
