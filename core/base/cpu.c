/* Instruction sets, asked from the CPU once and narrowed by OCT_ISA. */
#include "core/base/cpu.h"

#include "core/base/text.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"ref", "avx2", "avx512vnni"};

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
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) set |= bit(OCT_ISA_AVX2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vnni"))
        set |= bit(OCT_ISA_AVX512VNNI);
#endif
    return set;
}

/* Each word allows its own set and those before it in the list. */
static bool allowed(const char *word, oct_isa_set *set)
{
    for (size_t i = 0; i < OCT_COUNT(names); i++) {
        if (strcmp(word, names[i]) != 0) continue;
        *set = (2u << i) - 1;
        return true;
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
    const char *near = oct_nearest(word, names, OCT_COUNT(names));
    return oct_fail(OCT_USAGE,
                    "OCT_ISA: \"%s\" is no instruction set%s%s; use ref, avx2 or avx512vnni", word,
                    near ? ", did you mean " : "", near ? near : "");
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
