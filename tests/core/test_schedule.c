/* Learning rates at the steps where something changes. */
#include "core/optim/schedule.h"
#include "tests/golden/core_golden.h"

#include <criterion/criterion.h>

static const double near = 1e-12;

#define CHECK_LR(schedule, step, want)                                                             \
    cr_assert_float_eq(oct_schedule_lr((schedule), (step)), (want), near)

Test(schedule, constant_is_the_peak_at_every_step)
{
    oct_schedule s = {
        .schedule = OCT_SCHEDULE_CONSTANT, .lr = 0.1, .total = 10, .steps_per_epoch = 1};
    CHECK_LR(&s, 0, 0.1);
    CHECK_LR(&s, 9, 0.1);
    CHECK_LR(&s, 1000, 0.1);
}

Test(schedule, warm_up_rises_linearly_and_reaches_the_peak_at_its_last_step)
{
    oct_schedule s = {.schedule = OCT_SCHEDULE_CONSTANT,
                      .lr = 0.4,
                      .warmup = 4,
                      .total = 10,
                      .steps_per_epoch = 1};
    CHECK_LR(&s, 0, 0.1);
    CHECK_LR(&s, 1, 0.2);
    CHECK_LR(&s, 3, 0.4);
    CHECK_LR(&s, 4, 0.4);
}

Test(schedule, cosine_agrees_with_pytorch)
{
    oct_schedule s = {.schedule = OCT_SCHEDULE_COSINE,
                      .lr = 0.3,
                      .final_lr = 0.02,
                      .total = 10,
                      .steps_per_epoch = 1};
    for (int64_t step = 0; step <= 10; step++)
        CHECK_LR(&s, step, golden_cosine_lr[step]);
}

Test(schedule, cosine_runs_from_the_end_of_the_warm_up_to_the_end_of_the_phase)
{
    oct_schedule s = {.schedule = OCT_SCHEDULE_COSINE,
                      .lr = 1,
                      .final_lr = 0.5,
                      .warmup = 5,
                      .total = 25,
                      .steps_per_epoch = 1};
    CHECK_LR(&s, 4, 1);
    CHECK_LR(&s, 5, 1);
    CHECK_LR(&s, 15, 0.75);
    CHECK_LR(&s, 25, 0.5);
    CHECK_LR(&s, 26, 0.5);
}

Test(schedule, cosine_without_steps_after_the_warm_up_is_final)
{
    oct_schedule s = {.schedule = OCT_SCHEDULE_COSINE,
                      .lr = 1,
                      .final_lr = 0.5,
                      .warmup = 5,
                      .total = 5,
                      .steps_per_epoch = 1};
    CHECK_LR(&s, 4, 1);
    CHECK_LR(&s, 5, 0.5);
}

Test(schedule, lengths_are_rounded_to_whole_steps)
{
    oct_schedule s = {.schedule = OCT_SCHEDULE_STEP, .lr = 1, .total = 30, .gamma = 0.5};
    s.steps_per_epoch = 7;
    s.warmup = 0.3;
    s.milestones = (oct_reals){1, {1.5}};
    CHECK_LR(&s, 0, 0.5);
    CHECK_LR(&s, 2, 1);
    CHECK_LR(&s, 9, 1); /* 10.5 steps are 10, the even number */
    CHECK_LR(&s, 10, 0.5);
}

Test(schedule, steps_multiply_at_each_milestone)
{
    oct_schedule s = {.schedule = OCT_SCHEDULE_STEP,
                      .lr = 1,
                      .warmup = 2,
                      .total = 30,
                      .steps_per_epoch = 1,
                      .gamma = 0.5,
                      .milestones = {2, {10, 20}}};
    CHECK_LR(&s, 0, 0.5);
    CHECK_LR(&s, 9, 1);
    CHECK_LR(&s, 10, 0.5);
    CHECK_LR(&s, 19, 0.5);
    CHECK_LR(&s, 20, 0.25);
}
