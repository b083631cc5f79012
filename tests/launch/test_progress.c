/* What a run shows: counts, times, when there is a bar, and the rate over the last steps. */
#include "launch/run/progress.h"

#include <criterion/criterion.h>
#include <stdlib.h>

Test(progress, counts_are_grouped_by_thousands)
{
    char text[32];
    cr_assert_str_eq(oct_text_count(0, text), "0");
    cr_assert_str_eq(oct_text_count(999, text), "999");
    cr_assert_str_eq(oct_text_count(1000, text), "1,000");
    cr_assert_str_eq(oct_text_count(1234567, text), "1,234,567");
    cr_assert_str_eq(oct_text_count(-123456, text), "-123,456");
    cr_assert_str_eq(oct_text_count(INT64_MIN, text), "-9,223,372,036,854,775,808");
}

Test(progress, times_are_short_and_never_negative)
{
    char text[32];
    cr_assert_str_eq(oct_text_time(0, text), "0:00");
    cr_assert_str_eq(oct_text_time(75.2, text), "1:15");
    cr_assert_str_eq(oct_text_time(3675, text), "1:01:15");
    cr_assert_str_eq(oct_text_time(-5, text), "0:00");
    cr_assert_str_eq(oct_text_time(1.0 / 0.0, text), "277777:46:40");
}

Test(progress, under_srun_or_with_a_dumb_terminal_there_is_no_bar)
{
    unsetenv("OMPI_COMM_WORLD_SIZE");
    setenv("SLURM_PROCID", "0", 1);
    cr_assert_not(oct_progress_terminal());
    unsetenv("SLURM_PROCID");
    setenv("TERM", "dumb", 1);
    cr_assert_not(oct_progress_terminal());
}

Test(progress, the_choice_of_the_user_wins)
{
    oct_plan plan = {.steps_per_epoch = 1};
    oct_progress progress;
    oct_progress_start(&progress, &plan, NULL, "bar", 10);
    cr_assert(progress.bar);
    oct_progress_start(&progress, &plan, NULL, "lines", 10);
    cr_assert_not(progress.bar);
    cr_assert_eq(progress.every, 10);
    oct_progress_start(&progress, &plan, NULL, "none", 10);
    cr_assert(progress.every > 1e300);
}

Test(progress, windows_weigh_steps_by_their_samples)
{
    oct_step_totals window = {0};
    oct_step_totals_add(&window, 1, &(oct_step_result){.loss = 1, .metric = 100, .samples = 30});
    oct_step_totals_add(&window, 1, &(oct_step_result){.loss = 5, .metric = 20, .samples = 10});
    cr_assert_eq(window.steps, 2);
    cr_assert_float_eq(window.loss_sum / (double)window.samples, 2, 1e-12);
    cr_assert_float_eq(window.metric_sum / (double)window.samples, 80, 1e-12);
    cr_assert_float_eq(oct_step_totals_rate(&window), 20, 1e-12);
    cr_assert_eq(oct_step_totals_rate(&(oct_step_totals){0}), 0);
}
