#include "launch/evaluate/forward.h"

#include "core/autograd/context.h"
#include "core/base/int_math.h"
#include "core/nn/module_call.h"

#include <omp.h>

/* This is little beside what a training step takes, and holds many samples where they are small. */
enum { ACTIVATION_BYTES = 128 << 20 };

oct_status oct_forward_begin(oct_forward *f, oct_context *cx, oct_module *model)
{
    *f = (oct_forward){.cx = cx, .model = model};
    return oct_module_calls_only(model) ? oct_lifetimes_create(&f->lifetimes) : OCT_OK;
}

void oct_forward_end(oct_forward *f)
{
    oct_lifetimes_destroy(&f->lifetimes);
    *f = (oct_forward){0};
}

int64_t oct_forward_samples(const oct_forward *f, int64_t most)
{
    if (f->sample_bytes == 0) return oct_min_i64(1, most);
    return oct_min_i64(most,
                       oct_max_i64(ACTIVATION_BYTES / f->sample_bytes, omp_get_max_threads()));
}

static const oct_tensor *call_model(oct_forward *f, oct_leaves leaves, oct_shape shape, float *x)
{
    oct_context *cx = f->cx;
    cx->lifetimes = f->lifetimes;
    oct_context_begin(cx, leaves, false);
    const oct_tensor *y = oct_call(cx, f->model, oct_tensor_view(cx, OCT_F32, shape, x));
    cx->lifetimes = NULL;
    return y;
}

oct_status oct_forward_run(oct_forward *f, oct_leaves leaves, oct_shape shape, float *x,
                           const oct_tensor **y)
{
    *y = call_model(f, leaves, shape, x);
    const int64_t bytes = f->lifetimes ? oct_lifetimes_end(f->lifetimes, *y) : 0;
    if (bytes < 0) {
        oct_fail_clear();
        oct_lifetimes_destroy(&f->lifetimes);
        f->sample_bytes = 0;
        *y = call_model(f, leaves, shape, x);
    }
    OCT_TRY(oct_context_status(f->cx));
    const int64_t samples = oct_max_i64(1, oct_leaves_local_samples(&leaves));
    if (f->sample_bytes == 0)
        f->sample_bytes = (f->lifetimes ? bytes : (int64_t)oct_arena_peak(f->cx->arena)) / samples;
    f->sample_bytes = oct_max_i64(f->sample_bytes, 1);
    return OCT_OK;
}
