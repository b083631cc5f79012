/* Instruction sets: REF is always there, OCT_ISA narrows, unknown words are refused. */
#include "core/base/cpu.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

Test(cpu, the_reference_is_always_there)
{
    unsetenv("OCT_ISA");
    cr_assert(oct_isa_has(oct_cpu_isa(), OCT_ISA_REF));
    cr_assert_eq(oct_cpu_check(), OCT_OK);
    cr_assert_gt(strlen(oct_cpu_model()), 0);
}

Test(cpu, the_environment_narrows_to_the_reference)
{
    setenv("OCT_ISA", "ref", 1);
    cr_assert_eq(oct_cpu_check(), OCT_OK);
    cr_assert_eq(oct_cpu_isa(), 1u << OCT_ISA_REF);
}

#if defined(__x86_64__)
Test(cpu, the_environment_narrows_to_avx2)
{
    setenv("OCT_ISA", "avx2", 1);
    cr_assert_eq(oct_cpu_check(), OCT_OK);
    for (int isa = OCT_ISA_AVX2 + 1; isa < OCT_ISA_COUNT; isa++)
        cr_assert_not(oct_isa_has(oct_cpu_isa(), (oct_isa)isa), "%s", oct_isa_name((oct_isa)isa));
    cr_assert_eq(oct_isa_has(oct_cpu_isa(), OCT_ISA_AVX2),
                 __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
}

Test(cpu, bfloat16_is_left_out_of_what_avx512vnni_allows)
{
    setenv("OCT_ISA", "avx512vnni", 1);
    cr_assert_eq(oct_cpu_check(), OCT_OK);
    cr_assert_not(oct_isa_has(oct_cpu_isa(), OCT_ISA_AVX512BF16));
    cr_assert_eq(oct_isa_has(oct_cpu_isa(), OCT_ISA_AVX512VNNI),
                 __builtin_cpu_supports("avx512vnni") != 0);
}

/* Linux answers which units a process may use (ARCH_GET_XCOMP_PERM); bit 18 are the tiles of AMX. */
static bool may_use_tiles(void)
{
    uint64_t units = 0;
    return syscall(SYS_arch_prctl, 0x1022, &units) == 0 && (units >> 18 & 1);
}

Test(cpu, linux_is_asked_for_amx_only_where_it_is_allowed)
{
    setenv("OCT_ISA", "avx512bf16", 1);
    cr_assert_not(oct_isa_has(oct_cpu_isa(), OCT_ISA_AMX));
    cr_assert_not(may_use_tiles());
}

Test(cpu, amx_is_there_where_linux_lets_the_process_have_it)
{
    setenv("OCT_ISA", "amx", 1);
    cr_assert_eq(oct_cpu_check(), OCT_OK);
    cr_assert_eq(oct_isa_has(oct_cpu_isa(), OCT_ISA_AMX), may_use_tiles());
}

/* A thread whose stack for signals has no room for the tiles: Linux refuses, and the next best set is there. */
Test(cpu, a_process_that_linux_refuses_has_no_amx)
{
    static char small[4096];
    unsetenv("OCT_ISA");
    if (sigaltstack(&(stack_t){.ss_sp = small, .ss_size = sizeof small}, NULL) != 0)
        cr_skip_test("this Linux wants larger stacks for signals than 4 KiB");
    cr_assert_not(oct_isa_has(oct_cpu_isa(), OCT_ISA_AMX));
    cr_assert_not(may_use_tiles());
    cr_assert_eq(oct_isa_has(oct_cpu_isa(), OCT_ISA_AVX512VNNI),
                 __builtin_cpu_supports("avx512vnni") != 0);
}

Test(cpu, an_unknown_word_is_a_usage_error_with_the_choice)
{
    setenv("OCT_ISA", "avx3", 1);
    cr_assert_eq(oct_cpu_check(), OCT_USAGE);
    cr_assert_str_eq(oct_error_message(0),
                     "OCT_ISA: \"avx3\" is no instruction set, did you mean avx2; "
                     "use ref, blas, avx2, avxvnni, avx512vnni, avx512bf16 or amx");
    setenv("OCT_ISA", "", 1);
    cr_assert_eq(oct_cpu_check(), OCT_USAGE);
    cr_assert_str_eq(oct_error_message(0),
                     "OCT_ISA: \"\" is no instruction set; use ref, blas, avx2, "
                     "avxvnni, avx512vnni, avx512bf16 or amx");
}

Test(cpu, names_are_those_of_the_environment)
{
    static const oct_isa isas[] = {OCT_ISA_REF,     OCT_ISA_BLAS,       OCT_ISA_AVX2,
                                   OCT_ISA_AVXVNNI, OCT_ISA_AVX512VNNI, OCT_ISA_AVX512BF16,
                                   OCT_ISA_AMX};
    for (size_t i = 0; i < OCT_COUNT(isas); i++) {
        setenv("OCT_ISA", oct_isa_name(isas[i]), 1);
        cr_assert_eq(oct_cpu_check(), OCT_OK);
    }
}
#endif
