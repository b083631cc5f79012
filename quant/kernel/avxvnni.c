/* AVX-VNNI kernels: the VEX encoding of vpdpbusd, which machines without AVX-512 have. */
#include "quant/kernel/kernel.h"

#define VNNI256_TABLE oct_kernel_avxvnni
#define VNNI256_MADD _mm256_dpbusd_avx_epi32
#include "quant/kernel/vnni256.h"
