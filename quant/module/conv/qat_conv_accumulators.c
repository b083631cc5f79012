/* Passes over the accumulators of a call; see the header. */
#include "quant/module/conv/conv_impl.h"

#include "core/base/mem.h"
#include "core/base/int_math.h"

#include <omp.h>
#include <string.h>

/* Sums of BUFFER_DEPTH terms and more are kept in a buffer: to compute one again costs more than to write it to memory
 * and read it. Sums of SAVED_DEPTH terms and more also stay from the forward to the backward: such layers have small
 * planes, and their memory is free again before the gradients of the large planes need it. Where codes are multiplied as
 * numbers of 16 bits, to compute one again costs twice as much. */
enum { BUFFER_DEPTH = 200, SAVED_DEPTH = 2000, SAVED_DEPTH_OF_PAIRS = 1000 };

/* Whether sums have at least this many terms, or the module says that they count as such. */
static bool is_as_deep_as(const oct_qat_saved *saved, int64_t depth)
{
    if (saved->layer.hold != OCT_HOLD_BY_SHAPE) return saved->layer.hold == OCT_HOLD_ALWAYS;
    return oct_conv_depth(&saved->plan.shape) >= depth;
}

static int64_t acc_bytes(const oct_accumulators *a)
{
    return a->plan->wide ? 8 : 4;
}

static size_t buffer_bytes(const oct_context *cx, const oct_qconv_plan *plan)
{
    const int64_t numel = oct_leaves_local_samples(&cx->leaves) * oct_conv_out_numel(&plan->shape);
    return (size_t)(numel * (plan->wide ? 8 : 4)) + OCT_CACHE_LINE;
}

bool oct_accumulators_begin(oct_context *cx, oct_qat_saved *saved, const oct_tensor *x,
                            bool several, bool keeps, oct_accumulators *a)
{
    const oct_qconv_plan *plan = &saved->plan;
    const bool kept = saved->acc != NULL;
    *a = (oct_accumulators){.plan = plan,
                            .x = x,
                            .buffer = saved->acc,
                            .saved = kept,
                            .computed = kept,
                            .shares_leaves =
                                oct_leaves_want_cut(&cx->leaves, omp_get_max_threads())};
    if (kept) return true;
    a->packed = oct_scratch(cx, (size_t)plan->packed_bytes);
    a->scratch = oct_scratch(cx, (size_t)(plan->scratch_bytes * omp_get_max_threads()));
    a->saved =
        keeps && is_as_deep_as(saved, plan->kernel->bytes.pairs_time == 1 ? SAVED_DEPTH_OF_PAIRS
                                                                          : SAVED_DEPTH);
    if (a->saved)
        a->buffer = saved->acc = oct_save(cx, buffer_bytes(cx, plan));
    else if (several && (a->shares_leaves || is_as_deep_as(saved, BUFFER_DEPTH)))
        a->buffer = oct_scratch(cx, buffer_bytes(cx, plan));
    if (cx->status != OCT_OK) return false;
    oct_qconv_pack(plan, saved->codes, a->packed);
    if (a->shares_leaves) oct_accumulators_fill(cx, a, false);
    return true;
}

void oct_accumulators_end(oct_context *cx, oct_accumulators *a)
{
    if (!a->saved) oct_scratch_end(cx, a->buffer);
    oct_scratch_end(cx, a->scratch);
    oct_scratch_end(cx, a->packed);
}

oct_cut oct_accumulators_cut_channels(const oct_context *cx, const oct_accumulators *a)
{
    const int64_t channels = a->plan->shape.out_c;
    oct_cut cut = oct_cut_columns(cx->leaves.local, channels, omp_get_max_threads());
    if (!a->shares_leaves) cut.step = channels;
    return cut;
}

oct_tile oct_whole_leaf(const oct_context *cx, int64_t i)
{
    return (oct_tile){.leaf = i, .end = oct_leaf_size(&cx->leaves, i)};
}

oct_cut oct_accumulators_cut(const oct_context *cx, const oct_accumulators *a, bool masks)
{
    int64_t step = 1;
    while (masks && step * oct_conv_out_numel(&a->plan->shape) % 8 != 0)
        step *= 2;
    return oct_cut_samples(&cx->leaves, step, omp_get_max_threads());
}

oct_qconv_pass oct_accumulators_of(const oct_context *cx, const oct_accumulators *a,
                                   const oct_tile *tile)
{
    const oct_conv_shape *s = &a->plan->shape;
    const int64_t first = oct_leaf_begin(&cx->leaves, tile->leaf) + tile->first;
    oct_qconv_pass pass = {
        .samples = tile->end - tile->first,
        .x = oct_qcodes_from(oct_qcodes_of(a->x), first * oct_conv_in_numel(s)).data,
        .packed = a->packed};
    if (a->buffer) pass.y = a->buffer + first * oct_conv_out_numel(s) * acc_bytes(a);
    return pass;
}

