/* What evaluations decide is worked out by hand here; whole runs are in test_invariance.c. */
#include "launch/train/trainer.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const oct_metric mistakes = {.name = "mistakes",
                                    .title = "mistakes",
                                    .brief = "mist",
                                    .unit = "",
                                    .smaller_is_better = true};

/* 5 steps an epoch: float to 20, calibrate to 22, batch norm frozen after 32, scales after 37, end 42. */
static oct_recipe recipe_by(const char *metric, int64_t patience)
{
    static char name[32];
    snprintf(name, sizeof name, "%s", metric);
    return (oct_recipe){.batch_size = 10,
                        .batch_leaf = 2,
                        .float_epochs = 4,
                        .float_lr = 0.1,
                        .float_schedule = OCT_SCHEDULE_COSINE,
                        .calibrate_batches = 2,
                        .qat_epochs = 4,
                        .qat_lr = 0.01,
                        .qat_schedule = OCT_SCHEDULE_COSINE,
                        .qat_freeze_batch_norm = 0.5,
                        .qat_freeze_scales = 0.75,
                        .evaluate_every = 1,
                        .evaluate_best = name,
                        .evaluate_patience = patience};
}

static oct_verdict judge(oct_early_stopping *stopping, oct_plan *plan, const oct_recipe *recipe,
                         int64_t step, double value)
{
    const oct_scores scores = {
        .num_metrics = 1, .metric = {oct_early_stopping_metric(recipe)}, .value = {value}};
    return oct_early_stopping_judge(stopping, plan, recipe, step, &scores);
}

Test(stopping, the_first_of_equals_is_the_best_and_nan_never_is)
{
    const oct_recipe recipe = recipe_by("top1", 0);
    oct_plan plan = oct_plan_of(&recipe, 50);
    oct_early_stopping stopping = {0};
    cr_assert_not(judge(&stopping, &plan, &recipe, 10, 99).best, "of the float phase");
    cr_assert_eq(oct_early_stopping_best(&stopping, &plan), 0);
    cr_assert_not(judge(&stopping, &plan, &recipe, 27, (double)NAN).best);
    cr_assert_eq(oct_early_stopping_best(&stopping, &plan), 0);
    cr_assert(judge(&stopping, &plan, &recipe, 32, 50).best, "QAT is judged for itself");
    cr_assert_not(judge(&stopping, &plan, &recipe, 37, 50).best);
    cr_assert_not(judge(&stopping, &plan, &recipe, 40, (double)NAN).best);
    cr_assert_eq(oct_early_stopping_best(&stopping, &plan), 32);
    cr_assert(judge(&stopping, &plan, &recipe, 42, 50.1).best);
    cr_assert_eq(oct_early_stopping_best(&stopping, &plan), 42);
    cr_assert_eq(oct_plan_steps(&plan), 42);
}

Test(stopping, a_metric_may_want_to_be_small)
{
    cr_assert_eq(oct_registry_add(&oct_metric_table, &mistakes), OCT_OK);
    const oct_recipe recipe = recipe_by("mistakes", 0);
    oct_plan plan = oct_plan_of(&recipe, 50);
    oct_early_stopping stopping = {0};
    cr_assert(judge(&stopping, &plan, &recipe, 27, 3).best);
    cr_assert_not(judge(&stopping, &plan, &recipe, 32, 4).best);
    cr_assert(judge(&stopping, &plan, &recipe, 37, 2).best);
    cr_assert_eq(oct_early_stopping_best(&stopping, &plan), 37);
}

Test(stopping, without_a_metric_nothing_is_decided)
{
    const oct_recipe recipe = recipe_by("", 0);
    oct_plan plan = oct_plan_of(&recipe, 50);
    oct_early_stopping stopping = {0};
    const oct_verdict verdict =
        oct_early_stopping_judge(&stopping, &plan, &recipe, 27, &(oct_scores){0});
    cr_assert(!verdict.best && !verdict.ends);
    cr_assert_eq(stopping.since, 0);
}

static void check_begin(const oct_plan *plan, const int64_t expected[OCT_PHASES + 1])
{
    for (int p = 0; p <= OCT_PHASES; p++)
        cr_assert_eq(plan->begin[p], expected[p], "begin of phase %d: got %lld, wanted %lld", p,
                     (long long)plan->begin[p], (long long)expected[p]);
}

