/* Which instruction sets this machine has. OCT_ISA narrows it at run time to the set it names and those
 * before it: ref, blas, avx2, avxvnni, avx512vnni, avx512bf16, amx, or on ARM ref, blas, neon, neondot,
 * neoni8mm (any other word, the empty one too, is an error at start). */
#pragma once

#include "core/base/status.h"

#include <fenv.h>

/* Every instruction set, once, with its word in OCT_ISA and its architecture; cpu.c finds out by has_<word>()
 * whether this machine has it. */
#define OCT_ISA_LIST(X)                                                                            \
    X(REF, ref, ANY)                                                                               \
    X(BLAS, blas, ANY) /* no instructions: OpenBLAS (core/kernel/blas.h), if it is installed */    \
    X(AVX2, avx2, X86) /* and FMA */                                                               \
    X(AVXVNNI, avxvnni, X86)       /* VNNI in the VEX encoding, for vectors of 256 bits */         \
    X(AVX512VNNI, avx512vnni, X86) /* F, BW, DQ, VL and VNNI */                                    \
    X(AVX512BF16, avx512bf16, X86) /* the same and BF16 */                                         \
    X(AMX, amx, X86)               /* the same and tiles of bytes and of bfloat16 */               \
    X(NEON, neon, ARM)                                                                             \
    X(NEONDOT, neondot, ARM)   /* NEON with the products of four bytes */                          \
    X(NEONI8MM, neoni8mm, ARM) /* NEON with those of eight bytes of two rows and two columns */

typedef enum oct_isa {
#define X(id, word, architecture) OCT_ISA_##id,
    OCT_ISA_LIST(X)
#undef X
        OCT_ISA_COUNT,
} oct_isa;

typedef unsigned oct_isa_set; /* bit per oct_isa; REF is always there */

/* CPUID narrowed by OCT_ISA; computed once. Where AMX is there and allowed, Linux is asked to let this process have it,
 * which is for good (cpu.c says what that changes). */
oct_isa_set oct_cpu_isa(void);
bool oct_isa_has(oct_isa_set set, oct_isa isa);
const char *oct_isa_name(oct_isa isa);
/* Names the last listed set of instructions in use; OpenBLAS is none. */
const char *oct_isa_best(void);
/* Checks OCT_ISA; call once at start. */
oct_status oct_cpu_check(void);
const char *oct_cpu_model(void); /* /proc/cpuinfo's model name, or "unknown" */

/* Rounds to nearest in this thread until oct_round_as_before, which puts back the rounding mode and the exception flags
 * of the program that called: what has bits to keep is computed between the two. */
void oct_round_to_nearest(fenv_t *before);
void oct_round_as_before(const fenv_t *before);
/* OCT_USAGE unless this thread rounds to nearest: what computes in threads that it does not begin needs it. */
oct_status oct_check_rounding(void);

/* Whether this process is a child, by fork, of the one that first asked: it has none of the threads that OpenMP made
 * there, and would wait for them for ever. */
bool oct_is_forked(void);

/* Baseline objects may carry faster copies of element-wise loops, chosen by the loader. Bits do not
 * depend on the copy: -ffp-contract=off, and no sum is split over lanes. Not under sanitizers,
 * which cannot run the loader's resolvers, nor with clang, whose resolvers of static functions clash. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__) ||       \
    defined(__clang__)
#define OCT_CLONES
#else
#define OCT_CLONES __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#endif

/* A function of a hot loop that is a part of each of its callers. */
#define OCT_INLINE static inline __attribute__((always_inline))