void *oct_accumulators_scratch(const oct_accumulators *a)
{
    return a->scratch + omp_get_thread_num() * a->plan->scratch_bytes;
}

void oct_accumulators_fill(oct_context *cx, oct_accumulators *a, bool wanted)
{
    if (wanted && !a->buffer) {
        a->buffer = oct_scratch(cx, buffer_bytes(cx, a->plan));
        a->computed = false;
    }
    if (!a->buffer || a->computed) return;
    const oct_cut cut = oct_accumulators_cut(cx, a, false);
#pragma omp parallel for schedule(static)
    for (int t = 0; t < cut.threads; t++) {
        for (oct_tile tile = oct_tile_begin(&cut, t); oct_tile_next(&cut, &tile);) {
            const oct_qconv_pass pass = oct_accumulators_of(cx, a, &tile);
            oct_qconv_accumulate(a->plan, &pass, NULL, NULL, oct_accumulators_scratch(a));
        }
    }
    a->computed = true;
}

void oct_accumulators_pass(const oct_context *cx, const oct_accumulators *a, const oct_tile *tile,
                           oct_acc_visit *visit, void *args)
{
    const oct_conv_shape *s = &a->plan->shape;
    const oct_qconv_pass pass = oct_accumulators_of(cx, a, tile);
    if (a->buffer && a->computed)
        visit(args, 0, pass.samples * s->out_h * s->out_w, pass.y);
    else
        oct_qconv_accumulate(a->plan, &pass, visit, args, oct_accumulators_scratch(a));
}

/* A leaf whose accumulators become values. */
typedef struct value_leaf {
    oct_epilogue epilogue; /* of the leaf, with a float output */
    const oct_accumulators *a;
    const bool *dead;
    oct_value_visit *visit;
    void *args;
    float *values; /* of a part */
    char *acc;     /* a copy of those of a part, where channels are dead */
} value_leaf;

void oct_clear_dead_sums(const oct_accumulators *a, const bool *dead, int64_t rows, char *acc)
{
    const int64_t n = a->plan->shape.out_c, bytes = acc_bytes(a);
    for (int64_t o = 0; o < n; o++)
        for (int64_t i = 0; dead[o] && i < rows; i++)
            memset(acc + (i * n + o) * bytes, 0, (size_t)bytes);
}

/* Returns accumulators with those of dead channels (outputs are their bias alone) 0: a copy, if there are any. */
static const char *without_dead(const value_leaf *v, const char *acc, int64_t rows)
{
    if (!v->dead) return acc;
    memcpy(v->acc, acc, (size_t)(rows * v->a->plan->shape.out_c * acc_bytes(v->a)));
    oct_clear_dead_sums(v->a, v->dead, rows, v->acc);
    return v->acc;
}

/* Turns a block of accumulators into float outputs, part by part, and hands them to v->visit. */
static void show_block(void *args, int64_t position, int64_t positions, void *acc)
{
    const value_leaf *v = args;
    const int64_t n = v->a->plan->shape.out_c;
    for (int64_t row = 0, rows; row < positions; row += rows) {
        rows = oct_min_i64(oct_part_rows(n), positions - row);
        const int64_t first = (position + row) * n;
        const oct_epilogue part = oct_epilogue_at(&v->epilogue, first);
        const char *from = (const char *)acc + row * n * acc_bytes(v->a);
        oct_epilogue_rows(
            v->a->plan->kernel, &part,
            &(oct_acc_rows){.m = rows, .n = n, .acc = without_dead(v, from, rows), .y = v->values});
        v->visit(v->args, first, rows * n, v->values);
    }
}

int64_t oct_value_pass_bytes(int64_t channels)
{
    return oct_round_up(oct_part_floats(channels) * (int64_t)(sizeof(float) + sizeof(int64_t)),
                        OCT_CACHE_LINE);
}

void oct_accumulators_values(const oct_context *cx, const oct_accumulators *a,
                             const oct_value_pass *pass, int64_t i, oct_value_visit *visit,
                             void *args)
{
    const oct_conv_shape *s = &a->plan->shape;
    const int64_t begin = oct_leaf_begin(&cx->leaves, i) * oct_conv_out_numel(s);
    char *memory = pass->scratch + omp_get_thread_num() * oct_value_pass_bytes(s->out_c);
    value_leaf v = {.epilogue = oct_epilogue_at(pass->epilogue, begin),
                    .a = a,
                    .dead = pass->dead,
                    .visit = visit,
                    .args = args,
                    .acc = memory,
                    .values = (float *)(void *)(memory + oct_part_floats(s->out_c) * 8)};
    v.epilogue.out = OCT_F32;
    const oct_tile leaf = oct_whole_leaf(cx, i);
    oct_accumulators_pass(cx, a, &leaf, show_block, &v);
}
