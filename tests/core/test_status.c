/* The failure record: problems in order, prefixes, what happens when it is full, exit codes. */
#include "core/base/status.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static oct_status check_positive(int x)
{
    OCT_CHECK(x > 0, OCT_USAGE, "x is %d; use a positive number", x);
    return OCT_OK;
}

static oct_status forward(int x)
{
    OCT_TRY(check_positive(x));
    return OCT_OK;
}

static oct_status with_release(int x, int *released)
{
    oct_status status;
    OCT_TRY_OUT(check_positive(x));
    OCT_CHECK_OUT(x < 10, OCT_DATA, "x is %d; use less than 10", x);
out:
    ++*released;
    return status;
}

Test(status, starts_without_a_problem)
{
    cr_assert_eq(oct_fail_code(), OCT_OK);
    cr_assert_eq(oct_error_count(), 0);
    cr_assert_str_eq(oct_error_message(0), "");
    cr_assert_eq(oct_fail_prefix("file"), OCT_OK);
    cr_assert_eq(oct_error_count(), 0);
}

Test(status, a_check_fails_with_its_sentence_through_try)
{
    cr_assert_eq(forward(1), OCT_OK);
    cr_assert_eq(forward(-3), OCT_USAGE);
    cr_assert_eq(oct_fail_code(), OCT_USAGE);
    cr_assert_eq(oct_error_count(), 1);
    cr_assert_str_eq(oct_error_message(0), "x is -3; use a positive number");
}

Test(status, the_out_label_is_reached_on_every_way)
{
    int released = 0;
    cr_assert_eq(with_release(5, &released), OCT_OK);
    cr_assert_eq(with_release(-5, &released), OCT_USAGE);
    cr_assert_eq(with_release(50, &released), OCT_DATA);
    cr_assert_str_eq(oct_error_message(0), "x is 50; use less than 10");
    cr_assert_eq(released, 3);
}

Test(status, fail_starts_anew_and_add_keeps_the_first_code)
{
    cr_assert_eq(oct_fail(OCT_DATA, "old"), OCT_DATA);
    cr_assert_eq(oct_fail(OCT_USAGE, "one"), OCT_USAGE);
    cr_assert_eq(oct_fail_add(OCT_RESOURCE, "two %s", "words"), OCT_USAGE);
    cr_assert_eq(oct_error_count(), 2);
    cr_assert_str_eq(oct_error_message(0), "one");
    cr_assert_str_eq(oct_error_message(1), "two words");
    oct_fail_clear();
    cr_assert_eq(oct_error_count(), 0);
    cr_assert_eq(oct_fail_add(OCT_RESOURCE, "three"), OCT_RESOURCE);
    cr_assert_eq(oct_fail_code(), OCT_RESOURCE);
}

Test(status, prefixes_go_before_the_first_problem_only)
{
    (void)oct_fail(OCT_USAGE, "first");
    (void)oct_fail_add(OCT_USAGE, "second");
    cr_assert_eq(oct_fail_prefix("inner %d", 1), OCT_USAGE);
    (void)oct_fail_prefix("outer");
    cr_assert_str_eq(oct_error_message(0), "outer: inner 1: first");
    cr_assert_str_eq(oct_error_message(1), "second");
}

Test(status, the_record_may_be_an_argument_of_its_successor)
{
    (void)oct_fail(OCT_DATA, "the cause");
    (void)oct_fail(OCT_LOST, "rank 3: %s", oct_error_message(0));
    cr_assert_str_eq(oct_error_message(0), "rank 3: the cause");
    (void)oct_fail_add(OCT_LOST, "again %s", oct_error_message(0));
    cr_assert_str_eq(oct_error_message(1), "again rank 3: the cause");
}

Test(status, problems_beyond_the_room_are_counted)
{
    for (int i = 0; i < 100; i++)
        (void)oct_fail_add(OCT_USAGE, "problem %d", i);
    cr_assert_eq(oct_error_count(), 64);
    cr_assert_str_eq(oct_error_message(62), "problem 62");
    cr_assert_str_eq(oct_error_message(63), "and 37 more");
    cr_assert_str_eq(oct_error_message(64), "");
}

Test(status, texts_beyond_the_room_are_counted_or_cut)
{
    static char big[20000];
    memset(big, 'x', sizeof big - 1);
    (void)oct_fail(OCT_USAGE, "%s", big);
    cr_assert_eq(strlen(oct_error_message(0)), 16383);
    (void)oct_fail_add(OCT_USAGE, "second");
    cr_assert_str_eq(oct_error_message(1), "and 1 more");
    (void)oct_fail_prefix("no room");
    cr_assert_eq(strlen(oct_error_message(0)), 16383);
    (void)oct_fail(OCT_USAGE, "after");
    cr_assert_eq(oct_error_count(), 1);
}

static void *fail_elsewhere(void *unused)
{
    (void)unused;
    size_t before = oct_error_count();
    (void)oct_fail(OCT_NUMERIC, "elsewhere");
    return before == 0 ? NULL : (void *)&fail_elsewhere;
}

Test(status, each_thread_has_its_own_record)
{
    (void)oct_fail(OCT_DATA, "here");
    pthread_t thread;
    void *wrong;
    pthread_create(&thread, NULL, fail_elsewhere, NULL);
    pthread_join(thread, &wrong);
    cr_assert_null(wrong);
    cr_assert_eq(oct_fail_code(), OCT_DATA);
    cr_assert_str_eq(oct_error_message(0), "here");
}

Test(status, exit_codes_are_the_documented_ones)
{
    cr_assert_eq(oct_status_exit(OCT_OK), 0);
    cr_assert_eq(oct_status_exit(OCT_MISMATCH), 1);
    cr_assert_eq(oct_status_exit(OCT_USAGE), 2);
    cr_assert_eq(oct_status_exit(OCT_DATA), 3);
    cr_assert_eq(oct_status_exit(OCT_PREPARE), 4);
    cr_assert_eq(oct_status_exit(OCT_NUMERIC), 5);
    cr_assert_eq(oct_status_exit(OCT_LOST), 6);
    cr_assert_eq(oct_status_exit(OCT_PEER), 6);
    cr_assert_eq(oct_status_exit(OCT_RESOURCE), 7);
    cr_assert_eq(oct_status_exit(OCT_DEFECT), 70);
    cr_assert_eq(oct_status_exit(OCT_STOPPED), 75);
    cr_assert_eq(oct_status_exit((oct_status)1000), 70);
    cr_assert_str_eq(oct_status_meaning(OCT_OK), "done");
    cr_assert_str_eq(oct_status_meaning((oct_status)1000), oct_status_meaning(OCT_DEFECT));
}

static void leave_with_9(void)
{
    _exit(9);
}

Test(status, a_broken_invariant_calls_the_stop_hook, .exit_code = 9)
{
    oct_assert_hook(leave_with_9);
    OCT_ASSERT(1 + 1 == 2);
    OCT_ASSERT(1 + 1 == 3);
}

static void nothing(void)
{
}

Test(status, a_broken_invariant_aborts, .signal = SIGABRT)
{
    oct_assert_hook(nothing);
    OCT_ASSERT(1 + 1 == 3);
}
