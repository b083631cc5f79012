/* Instruction sets, asked from the CPU once and narrowed by OCT_ISA. */
#include "core/base/cpu.h"

#include "core/base/registry.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ON_ANY(...) __VA_ARGS__
#define ON_X86(...)
#define ON_ARM(...)
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#undef ON_X86
#define ON_X86(...) __VA_ARGS__
#elif defined(__aarch64__)
#include <sys/auxv.h>
#undef ON_ARM
#define ON_ARM(...) __VA_ARGS__
#endif

static bool has_ref(void)
{
    return true;
}

static bool has_blas(void)
{
    return true;
}

#if defined(__x86_64__)
/* __builtin_cpu_supports asks whether the system saves the registers, too. */
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

/* Asks CPUID itself, as not every compiler has a word for it: leaf 7.1, EAX bit 4, of a machine whose AVX2 may
 * be used. */
static bool has_avxvnni(void)
{
    unsigned a = 0, b, c, d;
    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

static bool has_avx512vnni(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}

static bool has_avx512bf16(void)
{
    return has_avx512vnni() && __builtin_cpu_supports("avx512bf16");
}

/* Asks CPUID for the tiles and their products of bytes and of bfloat16 (leaf 7, EDX bits 24, 25 and 22), XCR0 whether
 * the system saves them, and Linux to let this process have them, without which the first such instruction ends it.
 * Linux gives them to the process and its children until they end, and there is no other way. It changes one thing for
 * a program that Octet is a guest of: a stack for signals that it makes later by sigaltstack needs room for the tiles,
 * as sysconf(_SC_SIGSTKSZ) says; if one of its threads has a smaller one already, Linux refuses, and there is no AMX.
 * OCT_ISA=avx512bf16 does not ask. */
static bool has_amx(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* of arch_prctl; a component of XCR0 */
    const unsigned units = 1U << 22 | 1U << 24 | 1U << 25, saved = 3U << 17;
    unsigned a, b, c, d = 0, xcr0 = 0;
    if (!has_avx512bf16() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & units) != units)
        return false;
    __asm__("xgetbv" : "=a"(xcr0), "=d"(d) : "c"(0));
    return (xcr0 & saved) == saved && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#elif defined(__aarch64__)
static bool has_neon(void)
{
    return true;
}

static bool has_neondot(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}

static bool has_neoni8mm(void)
{
    return (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
}
#endif

typedef struct isa_row {
    const char *name;
    bool (*present)(void); /* NULL: another architecture's */
} isa_row;

static const isa_row rows[OCT_ISA_COUNT] = {
#define X(id, word, architecture) {.name = #word, ON_##architecture(.present = has_##word)},
    OCT_ISA_LIST(X)
#undef X
};

/* The words of OCT_ISA: what a machine of this architecture may have, in order. */
static const void *const listed[] = {
#define X(id, word, architecture) ON_##architecture(&rows[OCT_ISA_##id], )
    OCT_ISA_LIST(X)
#undef X
};
static const oct_registry words = OCT_REGISTRY("an instruction set", listed);

static pthread_once_t isa_once = PTHREAD_ONCE_INIT, model_once = PTHREAD_ONCE_INIT;
static oct_isa_set isa;
static char model[128] = "unknown";

static oct_isa_set isa_bit(oct_isa which)
{
    return 1u << which;
}

/* *set: the instruction set that `word` of OCT_ISA names and those listed before it; false: the word is unknown. */
static bool isa_up_to(const char *word, oct_isa_set *set)
{
    const size_t index = oct_registry_index(&words, word);
    *set = 0;
    for (size_t i = 0; i <= index && i < OCT_COUNT(listed); i++)
        *set |= isa_bit((oct_isa)((const isa_row *)listed[i] - rows));
    return index < OCT_COUNT(listed);
}

/* Sets `isa` to the instruction sets of this machine that OCT_ISA allows. */
static void find_isa(void)
{
    const char *word = getenv("OCT_ISA");
    oct_isa_set set;
    if (!word || !isa_up_to(word, &set)) set = ~0U;
#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
    for (unsigned i = 0; i < OCT_ISA_COUNT; i++)
        if (oct_isa_has(set, (oct_isa)i) && rows[i].present && rows[i].present())
            isa |= isa_bit((oct_isa)i);
}

oct_isa_set oct_cpu_isa(void)
{
    pthread_once(&isa_once, find_isa);
    return isa;
}

bool oct_isa_has(oct_isa_set set, oct_isa which)
{
    return (set & isa_bit(which)) != 0;
}

const char *oct_isa_name(oct_isa which)
{
    return rows[which].name;
}

const char *oct_isa_best(void)
{
    int best = OCT_ISA_COUNT - 1;
    while (best == OCT_ISA_BLAS || !oct_isa_has(oct_cpu_isa(), (oct_isa)best))
        best--;
    return oct_isa_name((oct_isa)best);
}

oct_status oct_cpu_check(void)
{
    const char *word = getenv("OCT_ISA");
    oct_isa_set set;
    if (!word || isa_up_to(word, &set)) return OCT_OK;
    char choice[OCT_REGISTRY_CHOICE_BYTES];
    const char *near = oct_registry_nearest(&words, word);
    return oct_fail(OCT_USAGE, "OCT_ISA: \"%s\" is no instruction set%s%s; use %s", word,
                    near ? ", did you mean " : "", near ? near : "",
                    oct_registry_choice(&words, " or ", choice));
}

/* Reads the first "model name : ..." of /proc/cpuinfo into `model`. */
static void read_cpu_model(void)
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
    pthread_once(&model_once, read_cpu_model);
    return model;
}

bool oct_is_forked(void)
{
    static _Atomic pid_t first;
    const pid_t here = getpid();
    pid_t found = 0;
    return !atomic_compare_exchange_strong(&first, &found, here) && found != here;
}

void oct_round_to_nearest(fenv_t *before)
{
    fegetenv(before);
    fesetround(FE_TONEAREST);
}

void oct_round_as_before(const fenv_t *before)
{
    fesetenv(before);
}

/* By arithmetic: fegetround reads one of the two control words of an x86 processor, and programs set the other one. */
oct_status oct_check_rounding(void)
{
    const volatile float one = 1, little = 0x1p-30F;
    OCT_CHECK(one + little == one && one - little == one, OCT_USAGE,
              "this thread does not round to nearest, so training would have other bits; call "
              "fesetround(FE_TONEAREST) first");
    return OCT_OK;
}
