/* Batch norm in norm groups: against PyTorch, against batches that are a group each, and in what it refuses. */
#include "core/op/norm_groups.h"
#include "tests/core/op_rig.h"
#include "tests/golden/core_golden.h"

TestSuite(norm_groups, .timeout = 60);

/* Sums of some tens of floats of order 1, in another order than PyTorch's. */
static const double near = 2e-5;

#define CHECK_GOLDEN(got, want)                                                                    \
    oct_check_near_f32((got), (want), (int64_t)OCT_COUNT(want), near, near, #want)

enum { SAMPLES = 10, CHANNELS = 3, IMAGE = 2 * 3 * CHANNELS };

static rig ghost_rig(int64_t leaf, int64_t group)
{
    oct_module *bn;
    RIG_OK(oct_batch_norm_create(&bn, CHANNELS));
    oct_module_train(bn, true);
    rig r = rig_of(bn, rig_call_root, SAMPLES, leaf);
    r.cx->norm_group = group;
    memcpy(r.params.items[0]->value.data, golden_ghost_gamma, sizeof golden_ghost_gamma);
    memcpy(r.params.items[1]->value.data, golden_ghost_beta, sizeof golden_ghost_beta);
    rig_input(&r, OCT_SHAPE(SAMPLES, 2, 3, CHANNELS), 1);
    memcpy(r.input[0].data, golden_ghost_x, sizeof golden_ghost_x);
    return r;
}

/* Sums the notes of batch norms and hands them back, as a training step of one process does. */
static void sum_notes(rig *r)
{
    const int64_t numel = oct_norm_notes_numel(r->cx);
    float *rows = rig_take((size_t)(r->leaves.local * numel), sizeof *rows);
    oct_norm_notes_fold(r->cx, rows);
    oct_norm_notes_take(r->cx, rows);
    oct_free(&rows);
}

static void check_ghost(int64_t leaf, int64_t group)
{
    rig r = ghost_rig(leaf, group);
    const oct_batch_norm_module *bn = (const oct_batch_norm_module *)r.root;
    const oct_tensor *y = rig_run(&r, true);
    cr_assert(y, "%s", oct_error_message(0));
    CHECK_GOLDEN(oct_f32(y), golden_ghost_y);
    rig_backward(&r, (oct_tensor *)(uintptr_t)y, golden_ghost_grad_y);
    CHECK_GOLDEN(r.input[0].grad, golden_ghost_grad_x);
    CHECK_GOLDEN(r.params.items[0]->grad, golden_ghost_grad_gamma);
    CHECK_GOLDEN(r.params.items[1]->grad, golden_ghost_grad_beta);
    cr_assert_eq(bn->running_mean[0], 0.0F, "they move after the sum of the notes");
    sum_notes(&r);
    cr_assert_eq(r.cx->status, OCT_OK);
    CHECK_GOLDEN(bn->running_mean, golden_ghost_mean);
    CHECK_GOLDEN(bn->running_var, golden_ghost_var);
    rig_end(&r);
}

Test(norm_groups, agree_with_modules_over_slices_in_pytorch)
{
    check_ghost(4, 1);
    check_ghost(2, 2);
    check_ghost(1, 4);
}

/* One group that has the whole batch gives the bits of no groups. */
Test(norm_groups, a_group_of_the_whole_batch_is_the_batch)
{
    rig whole = ghost_rig(2, 0), group = ghost_rig(2, 8);
    oct_tensor *a = rig_run(&whole, true), *b = rig_run(&group, true);
    oct_check_bits_f32(oct_f32(b), oct_f32(a), SAMPLES * IMAGE, "y");
    rig_backward(&whole, a, golden_ghost_grad_y);
    rig_backward(&group, b, golden_ghost_grad_y);
    oct_check_bits_f32(group.input[0].grad, whole.input[0].grad, SAMPLES * IMAGE, "grad x");
    oct_check_bits_f32(group.params.grads, whole.params.grads, 2 * CHANNELS, "grads");
    sum_notes(&group);
    for (size_t i = 0; i < whole.root->num_buffers; i++)
        oct_check_bits_f32(oct_f32(&group.root->buffers[i].tensor),
                           oct_f32(&whole.root->buffers[i].tensor), CHANNELS, "running");
    rig_end(&whole);
    rig_end(&group);
}

/* Only one rank knows of a group that is not finite: the step continues until the sum of the notes. */
Test(norm_groups, a_group_that_is_not_finite_shows_in_the_sum)
{
    rig r = ghost_rig(2, 2);
    const oct_batch_norm_module *bn = (const oct_batch_norm_module *)r.root;
    oct_f32(&r.input[0])[5 * IMAGE] = 3e38F;
    oct_f32(&r.input[0])[6 * IMAGE] = 3e38F;
    cr_assert(rig_run(&r, true));
    cr_assert_eq(r.cx->status, OCT_OK);
    sum_notes(&r);
    cr_assert_eq(r.cx->status, OCT_NUMERIC);
    cr_assert(strstr(oct_error_message(0), "the batch's mean or variance is not finite"), "%s",
              oct_error_message(0));
    cr_assert_eq(bn->running_mean[0], 0.0F);
    cr_assert_eq(bn->running_var[0], 1.0F);
    rig_end(&r);
}

/* Of features, the last group of a batch may be a single value. */
Test(norm_groups, one_value_a_channel_is_refused)
{
    oct_module *bn;
    RIG_OK(oct_batch_norm_create(&bn, 4));
    oct_module_train(bn, true);
    rig r = rig_of(bn, rig_call_root, 5, 2);
    r.cx->norm_group = 1;
    rig_input(&r, OCT_SHAPE(5, 4), 1);
    cr_assert_null(rig_run(&r, true));
    cr_assert_eq(r.cx->status, OCT_USAGE);
    cr_assert_str_eq(oct_error_message(0),
                     "batch_norm has 1 value a channel in the last group of a batch of 5 samples "
                     "and needs 2 or more to train; drop the last batch (data.drop_last) or make "
                     "the group larger");
    rig_end(&r);
}

/* In an audit all ranks get the sums of each group; a sum of all columns at once would take a gigabyte here. */
Test(norm_groups, many_groups_whose_sums_all_ranks_get_take_little_memory_and_give_the_same_bits)
{
    enum { LEAVES = 2048, N = 32, NUMEL = LEAVES * N, MOST = 96 << 20 };
    rig r = rig_of(NULL, rig_call_root, LEAVES, 1);
    r.cx->norm_group = 1;
    double *rows = rig_take(NUMEL, sizeof *rows), *alone = rig_take(NUMEL, sizeof *alone),
           *shared = rig_take(NUMEL, sizeof *shared);
    for (int way = 0; way < 2; way++) {
        r.cx->norm_share_all = way == 1;
        oct_context_begin(r.cx, r.leaves, false);
        for (int i = 0; i < NUMEL; i++)
            rows[i] = 1.0 / (1 + i);
        const oct_norm_groups groups = oct_norm_groups_of(r.cx, true);
        const size_t before = oct_mem_live();
        oct_mem_peak_reset();
        cr_assert(oct_sum_over_groups(r.cx, &groups, rows, N, way == 0 ? alone : shared));
        cr_assert_lt(oct_mem_peak() - before, (size_t)MOST);
    }
    cr_assert_eq(memcmp(shared, alone, NUMEL * sizeof *shared), 0);
    oct_free(&rows);
    oct_free(&alone);
    oct_free(&shared);
    rig_end(&r);
}
