/* Passes over the accumulators of a call; see the header. */
#include "quant/module/conv/qat_conv_impl.h"

#include "core/base/whole.h"

#include <omp.h>
#include <string.h>

/* Terms of a sum from which on holding is the cheaper way: an accumulator's way to memory and back
 * costs as much as so many multiplications. KEPT: from which on accumulators stay from the forward to the
 * backward, too. Layers of so many terms have small planes, and what they keep is given back before the
 * gradients of the large planes need their room. */
enum { HELD_DEPTH = 200, KEPT_DEPTH = 2000, ALIGN = 64 };

static bool reaches(const oct_qat_conv *m, const oct_conv_shape *s, int64_t depth)
{
    if (m->hold != OCT_HOLD_BY_SHAPE) return m->hold == OCT_HOLD_ALWAYS;
    return oct_conv_depth(s) >= depth;
}

static int64_t acc_bytes(const oct_tensor *x)
{
    return x->dtype == OCT_U16 ? 8 : 4;
}

static size_t held_bytes(const oct_context *cx, const oct_conv_shape *s, const oct_tensor *x)
{
    const int64_t numel = oct_leaves_local_samples(&cx->leaves) * oct_conv_out_numel(s);
    return (size_t)(numel * acc_bytes(x)) + ALIGN;
}

char *oct_accumulators_save(oct_context *cx, const oct_qat_conv *m, const oct_conv_shape *s,
                            const oct_tensor *x)
{
    return reaches(m, s, KEPT_DEPTH) ? oct_save(cx, held_bytes(cx, s, x)) : NULL;
}

bool oct_accumulators_begin(oct_context *cx, const oct_qat_conv *m, const oct_qat_saved *sv,
                            const oct_tensor *x, bool more, oct_accumulators *w)
{
    const oct_kernel *kernel = oct_kernel_here();
    const oct_conv_shape *s = &sv->shape;
    *w = (oct_accumulators){.shape = *s, .x = x, .held = sv->acc, .kept = sv->acc};
    w->scratch_bytes = oct_round_up(oct_qconv_scratch_bytes(kernel, s, x->q), ALIGN);
    w->ready = oct_scratch(cx, (size_t)oct_qconv_ready_bytes(kernel, s, x->q));
    w->scratch = oct_scratch(cx, (size_t)(w->scratch_bytes * omp_get_max_threads()));
    if (more && !w->kept && reaches(m, s, HELD_DEPTH))
        w->held = oct_scratch(cx, held_bytes(cx, s, x));
    if (cx->status == OCT_OK) oct_qconv_ready(kernel, s, x->q, sv->codes, w->ready);
    return cx->status == OCT_OK;
}

bool oct_accumulators_resume(oct_context *cx, const oct_qat_conv *m, const oct_qat_saved *sv,
                             const oct_tensor *x, oct_accumulators *w)
{
    if (!sv->acc) return oct_accumulators_begin(cx, m, sv, x, sv->live, w);
    *w =
        (oct_accumulators){.shape = sv->shape, .x = x, .held = sv->acc, .kept = true, .made = true};
    return true;
}

void oct_accumulators_end(oct_context *cx, oct_accumulators *w)
{
    if (!w->kept) oct_scratch_end(cx, w->held);
    oct_scratch_end(cx, w->scratch);
    oct_scratch_end(cx, w->ready);
}

oct_qcodes oct_accumulators_input(const oct_context *cx, const oct_accumulators *w, int64_t i)
{
    return oct_qcodes_from(oct_qcodes_of(w->x),
                           oct_leaf_begin(&cx->leaves, i) * oct_conv_in_numel(&w->shape));
}

char *oct_accumulators_of_leaf(const oct_context *cx, const oct_accumulators *w, int64_t i)
{
    return w->held +
           oct_leaf_begin(&cx->leaves, i) * oct_conv_out_numel(&w->shape) * acc_bytes(w->x);
}

