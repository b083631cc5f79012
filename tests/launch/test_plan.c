/* The plan is pure arithmetic: each boundary is a number that can be worked out by hand. */
#include "launch/session/plan.h"

#include <criterion/criterion.h>

static oct_recipe base(void)
{
    return (oct_recipe){
        .batch_size = 10,
        .batch_leaf = 2,
        .float_epochs = 2,
        .float_lr = 0.1,
        .float_schedule = OCT_SCHEDULE_CONSTANT,
        .calibrate_batches = 7,
        .qat_epochs = 4,
        .qat_lr = 0.01,
        .qat_schedule = OCT_SCHEDULE_COSINE,
        .qat_freeze_batch_norm = 0.5,
        .qat_freeze_scales = 0.75,
    };
}

static void check_begin(const oct_plan *plan, const int64_t expected[OCT_PHASES + 1])
{
    for (int p = 0; p <= OCT_PHASES; p++)
        cr_expect_eq(plan->begin[p], expected[p], "begin of phase %d: got %lld, wanted %lld", p,
                     (long long)plan->begin[p], (long long)expected[p]);
}

Test(plan, boundaries_follow_from_epochs_batches_and_parts)
{
    oct_recipe recipe = base();
    oct_plan plan = oct_plan_of(&recipe, 45); /* 5 steps an epoch, the last one short */
    cr_assert_eq(plan.steps_per_epoch, 5);
    check_begin(&plan, (int64_t[]){0, 10, 17, 27, 32, 37});
    cr_assert_eq(oct_plan_steps(&plan), 37);
}

Test(plan, drop_last_drops_the_short_batch_only)
{
    oct_recipe recipe = base();
    recipe.data_drop_last = true;
    cr_assert_eq(oct_plan_of(&recipe, 45).steps_per_epoch, 4);
    cr_assert_eq(oct_plan_of(&recipe, 40).steps_per_epoch, 4);
    cr_assert_eq(oct_plan_of(&recipe, 9).steps_per_epoch, 0);
    recipe.data_drop_last = false;
    cr_assert_eq(oct_plan_of(&recipe, 40).steps_per_epoch, 4);
    cr_assert_eq(oct_plan_of(&recipe, 1).steps_per_epoch, 1);
}

Test(plan, batch_norm_and_scales_may_freeze_together)
{
    oct_recipe recipe = base();
    recipe.qat_freeze_batch_norm = recipe.qat_freeze_scales = 0.25;
    oct_plan plan = oct_plan_of(&recipe, 50);
    check_begin(&plan, (int64_t[]){0, 10, 17, 22, 22, 37});
}

Test(plan, phases_may_be_empty_and_the_end_is_the_last_phase_all_the_same)
{
    oct_recipe recipe = base();
    recipe.float_epochs = 0;
    recipe.qat_epochs = 0;
    oct_plan plan = oct_plan_of(&recipe, 50);
    check_begin(&plan, (int64_t[]){0, 0, 7, 7, 7, 7});
    cr_assert_eq(oct_plan_phase(&plan, 0), OCT_PHASE_CALIBRATE);
    cr_assert_eq(oct_plan_phase(&plan, 6), OCT_PHASE_CALIBRATE);
    cr_assert_eq(oct_plan_phase(&plan, 7), OCT_PHASE_QAT_SCALES_FROZEN);

    recipe = base();
    recipe.qat_freeze_batch_norm = recipe.qat_freeze_scales = 1;
    plan = oct_plan_of(&recipe, 50);
    cr_assert_eq(oct_plan_phase(&plan, 36), OCT_PHASE_QAT);
    cr_assert_eq(oct_plan_phase(&plan, 37), OCT_PHASE_QAT_SCALES_FROZEN);

    recipe.qat_freeze_batch_norm = recipe.qat_freeze_scales = 0;
    plan = oct_plan_of(&recipe, 50);
    cr_assert_eq(oct_plan_phase(&plan, 17), OCT_PHASE_QAT_SCALES_FROZEN);
}

