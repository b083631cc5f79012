/* The stream of leaf gradients gives the bits of the tree over all rows, for every split of leaves over
 * ranks, every number of threads, groups of every size, layouts of the op's own, and parameters used more
 * than once. */
#include "core/autograd/tape.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/nn/module.h"
#include "core/nn/params.h"

#include <criterion/criterion.h>
#include <omp.h>
#include <string.h>

enum { GROUPS = 2, DEPTH = 3, OUTS = 5, NUMEL = GROUPS * DEPTH * OUTS, LEAF = 3, MAX_LEAVES = 70 };

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)cx, (void)self, (void)n;
    return x[0];
}

static const oct_module_type holder_type = {.name = "holder", .forward = forward};

static oct_module *holder;
static oct_param *weight;
static oct_context *cx;

static void set_up(void)
{
    cr_assert_eq(oct_module_alloc(&holder, &holder_type, sizeof *holder), OCT_OK);
    cr_assert_eq(oct_module_add_param(holder, "w", OCT_SHAPE(NUMEL), true, &weight), OCT_OK);
    cr_assert_eq(oct_context_create(&cx, &oct_collective_one), OCT_OK);
}

static void tear_down(void)
{
    oct_context_destroy(&cx);
    oct_module_destroy(&holder);
    OCT_ASSERT(oct_mem_live() == 0);
}

TestSuite(leaf_stream, .init = set_up, .fini = tear_down);

/* The transposed layout has outs as its columns. */
static void transpose(const oct_leaf_layout *t, const float *row, float *value)
{
    for (int64_t g = 0; g < t->groups; g++)
        for (int64_t d = 0; d < t->depth; d++)
            for (int64_t o = 0; o < t->outs; o++)
                value[(g * t->outs + o) * t->depth + d] = row[(g * t->depth + d) * t->outs + o];
}

static const oct_leaf_layout transposed = {transpose, GROUPS, DEPTH, OUTS};

/* What use `use` contributes to a leaf, a function of the leaf's place in the whole batch. */
static void term(int64_t leaf, int use, float row[NUMEL])
{
    oct_fill_normal(row, NUMEL, 3, OCT_STREAM_TEST, (uint32_t)(8 * leaf + use), 0, 10.0F);
}

static void begin_stream(const oct_leaves *leaves, int uses)
{
    oct_context_begin(cx, *leaves, true);
    for (int i = 0; i < uses; i++)
        oct_param_used(cx, weight);
}

/* What the tree makes of the leaves [first, first + span) of the whole batch, cut at `end`. */
static void sum_of(int64_t first, int64_t span, int64_t end, int use, float sum[NUMEL])
{
    if (span == 1) {
        term(first, use, sum);
        return;
    }
    sum_of(first, span / 2, end, use, sum);
    if (first + span / 2 >= end) return;
    float right[NUMEL];
    sum_of(first + span / 2, span / 2, end, use, right);
    for (int k = 0; k < NUMEL; k++)
        sum[k] += right[k];
}

static void stream_use(int use, int64_t group_leaves, const oct_leaf_layout *layout)
{
    oct_leaf_stream stream;
    int64_t groups = 0, leaves = 0;
    oct_leaf_stream_begin(cx, &stream, weight, group_leaves, layout);
    for (int64_t first = 0, end; oct_leaf_stream_next(cx, &stream, &first, &end);) {
        cr_assert(first == groups && end > first);
        groups = end;
        for (int64_t i = first; i < end; i++) {
            const oct_leaf_group t = oct_leaf_stream_group(cx, &stream, i);
            cr_assert(t.first == leaves && t.end > t.first && t.end - t.first <= group_leaves);
            leaves = t.end;
        }
#pragma omp parallel for schedule(static)
        for (int64_t i = first; i < end; i++) {
            const oct_leaf_group t = oct_leaf_stream_group(cx, &stream, i);
            float sum[NUMEL];
            sum_of(cx->leaves.first + t.first, stream.leaves, cx->leaves.first + t.end, use, sum);
            for (int k = 0; k < NUMEL; k++)
                t.row[k] = (t.add ? t.row[k] : 0) + sum[k];
        }
    }
    oct_leaf_stream_end(cx, &stream);
    cr_assert_eq(oct_context_status(cx), OCT_OK);
    cr_assert_eq(leaves, cx->leaves.local);
}