void *oct_accumulators_scratch(const oct_accumulators *w)
{
    return w->scratch + omp_get_thread_num() * w->scratch_bytes;
}

/* all: where the accumulators of the leaf stay, or NULL. */
static void compute(const oct_context *cx, const oct_accumulators *w, int64_t i, void *all,
                    oct_acc_visit *visit, void *args)
{
    oct_qconv_visit(oct_kernel_here(), &w->shape, oct_leaf_size(&cx->leaves, i),
                    oct_accumulators_input(cx, w, i), w->ready, all, visit, args,
                    oct_accumulators_scratch(w));
}

void oct_accumulators_compute(const oct_context *cx, const oct_accumulators *w, int64_t i,
                              oct_acc_visit *visit, void *args)
{
    if (w->made)
        oct_accumulators_revisit(cx, w, i, visit, args);
    else if (w->held || visit)
        compute(cx, w, i, w->held ? oct_accumulators_of_leaf(cx, w, i) : NULL, visit, args);
}

void oct_accumulators_revisit(const oct_context *cx, const oct_accumulators *w, int64_t i,
                              oct_acc_visit *visit, void *args)
{
    if (w->held)
        visit(args, 0, oct_leaf_size(&cx->leaves, i) * w->shape.out_h * w->shape.out_w,
              oct_accumulators_of_leaf(cx, w, i));
    else
        compute(cx, w, i, NULL, visit, args);
}

/* Accumulators become values. */
typedef struct finisher {
    const oct_epilogue *f; /* of the leaf, with a float output */
    int64_t n, acc_bytes;
    const bool *dead;
    oct_value_visit *visit;
    void *args;
    float *values;
    char *acc; /* a copy of those of a part, where channels are dead */
} finisher;

static const void *without_dead(const finisher *j, const char *acc, int64_t rows)
{
    if (!j->dead) return acc;
    memcpy(j->acc, acc, (size_t)(rows * j->n * j->acc_bytes));
    for (int64_t o = 0; o < j->n; o++)
        for (int64_t i = 0; j->dead[o] && i < rows; i++)
            memset(j->acc + (i * j->n + o) * j->acc_bytes, 0, (size_t)j->acc_bytes);
    return j->acc;
}

static void finish_block(void *args, int64_t position, int64_t positions, void *acc)
{
    const finisher *j = args;
    for (int64_t row = 0, rows; row < positions; row += rows) {
        rows = oct_min_i64(oct_part_rows(j->n), positions - row);
        const int64_t first = (position + row) * j->n;
        const oct_epilogue part = oct_epilogue_at(j->f, first);
        const char *from = (const char *)acc + row * j->n * j->acc_bytes;
        oct_epilogue_rows(oct_kernel_here(), &part, rows, j->n, without_dead(j, from, rows),
                          j->values, NULL, NULL);
        j->visit(j->args, first, rows * j->n, j->values);
    }
}

int64_t oct_accumulators_values_bytes(int64_t channels)
{
    return oct_round_up(oct_part_floats(channels) * (int64_t)(sizeof(float) + sizeof(int64_t)),
                        ALIGN);
}

void oct_accumulators_values(const oct_context *cx, const oct_accumulators *w,
                             oct_accumulators_pass *pass, const oct_epilogue *f, const bool *dead,
                             int64_t i, oct_value_visit *visit, void *args, void *scratch)
{
    const int64_t n = w->shape.out_c;
    oct_epilogue leaf =
        oct_epilogue_at(f, oct_leaf_begin(&cx->leaves, i) * oct_conv_out_numel(&w->shape));
    leaf.out = OCT_F32;
    char *copy = scratch;
    finisher j = {.f = &leaf,
                  .n = n,
                  .acc_bytes = acc_bytes(w->x),
                  .dead = dead,
                  .visit = visit,
                  .args = args,
                  .acc = copy,
                  .values = (float *)(void *)(copy + oct_part_floats(n) * 8)};
    pass(cx, w, i, finish_block, &j);
}
