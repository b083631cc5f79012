/* OpenBLAS behind one function. The library keeps its threads to itself unless told otherwise, and
 * its results change with their number, so it gets one; our threads work on different leaves. */
#include "core/kernel/blas.h"

#include "core/base/status.h"

#include <cblas.h>
#include <limits.h>
#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void set_one_thread(void)
{
    openblas_set_num_threads(1);
}

void oct_blas_init(void)
{
    pthread_once(&once, set_one_thread);
}

const char *oct_blas_core(void)
{
    return openblas_get_corename();
}

static blasint to_blas(int64_t value)
{
    OCT_ASSERT(value >= 0 && value <= INT_MAX);
    return (blasint)value;
}

void oct_sgemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
               const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
               int64_t ldc)
{
    oct_blas_init();
    if (m == 0 || n == 0) return;
    cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans,
                trans_b ? CblasTrans : CblasNoTrans, to_blas(m), to_blas(n), to_blas(k), alpha, a,
                to_blas(lda), b, to_blas(ldb), beta, c, to_blas(ldc));
}
