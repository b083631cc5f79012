/* Learning rates at the steps where something changes. */
#include "core/optim/schedule.h"
#include "tests/golden/core_golden.h"
#include "tests/golden/optim_golden.h"

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

static void check_golden(const oct_schedule *schedule, const double *rates, int64_t count)
{
    for (int64_t step = 0; step < count; step++)
        CHECK_LR(schedule, step, rates[step]);
}
#define CHECK_GOLDEN(schedule, rates)                                                              \
    check_golden((schedule), (rates), (int64_t)(sizeof(rates) / sizeof *(rates)))

Test(schedule, restarts_of_the_cosine_agree_with_pytorch)
{
    oct_schedule s = {.schedule = OCT_SCHEDULE_COSINE_RESTARTS,
                      .lr = 0.3,
                      .final_lr = 0.02,
                      .restart_epochs = 5,
                      .restart_factor = 2,
                      .total = 40,
                      .steps_per_epoch = 1};
    CHECK_GOLDEN(&s, golden_restarts_lr);
    s.final_lr = 0;
    s.restart_factor = 1;
    CHECK_GOLDEN(&s, golden_equal_restarts_lr);
}

Test(schedule, restarts_begin_after_the_warm_up_and_have_a_step_at_least)
{
    oct_schedule s = {.schedule = OCT_SCHEDULE_COSINE_RESTARTS,
                      .lr = 1,
                      .warmup = 2,
                      .restart_epochs = 0.001,
                      .restart_factor = 4,
                      .total = 40,
                      .steps_per_epoch = 1};
    CHECK_LR(&s, 0, 0.5);
    CHECK_LR(&s, 1, 1);
    CHECK_LR(&s, 2, 1); /* a period of one step */
    CHECK_LR(&s, 3, 1); /* and one of four */
    CHECK_LR(&s, 5, 0.5);
    CHECK_LR(&s, 7, 1);
}

Test(schedule, a_polynomial_agrees_with_pytorch)
{
    oct_schedule s = {.schedule = OCT_SCHEDULE_POLYNOMIAL,
                      .lr = 0.3,
                      .power = 2.5,
                      .total = 10,
                      .steps_per_epoch = 1};
    CHECK_GOLDEN(&s, golden_polynomial_lr);
}

Test(schedule, a_polynomial_of_power_1_is_a_line_after_the_warm_up)
{
    oct_schedule s = {.schedule = OCT_SCHEDULE_POLYNOMIAL,
                      .lr = 1,
                      .final_lr = 0.5,
                      .warmup = 2,
                      .power = 1,
                      .total = 12,
                      .steps_per_epoch = 1};
    CHECK_LR(&s, 2, 1);
    CHECK_LR(&s, 7, 0.75);
    CHECK_LR(&s, 12, 0.5);
    s.total = 2;
    CHECK_LR(&s, 2, 0.5);
}

Test(schedule, one_cycle_agrees_with_pytorch)
{
    oct_schedule s = {.schedule = OCT_SCHEDULE_ONE_CYCLE,
                      .lr = 0.3,
                      .cycle_rise = 0.3,
                      .cycle_divisor = 25,
                      .cycle_final_divisor = 1e4,
                      .total = 20,
                      .steps_per_epoch = 1};
    CHECK_GOLDEN(&s, golden_one_cycle_lr);
    s.cycle_linear = true;
    s.cycle_rise = 0.45;
    s.cycle_divisor = 10;
    s.cycle_final_divisor = 100;
    CHECK_GOLDEN(&s, golden_one_cycle_linear_lr);
}

Test(schedule, one_cycle_may_only_fall_or_only_rise)
{
    oct_schedule s = {.schedule = OCT_SCHEDULE_ONE_CYCLE,
                      .lr = 1,
                      .cycle_divisor = 2,
                      .cycle_final_divisor = 2,
                      .cycle_linear = true,
                      .total = 4,
                      .steps_per_epoch = 1};
    CHECK_LR(&s, 0, 1);
    CHECK_LR(&s, 1, 0.75);
    CHECK_LR(&s, 3, 0.25);
    s.cycle_rise = 1;
    CHECK_LR(&s, 0, 0.5);
    CHECK_LR(&s, 2, 5.0 / 6);
    CHECK_LR(&s, 3, 0.25);
    s.total = 1;
    CHECK_LR(&s, 0, 0.25);
}
