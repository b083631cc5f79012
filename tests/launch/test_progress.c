/* What a run shows: counts, times, when there is a bar, and the rate over the last steps. */
#include "core/base/log.h"
#include "launch/base/meter.h"
#include "launch/train/training_impl.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

Test(progress, counts_are_grouped_by_thousands)
{
    cr_assert_str_eq(oct_text_count(0).text, "0");
    cr_assert_str_eq(oct_text_count(999).text, "999");
    cr_assert_str_eq(oct_text_count(1000).text, "1,000");
    cr_assert_str_eq(oct_text_count(1234567).text, "1,234,567");
    cr_assert_str_eq(oct_text_count(-123456).text, "-123,456");
    cr_assert_str_eq(oct_text_count(INT64_MIN).text, "-9,223,372,036,854,775,808");
}

Test(progress, times_are_short_and_never_negative)
{
    cr_assert_str_eq(oct_text_time(0).text, "0:00");
    cr_assert_str_eq(oct_text_time(75.2).text, "1:15");
    cr_assert_str_eq(oct_text_time(3675).text, "1:01:15");
    cr_assert_str_eq(oct_text_time(-5).text, "0:00");
    cr_assert_str_eq(oct_text_time(1.0 / 0.0).text, "277777:46:40");
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

/* Meters of long commands. */

static void wait_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* Half of 3,000 images are done in a third of a second. */
static void go_on(const char *choice, int64_t done)
{
    oct_meter meter;
    oct_meter_choose(choice);
    oct_meter_begin(&meter, "evaluate", "images", 3000);
    oct_meter_show(&meter, 1);
    wait_ms(330);
    oct_meter_show(&meter, done);
    oct_meter_show(&meter, done); /* not due */
    oct_meter_end(&meter);
}

static void read_stderr(char *text, size_t size)
{
    FILE *file = cr_get_redirected_stderr();
    const size_t length = fread(text, 1, size - 1, file);
    text[length] = '\0';
}

static void listen(void)
{
    cr_redirect_stderr();
    oct_log_setup(OCT_LOG_INFO, true); /* a library is silent */
}

Test(progress, a_meter_is_one_bar_that_goes_away, .init = listen)
{
    char text[512], work[64], wiped[16] = "";
    long long rate;
    go_on("bar", 1500);
    fflush(stderr);
    read_stderr(text, sizeof text);
    const char *words = strchr(text, ']');
    cr_assert(words && text[0] == '[', "%s", text);
    cr_assert_eq(strspn(text + 1, "#"), strcspn(strchr(text, '-'), "]"), "half of it: %s", text);
    cr_assert_eq(sscanf(words, "] 50 %% left 0:00 %12[a-z] 1,500/3,000 images %lld,", work, &rate),
                 2, "%s", text);
    cr_assert_str_eq(work, "evaluate");
    cr_assert(rate >= 1 && rate <= 4, "thousands a second: %lld", rate);
    const char *last = strstr(text, "images/s");
    cr_assert(last, "%s", text);
    snprintf(wiped, sizeof wiped, "%s", last + strlen("images/s"));
    cr_assert_str_eq(wiped, "\r\033[K");
}

Test(progress, a_meter_says_nothing_before_a_line_is_due, .init = listen)
{
    go_on("lines", 1500);
    go_on("none", 1500);
    go_on("bar", 0);
    fflush(stderr);
    cr_assert_stderr_eq_str("");
}
