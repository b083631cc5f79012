/* OpenBLAS is loaded when it is first asked for.
 *
 * No program of Octet is linked against it: it starts a thread for each core before main, and where
 * memory is limited these threads keep a process from ending. It gets one thread here, before it is
 * loaded, also because its results change with their number; our threads work on different leaves.
 */
#include "launch/bench/blas.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* These are the values of cblas.h, which is not needed to build. */
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

static struct {
    pthread_once_t once;
    char reason[256]; /* why it is not there */
    char *(*core_name)(void);
    void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                  const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
} blas = {.once = PTHREAD_ONCE_INIT};

static void load(void)
{
    static const char name[] = "libopenblas.so.0";
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    void *core_name = library ? dlsym(library, "openblas_get_corename") : NULL;
    void *sgemm = core_name ? dlsym(library, "cblas_sgemm") : NULL;
    const char *reason = sgemm ? NULL : dlerror();
    if (!sgemm) {
        strncpy(blas.reason, reason ? reason : name, sizeof(blas.reason) - 1);
        return;
    }
    memcpy(&blas.core_name, &core_name, sizeof(core_name));
    memcpy(&blas.sgemm, &sgemm, sizeof(sgemm));
}

oct_status oct_blas_init(void)
{
    pthread_once(&blas.once, load);
    OCT_CHECK(blas.sgemm, OCT_RESOURCE, "OpenBLAS cannot be loaded: %s", blas.reason);
    return OCT_OK;
}

const char *oct_blas_core(void)
{
    OCT_ASSERT(blas.core_name);
    return blas.core_name();
}

static int to_blas(int64_t value)
{
    OCT_ASSERT(value >= 0 && value <= INT_MAX);
    return (int)value;
}

void oct_sgemm(const oct_sgemm_call *call)
{
    const oct_sgemm_call s = *call;
    OCT_ASSERT(blas.sgemm);
    if (s.m == 0 || s.n == 0) return;
    blas.sgemm(ROW_MAJOR, s.trans_a ? TRANS : NO_TRANS, s.trans_b ? TRANS : NO_TRANS, to_blas(s.m),
               to_blas(s.n), to_blas(s.k), s.alpha, s.a, to_blas(s.lda), s.b, to_blas(s.ldb),
               s.beta, s.c, to_blas(s.ldc));
}