Test(stopping, a_phase_ends_when_its_evaluations_get_no_better)
{
    const oct_recipe recipe = recipe_by("top1", 2);
    oct_plan plan = oct_plan_of(&recipe, 50), again;
    const oct_plan planned = plan;
    oct_early_stopping stopping = {0};
    int64_t epoch, step_in_epoch, wanted_epoch, wanted_step;
    cr_assert_not(judge(&stopping, &plan, &recipe, 5, 60).ends);
    cr_assert_not(judge(&stopping, &plan, &recipe, 10, 60).ends);
    cr_assert(judge(&stopping, &plan, &recipe, 15, 59).ends);
    check_begin(&plan, (int64_t[]){0, 15, 17, 27, 32, 37});
    cr_assert_eq(oct_plan_lr(&plan, &recipe, 14), oct_plan_lr(&planned, &recipe, 14));
    oct_plan_epoch(&plan, 17, &epoch, &step_in_epoch);
    oct_plan_epoch(&planned, 22, &wanted_epoch, &wanted_step);
    cr_assert(epoch == wanted_epoch && step_in_epoch == wanted_step, "QAT sees its own order");
    cr_assert_eq(oct_plan_position_at(&plan, 14).epochs, 4);

    cr_assert_not(judge(&stopping, &plan, &recipe, 22, 40).ends);
    cr_assert_not(judge(&stopping, &plan, &recipe, 27, 41).ends);
    cr_assert_not(judge(&stopping, &plan, &recipe, 32, 41).ends);
    cr_assert_not(judge(&stopping, &plan, &recipe, 37, 30).ends, "it ends there anyway");
    stopping.since = 1;
    cr_assert(judge(&stopping, &plan, &recipe, 34, 30).ends);
    check_begin(&plan, (int64_t[]){0, 15, 17, 27, 32, 34});
    cr_assert_eq(oct_early_stopping_best(&stopping, &plan), 27);
    cr_assert_eq(oct_plan_phase(&plan, 34), OCT_PHASE_QAT_SCALES_FROZEN);

    again = planned;
    cr_assert_eq(oct_early_stopping_apply(&stopping, &again, "x.h5"), OCT_OK);
    cr_assert_eq(memcmp(&again, &plan, sizeof plan), 0);
}

Test(stopping, a_metric_that_is_never_defined_ends_both_phases)
{
    const oct_recipe recipe = recipe_by("top1", 2);
    oct_plan plan = oct_plan_of(&recipe, 50);
    oct_early_stopping stopping = {0};
    cr_assert_not(judge(&stopping, &plan, &recipe, 5, (double)NAN).ends);
    cr_assert(judge(&stopping, &plan, &recipe, 10, (double)NAN).ends);
    cr_assert_not(judge(&stopping, &plan, &recipe, 17, (double)NAN).ends, "QAT counts anew");
    cr_assert(judge(&stopping, &plan, &recipe, 22, (double)NAN).ends);
    check_begin(&plan, (int64_t[]){0, 10, 12, 22, 22, 22});
    cr_assert_eq(oct_early_stopping_best(&stopping, &plan), 0);
}

Test(stopping, qat_that_ends_before_its_freezes_has_phases_without_steps)
{
    const oct_recipe recipe = recipe_by("top1", 1);
    oct_plan plan = oct_plan_of(&recipe, 50);
    oct_early_stopping stopping = {0};
    cr_assert_not(judge(&stopping, &plan, &recipe, 20, 1).ends, "float ends there anyway");
    cr_assert(judge(&stopping, &plan, &recipe, 25, (double)NAN).ends);
    check_begin(&plan, (int64_t[]){0, 20, 22, 25, 25, 25});
    cr_assert_eq(oct_early_stopping_best(&stopping, &plan), 0);
}

Test(stopping, one_that_cannot_be_of_the_plan_is_refused)
{
    const oct_recipe recipe = recipe_by("top1", 1);
    const oct_early_stopping bad[] = {
        {.float_end = 21}, {.qat_end = 22}, {.qat_end = 43}, {.float_end = 10, .qat_end = 33}};
    for (size_t i = 0; i < OCT_COUNT(bad); i++) {
        oct_plan plan = oct_plan_of(&recipe, 50);
        cr_assert_eq(oct_early_stopping_apply(&bad[i], &plan, "x.h5"), OCT_DATA);
        cr_assert_eq(strncmp(oct_error_message(0), "x.h5: says that ", 16), 0);
    }
}
