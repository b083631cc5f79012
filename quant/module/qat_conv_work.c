/* Passes over the accumulators of a call; see the header. */
#include "quant/module/qat_conv_impl.h"

#include "core/base/whole.h"

#include <omp.h>

/* Terms of a sum from which on holding is the cheaper way: an accumulator's way to memory and back
 * costs as much as so many multiplications. */
enum { HELD_DEPTH = 200, ALIGN = 64 };

static bool holds(const oct_qat_conv *m, const oct_conv_shape *s)
{
    if (m->hold != OCT_HOLD_BY_SHAPE) return m->hold == OCT_HOLD_ALWAYS;
    return oct_conv_depth(s) >= HELD_DEPTH;
}

static int64_t acc_bytes(const oct_work *w)
{
    return w->x->dtype == OCT_U16 ? 8 : 4;
}

bool oct_work_begin(oct_context *cx, const oct_qat_conv *m, const oct_conv_shape *s,
                    const oct_tensor *x, const int8_t *codes, bool more, oct_work *w)
{
    const oct_kernel *kernel = oct_kernel_here();
    const int64_t numel = oct_leaves_local_samples(&cx->leaves) * oct_conv_out_numel(s);
    *w = (oct_work){.shape = *s, .x = x};
    w->scratch_bytes = oct_round_up(oct_qconv_scratch_bytes(kernel, s, x->q), ALIGN);
    w->ready = oct_scratch(cx, (size_t)oct_qconv_ready_bytes(kernel, s, x->q));
    w->scratch = oct_scratch(cx, (size_t)(w->scratch_bytes * omp_get_max_threads()));
    if (more && holds(m, s)) w->held = oct_scratch(cx, (size_t)(numel * acc_bytes(w)) + ALIGN);
    if (cx->status == OCT_OK) oct_qconv_ready(kernel, s, x->q, codes, w->ready);
    return cx->status == OCT_OK;
}

void oct_work_end(oct_context *cx, oct_work *w)
{
    oct_scratch_end(cx, w->held);
    oct_scratch_end(cx, w->scratch);
    oct_scratch_end(cx, w->ready);
}

oct_qcodes oct_work_input(const oct_context *cx, const oct_work *w, int64_t i)
{
    return oct_qcodes_from(oct_qcodes_of(w->x),
                           oct_leaf_begin(&cx->leaves, i) * oct_conv_in_numel(&w->shape));
}

char *oct_work_held(const oct_context *cx, const oct_work *w, int64_t i)
{
    return w->held + oct_leaf_begin(&cx->leaves, i) * oct_conv_out_numel(&w->shape) * acc_bytes(w);
}

void *oct_work_scratch(const oct_work *w)
{
    return w->scratch + omp_get_thread_num() * w->scratch_bytes;
}

/* all: where the accumulators of the leaf stay, or NULL. */
static void compute(const oct_context *cx, const oct_work *w, int64_t i, void *all,
                    oct_acc_visit *visit, void *args)
{
    oct_qconv_visit(oct_kernel_here(), &w->shape, oct_leaf_size(&cx->leaves, i),
                    oct_work_input(cx, w, i), w->ready, all, visit, args, oct_work_scratch(w));
}

void oct_work_first(const oct_context *cx, const oct_work *w, int64_t i, oct_acc_visit *visit,
                    void *args)
{
    if (w->held || visit) compute(cx, w, i, w->held ? oct_work_held(cx, w, i) : NULL, visit, args);
}

void oct_work_again(const oct_context *cx, const oct_work *w, int64_t i, oct_acc_visit *visit,
                    void *args)
{
    if (w->held)
        visit(args, 0, oct_leaf_size(&cx->leaves, i) * w->shape.out_h * w->shape.out_w,
              oct_work_held(cx, w, i));
    else
        compute(cx, w, i, NULL, visit, args);
}
