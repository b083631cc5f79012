/* The one door to OpenBLAS: products of matrices in single precision, and Cholesky's factorisation in double, on one
 * thread.
 *
 * The bits of both depend on the kernels that OpenBLAS chooses for the processor (oct_blas_name), and those of a product
 * on the shape of the call as well. So what calls them keeps the promise of equal bits by itself: float_blas.c makes
 * calls of one shape, and GPTQ factors on rank 0 alone.
 */
#pragma once

#include "core/base/status.h"

#include <stdint.h>

/* Loads OpenBLAS, with one thread, at the first call of either. Whether it is there; OCT_RESOURCE with the remedy where it
 * is not. */
bool oct_blas_found(void);
oct_status oct_blas_init(void);
/* Version and kernels of what is loaded, such as "OpenBLAS 0.3.21, SkylakeX". */
const char *oct_blas_name(void);

typedef struct oct_sgemm_call {
    bool trans_a, trans_b;
    int64_t m, n, k;
    float alpha, beta;
    const float *a, *b;
    float *c;
    int64_t lda, ldb, ldc;
} oct_sgemm_call;

/* c (m, n) = alpha * op(a) (m, k) * op(b) (k, n) + beta * c, row by row, where op transposes if asked. lda, ldb,
 * ldc: floats between the rows as stored. beta 0 does not read c. Call oct_blas_init first. Sizes and strides are at
 * most INT_MAX. */
void oct_sgemm(const oct_sgemm_call *call);

/* Replaces the lower triangle of a (n x n, row by row) by L with L L^T = a, by LAPACK's dpotrf; what is above the
 * diagonal is not touched. Loads OpenBLAS. OCT_NUMERIC when a is not positive definite. */
oct_status oct_cholesky(double *a, int64_t n);
