/* The one door to OpenBLAS: row-major single-precision matrix products on one thread.
 *
 * Its bits depend on the CPU's kernel family (oct_blas_core) and on the shape of the call, so no layer
 * calls it; it is the independent judge of our own products, in tests and in `octet bench kernels`.
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
void oct_sgemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
               const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
               int64_t ldc);