/* The same by the definition: all rows, then the tree. Uses come in reverse, as in a backward. */
static int define(const oct_leaves *leaves, int uses, const oct_leaf_layout *layout,
                  float parts[][NUMEL])
{
    static float rows[MAX_LEAVES][NUMEL];
    memset(rows, 0, sizeof rows);
    for (int64_t i = 0; i < leaves->local; i++) {
        for (int use = 0; use < uses; use++) {
            float add[NUMEL];
            term(leaves->first + i, use, add);
            for (int k = 0; k < NUMEL; k++)
                rows[i][k] += add[k];
        }
    }
    int num_parts = oct_tree_fold_f32(leaves, rows[0], NUMEL);
    for (int p = 0; p < num_parts; p++) {
        if (layout)
            layout->transpose(layout, rows[p], parts[p]);
        else
            memcpy(parts[p], rows[p], sizeof parts[p]);
    }
    return num_parts;
}

static void compare(const oct_leaves *leaves, int uses, int64_t group,
                    const oct_leaf_layout *layout)
{
    static float want[OCT_MAX_PARTS][NUMEL];
    oct_params params;
    cr_assert_eq(oct_params_bind(&params, holder, leaves), OCT_OK);
    begin_stream(leaves, uses);
    for (int use = 0; use < uses; use++)
        stream_use(use, group, layout);
    cr_assert_eq(weight->uses, 0);
    cr_assert(weight->folded && !weight->rows);
    int num_parts = define(leaves, uses, layout, want);
    cr_assert_arr_eq(params.parts, want, (size_t)num_parts * sizeof want[0],
                     "%d uses, leaves %d to %d of %d, groups of %d, %d threads", uses,
                     (int)leaves->first, (int)(leaves->first + leaves->local), (int)leaves->count,
                     (int)group, omp_get_max_threads());
    oct_params_unbind(&params);
}

Test(leaf_stream, every_split_gives_the_bits_of_the_tree)
{
    for (int threads = 1; threads <= 5; threads += 2) {
        omp_set_num_threads(threads);
        for (int64_t samples = 0; samples <= 22 * LEAF; samples += 2)
            for (int size = 1; size <= 5; size++)
                for (int rank = 0; rank < size; rank++) {
                    oct_leaves leaves = oct_leaves_split(samples, LEAF, rank, size);
                    for (int64_t group = 1; group <= 8; group *= 2)
                        compare(&leaves, 1, group, samples % 4 ? &transposed : NULL);
                }
    }
}

Test(leaf_stream, many_leaves)
{
    for (int threads = 1; threads <= 9; threads++) {
        omp_set_num_threads(threads);
        for (int64_t count = 58; count <= MAX_LEAVES; count++) {
            oct_leaves leaves = oct_leaves_split(count * LEAF - 1, LEAF, 0, 1);
            compare(&leaves, 1, 1, NULL);
            compare(&leaves, 1, 4, NULL);
            leaves = oct_leaves_split(count * LEAF, LEAF, 1, 3);
            compare(&leaves, 1, 1, &transposed);
            compare(&leaves, 1, 8, &transposed);
        }
    }
}

Test(leaf_stream, twigs_are_as_large_as_the_op_takes_and_threads_allow)
{
    oct_leaves leaves = oct_leaves_split(8 * LEAF - 1, LEAF, 0, 1);
    begin_stream(&leaves, 0);
    omp_set_num_threads(1);
    cr_assert_eq(oct_leaf_stream_leaves(cx, 1), 1);
    cr_assert_eq(oct_leaf_stream_leaves(cx, 4), 4);
    cr_assert_eq(oct_leaf_stream_leaves(cx, 16), 8);
    omp_set_num_threads(2);
    cr_assert_eq(oct_leaf_stream_leaves(cx, 16), 4);
    omp_set_num_threads(5);
    cr_assert_eq(oct_leaf_stream_leaves(cx, 16), 1);
    leaves = oct_leaves_split(0, LEAF, 0, 1);
    begin_stream(&leaves, 0);
    cr_assert_eq(oct_leaf_stream_leaves(cx, 16), 1);
}

Test(leaf_stream, a_parameter_used_often_adds_within_each_leaf_first)
{
    for (int uses = 2; uses <= 3; uses++)
        for (int rank = 0; rank < 3; rank++) {
            oct_leaves leaves = oct_leaves_split(11 * LEAF + 1, LEAF, rank, 3);
            compare(&leaves, uses, 1, NULL);
            compare(&leaves, uses, 4, &transposed);
        }
}

/* Of 64 leaves sums of 2, 4, ... 32 wait at most, beside a row for each thread; one of these rows is the
 * parameter's own part. */
