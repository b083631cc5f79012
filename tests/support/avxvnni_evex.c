/* The kernels for AVX-VNNI from the same instruction in its EVEX encoding: machines with AVX-512 VNNI often
 * lack the other one, and could not test them. */
#include "quant/kernel/kernel.h"

extern const oct_kernel oct_kernel_avxvnni_evex;

#define VNNI256_TABLE oct_kernel_avxvnni_evex
#define VNNI256_MADD _mm256_dpbusd_epi32
#include "quant/kernel/vnni256.h"
