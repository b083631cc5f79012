/* Instruction sets, asked from the CPU once and narrowed by OCT_ISA. */
#include "core/base/cpu.h"

#include "core/base/text.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

static const char *const names[OCT_ISA_COUNT] = {
    [OCT_ISA_REF] = "ref",
    [OCT_ISA_AVX2] = "avx2",
    [OCT_ISA_AVXVNNI] = "avxvnni",
    [OCT_ISA_AVX512VNNI] = "avx512vnni",
    [OCT_ISA_AVX512BF16] = "avx512bf16",
    [OCT_ISA_NEON] = "neon",
    [OCT_ISA_NEONDOT] = "neondot",
};

/* The words of OCT_ISA: what a machine of this architecture may have, in order. */
#if defined(__aarch64__)
static const oct_isa words[] = {OCT_ISA_REF, OCT_ISA_NEON, OCT_ISA_NEONDOT};
#else
static const oct_isa words[] = {OCT_ISA_REF, OCT_ISA_AVX2, OCT_ISA_AVXVNNI, OCT_ISA_AVX512VNNI,
                                OCT_ISA_AVX512BF16};
#endif

static pthread_once_t isa_once = PTHREAD_ONCE_INIT, model_once = PTHREAD_ONCE_INIT;
static oct_isa_set isa;
static char model[128] = "unknown";

static oct_isa_set bit(oct_isa which)
{
    return 1u << which;
}

static oct_isa_set of_machine(void)
{
    oct_isa_set set = bit(OCT_ISA_REF);
#if defined(__x86_64__)
    /* __builtin_cpu_supports asks whether the system saves the registers, too; it has no word for
     * AVX-VNNI in every compiler: leaf 7.1, EAX bit 4, of a machine whose AVX2 may be used. */
    __builtin_cpu_init();
    unsigned a = 0, b, c, d;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        set |= bit(OCT_ISA_AVX2);
        if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1)) set |= bit(OCT_ISA_AVXVNNI);
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vnni")) {
        set |= bit(OCT_ISA_AVX512VNNI);
        if (__builtin_cpu_supports("avx512bf16")) set |= bit(OCT_ISA_AVX512BF16);
    }
#elif defined(__aarch64__)
    set |= bit(OCT_ISA_NEON);
    if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) set |= bit(OCT_ISA_NEONDOT);
#endif
    return set;
}

/* Each word allows its own set and those before it. */
static bool allowed(const char *word, oct_isa_set *set)
{
    *set = 0;
    for (size_t i = 0; i < OCT_COUNT(words); i++) {
        *set |= bit(words[i]);
        if (strcmp(word, names[words[i]]) == 0) return true;
    }
    return false;
}

static void find_isa(void)
{
    const char *word = getenv("OCT_ISA");
    oct_isa_set set;
    isa = of_machine();
    if (word && allowed(word, &set)) isa &= set;
}

oct_isa_set oct_cpu_isa(void)
{
    pthread_once(&isa_once, find_isa);
    return isa;
}

bool oct_isa_has(oct_isa_set set, oct_isa which)
{
    return (set & bit(which)) != 0;
}

const char *oct_isa_name(oct_isa which)
{
    return names[which];
}

oct_status oct_cpu_check(void)
{
    const char *word = getenv("OCT_ISA");
    oct_isa_set set;
    if (!word || allowed(word, &set)) return OCT_OK;
    const char *choice[OCT_COUNT(words)], *near;
    char list[96] = "";
    size_t used = 0;
    for (size_t i = 0; i < OCT_COUNT(words); i++) {
        const char *before = i == 0 ? "" : i + 1 < OCT_COUNT(words) ? ", " : " or ";
        choice[i] = names[words[i]];
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", before, choice[i]);
    }
    near = oct_nearest(word, choice, OCT_COUNT(words));
    return oct_fail(OCT_USAGE, "OCT_ISA: \"%s\" is no instruction set%s%s; use %s", word,
                    near ? ", did you mean " : "", near ? near : "", list);
}

static void find_model(void)
{
    FILE *info = fopen("/proc/cpuinfo", "re");
    if (!info) return;
    char line[256];
    while (fgets(line, sizeof line, info)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(model, sizeof model, "%.127s", colon + 1 + strspn(colon + 1, " "));
        break;
    }
    fclose(info);
}

const char *oct_cpu_model(void)
{
    pthread_once(&model_once, find_model);
    return model;
}
