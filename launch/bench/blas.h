/* The one door to OpenBLAS: row-major single-precision matrix products on one thread.
 *
 * Its bits depend on the CPU's kernel family (oct_blas_core) and on the shape of the call, so no layer
 * calls it: `octet bench kernels` times it beside our own products.
 */
#pragma once

#include "core/base/status.h"

#include <stdint.h>

/* Loads OpenBLAS, with one thread: before the others, from one thread; harmless again. OCT_RESOURCE
 * where it is not installed. */
oct_status oct_blas_init(void) OCT_NODISCARD;
/* Kernel family that OpenBLAS chose, such as "SkylakeX". */
const char *oct_blas_core(void);

/* c (m, n) = alpha * op(a) (m, k) * op(b) (k, n) + beta * c, where op transposes if asked. lda, ldb,
 * ldc: floats between the rows as stored. beta 0 does not read c. */
typedef struct oct_sgemm_call {
    bool trans_a, trans_b;
    int64_t m, n, k;
    float alpha, beta;
    const float *a, *b;
    float *c;
    int64_t lda, ldb, ldc;
} oct_sgemm_call;

void oct_sgemm(const oct_sgemm_call *call);