Test(plan, every_step_has_the_phase_that_covers_it)
{
    oct_recipe recipe = base();
    oct_plan plan = oct_plan_of(&recipe, 50);
    static const struct {
        int64_t step;
        oct_phase phase;
    } table[] = {{0, OCT_PHASE_FLOAT},
                 {9, OCT_PHASE_FLOAT},
                 {10, OCT_PHASE_CALIBRATE},
                 {16, OCT_PHASE_CALIBRATE},
                 {17, OCT_PHASE_QAT},
                 {26, OCT_PHASE_QAT},
                 {27, OCT_PHASE_QAT_BN_FROZEN},
                 {31, OCT_PHASE_QAT_BN_FROZEN},
                 {32, OCT_PHASE_QAT_SCALES_FROZEN},
                 {36, OCT_PHASE_QAT_SCALES_FROZEN},
                 {37, OCT_PHASE_QAT_SCALES_FROZEN}};
    for (size_t i = 0; i < OCT_COUNT(table); i++)
        cr_expect_eq(oct_plan_phase(&plan, table[i].step), table[i].phase, "step %lld",
                     (long long)table[i].step);
}

Test(plan, no_two_epochs_of_a_run_share_their_order)
{
    oct_recipe recipe = base();
    oct_plan plan = oct_plan_of(&recipe, 50);
    static const struct {
        int64_t step, epoch, step_in_epoch;
    } table[] = {{0, 0, 0},  {4, 0, 4},  {5, 1, 0},  {9, 1, 4},  {10, 6, 0}, {14, 6, 4},
                 {15, 7, 0}, {16, 7, 1}, {17, 2, 0}, {27, 4, 0}, {36, 5, 4}};
    for (size_t i = 0; i < OCT_COUNT(table); i++) {
        int64_t epoch, step_in_epoch;
        oct_plan_epoch(&plan, table[i].step, &epoch, &step_in_epoch);
        cr_expect_eq(epoch, table[i].epoch, "epoch of step %lld is %lld", (long long)table[i].step,
                     (long long)epoch);
        cr_expect_eq(step_in_epoch, table[i].step_in_epoch);
    }
}

Test(plan, people_count_epochs_from_one_in_each_part)
{
    oct_recipe recipe = base();
    oct_plan plan = oct_plan_of(&recipe, 50);
    oct_plan_position at = oct_plan_position_at(&plan, 5);
    cr_assert(at.epoch == 2 && at.epochs == 2 && at.step == 5 && at.steps == 10);
    at = oct_plan_position_at(&plan, 16);
    cr_assert(at.epoch == 2 && at.epochs == 2 && at.step == 6 && at.steps == 7);
    at = oct_plan_position_at(&plan, 36);
    cr_assert(at.epoch == 4 && at.epochs == 4 && at.step == 19 && at.steps == 20);
}

Test(plan, learning_rate_begins_anew_with_qat_and_is_zero_while_calibrating)
{
    oct_recipe recipe = base();
    oct_plan plan = oct_plan_of(&recipe, 50);
    cr_assert_float_eq(oct_plan_lr(&plan, &recipe, 9), 0.1, 1e-15);
    cr_assert_float_eq(oct_plan_lr(&plan, &recipe, 10), 0, 0);
    cr_assert_float_eq(oct_plan_lr(&plan, &recipe, 17), 0.01, 1e-15);
    cr_assert_float_eq(oct_plan_lr(&plan, &recipe, 27), 0.005, 1e-12); /* cosine, half way */
}

Test(plan, warmup_and_milestones_are_given_in_epochs)
{
    oct_recipe recipe = base();
    recipe.float_schedule = OCT_SCHEDULE_STEP;
    recipe.float_gamma = 0.5;
    recipe.float_warmup = 0.4;
    recipe.float_milestones = (oct_reals){.count = 1, .value = {1.2}};
    oct_plan plan = oct_plan_of(&recipe, 50);
    static const double expected[] = {0.05, 0.1, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05};
    for (int64_t step = 0; step < 10; step++)
        cr_expect_float_eq(oct_plan_lr(&plan, &recipe, step), expected[step], 1e-15, "step %lld",
                           (long long)step);
}

Test(plan, names_of_phases_are_found_again)
{
    oct_phase found;
    for (int p = 0; p < OCT_PHASES; p++) {
        cr_assert(oct_phase_of_name(oct_phase_name((oct_phase)p), &found));
        cr_assert_eq((int)found, p);
    }
    cr_assert_not(oct_phase_of_name("qat ", &found));
}