Test(leaf_stream, it_keeps_a_row_for_each_level)
{
    oct_param *large;
    oct_params params;
    const size_t row = 1000000 * sizeof(float);
    cr_assert_eq(oct_module_add_param(holder, "large", OCT_SHAPE(1000000), true, &large), OCT_OK);
    oct_leaves leaves = oct_leaves_split(64, 1, 0, 1);
    cr_assert_eq(oct_params_bind(&params, holder, &leaves), OCT_OK);
    for (int threads = 1; threads <= 4; threads++) {
        omp_set_num_threads(threads);
        oct_context_destroy(&cx);
        cr_assert_eq(oct_context_create(&cx, &oct_collective_one), OCT_OK);
        oct_params_zero(&params);
        begin_stream(&leaves, 0);
        oct_param_used(cx, large);
        oct_mem_peak_reset();
        size_t before = oct_mem_live();
        oct_leaf_stream stream;
        oct_leaf_stream_begin(cx, &stream, large, 1, NULL);
        for (int64_t first = 0, end; oct_leaf_stream_next(cx, &stream, &first, &end);)
            for (int64_t i = first; i < end; i++)
                memset(oct_leaf_stream_group(cx, &stream, i).row, 0, row);
        oct_leaf_stream_end(cx, &stream);
        size_t rows = (oct_mem_peak() - before) / row; /* the lists are less than one */
        cr_assert_leq(rows, (size_t)(5 + threads - 1));
    }
    oct_params_unbind(&params);
}

Test(leaf_stream, misuse_is_a_defect_and_a_failed_context_ends_it)
{
    oct_leaves leaves = oct_leaves_split(4 * LEAF, LEAF, 0, 1);
    oct_leaf_stream stream;
    int64_t first, end;
    begin_stream(&leaves, 1);
    oct_leaf_stream_begin(cx, &stream, weight, 2, NULL);
    cr_assert_not(oct_leaf_stream_next(cx, &stream, &first, &end));
    oct_leaf_stream_end(cx, &stream);
    cr_assert_str_eq(oct_error_message(0), "parameter w is not bound (oct_params_bind)");

    oct_params params;
    cr_assert_eq(oct_params_bind(&params, holder, &leaves), OCT_OK);
    begin_stream(&leaves, 1);
    stream_use(0, 1, NULL);
    oct_leaf_stream_begin(cx, &stream, weight, 2, NULL);
    cr_assert_not(oct_leaf_stream_next(cx, &stream, &first, &end));
    oct_leaf_stream_end(cx, &stream);
    cr_assert_eq(oct_context_status(cx), OCT_DEFECT);

    oct_params_zero(&params);
    begin_stream(&leaves, 0);
    oct_leaf_stream_begin(cx, &stream, weight, 2, NULL);
    cr_assert_not(oct_leaf_stream_next(cx, &stream, &first, &end));
    oct_leaf_stream_end(cx, &stream);
    cr_assert(strstr(oct_error_message(0), "more gradients than uses"));

    begin_stream(&leaves, 1);
    oct_leaf_stream_begin(cx, &stream, weight, 2, NULL);
    cr_assert(oct_leaf_stream_next(cx, &stream, &first, &end));
    oct_context_fail(cx, OCT_NUMERIC, "halfway");
    cr_assert_not(oct_leaf_stream_next(cx, &stream, &first, &end));
    oct_leaf_stream_end(cx, &stream);
    cr_assert_not(weight->folded);
    oct_params_unbind(&params);
}

Test(leaf_stream, without_memory_it_fails_and_leaves_nothing)
{
    oct_leaves leaves = oct_leaves_split(8 * LEAF, LEAF, 0, 1);
    oct_params params;
    cr_assert_eq(oct_params_bind(&params, holder, &leaves), OCT_OK);
    for (int uses = 1; uses <= 2; uses++) {
        oct_context_destroy(&cx);
        cr_assert_eq(oct_context_create(&cx, &oct_collective_one), OCT_OK);
        oct_params_zero(&params);
        begin_stream(&leaves, uses);
        oct_mem_fail_after(1);
        oct_leaf_stream stream;
        int64_t first, end;
        oct_leaf_stream_begin(cx, &stream, weight, 1, &transposed);
        cr_assert_not(oct_leaf_stream_next(cx, &stream, &first, &end));
        oct_leaf_stream_end(cx, &stream);
        oct_mem_fail_after(0);
        cr_assert_eq(oct_context_status(cx), OCT_RESOURCE);
    }
    oct_params_unbind(&params);
}
