/* OpenBLAS is loaded when it is first asked for.
 *
 * No program of Octet is linked against it: it starts a thread for each core before main, and where
 * memory is limited these threads keep a process from ending. It gets one thread here, since its
 * results change with their number; our threads work on different leaves. The program octet says so
 * in the environment as well, so that others are not even started; a library leaves that alone.
 */
#include "core/kernel/blas.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* These are the values of cblas.h, which is not needed to build. */
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

static struct {
    pthread_once_t once;
    char reason[256]; /* why it is not there; otherwise empty */
    char name[64];
    char *(*config)(void), *(*core_name)(void);
    void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                  const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
    void (*potrf)(const char *triangle, const int *n, double *a, const int *lda, int *info,
                  size_t triangle_length);
} blas = {.once = PTHREAD_ONCE_INIT};

/* Sets the function pointer at `function`; blas.reason keeps why the first one that is missing could not be found. */
static void find_function(void *library, const char *name, void *function)
{
    void *found = library ? dlsym(library, name) : NULL;
    memcpy(function, &found, sizeof found);
    if (found || blas.reason[0]) return;
    const char *reason = dlerror();
    snprintf(blas.reason, sizeof blas.reason, "%s", reason ? reason : name);
}

/* Loads OpenBLAS, with one thread since its callers are threads; where that fails, blas.reason says why. */
static void load_library(void)
{
    void (*set_threads)(int) = NULL;
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    find_function(library, "openblas_get_config", &blas.config);
    find_function(library, "openblas_get_corename", &blas.core_name);
    find_function(library, "cblas_sgemm", &blas.sgemm);
    find_function(library, "dpotrf_", &blas.potrf);
    find_function(library, "openblas_set_num_threads", &set_threads);
    if (blas.reason[0]) return;
    const int threads = omp_get_max_threads();
    set_threads(1);
    omp_set_num_threads(threads); /* which an OpenBLAS of OpenMP sets, too */
    char product[16] = "OpenBLAS", version[16] = "";
    sscanf(blas.config(), "%15s %15s", product, version); /* and options of its build */
    snprintf(blas.name, sizeof blas.name, "%s %s, %s", product, version, blas.core_name());
}

bool oct_blas_found(void)
{
    pthread_once(&blas.once, load_library);
    return !blas.reason[0];
}

oct_status oct_blas_init(void)
{
    OCT_CHECK(oct_blas_found(), OCT_RESOURCE,
              "OpenBLAS cannot be loaded: %s; install it (Debian: libopenblas0)", blas.reason);
    return OCT_OK;
}

const char *oct_blas_name(void)
{
    OCT_ASSERT(blas.name[0]);
    return blas.name;
}

static int blas_int(int64_t value)
{
    OCT_ASSERT(value >= 0 && value <= INT_MAX);
    return (int)value;
}

void oct_sgemm(const oct_sgemm_call *call)
{
    const oct_sgemm_call s = *call;
    OCT_ASSERT(blas.sgemm);
    if (s.m == 0 || s.n == 0) return;
    blas.sgemm(ROW_MAJOR, s.trans_a ? TRANS : NO_TRANS, s.trans_b ? TRANS : NO_TRANS, blas_int(s.m),
               blas_int(s.n), blas_int(s.k), s.alpha, s.a, blas_int(s.lda), s.b, blas_int(s.ldb),
               s.beta, s.c, blas_int(s.ldc));
}

oct_status oct_cholesky(double *a, int64_t n)
{
    const int size = blas_int(n), stride = size > 0 ? size : 1;
    int failed = 0; /* a pivot, counted from 1 */
    OCT_TRY(oct_blas_init());
    /* LAPACK has columns one after the other, so our lower triangle is its upper one. */
    blas.potrf("U", &size, a, &stride, &failed, 1);
    for (int k = 0; k < size; k++)
        OCT_CHECK(k + 1 != failed && isfinite(a[(int64_t)k * (n + 1)]), OCT_NUMERIC,
                  "a matrix of %d columns is not positive definite: pivot %d is %g", size, k,
                  a[(int64_t)k * (n + 1)]);
    return OCT_OK;
}
