/* Lines for people: prefixes, indentation, levels, the bar, silence, the log file. */
#include "core/base/log.h"

#include "tests/support/tmp.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Until a program asks for lines there are none. */
static void begin(void)
{
    cr_redirect_stderr();
    oct_log(OCT_LOG_ERROR, "nobody asked");
    oct_log_anyone(OCT_LOG_ERROR, "nobody asked");
    oct_log_bar("nobody asked");
    oct_log_setup(OCT_LOG_INFO, true);
}

TestSuite(log, .init = begin);

Test(log, each_level_has_its_word)
{
    oct_log_setup(OCT_LOG_VERBOSE, true);
    oct_log(OCT_LOG_INFO, "step %d", 3);
    oct_log(OCT_LOG_WARN, "slow");
    oct_log(OCT_LOG_ERROR, "bad");
    oct_log(OCT_LOG_VERBOSE, "detail");
    cr_assert_stderr_eq_str(
        "octet: step 3\noctet: warning: slow\noctet: error: bad\noctet: detail\n");
}

Test(log, further_lines_of_a_problem_are_indented)
{
    oct_log(OCT_LOG_ERROR, "%s", "a.yaml:3:7: no such key\n    batsh: 8\n    ^");
    cr_assert_stderr_eq_str("octet: error: a.yaml:3:7: no such key\n       batsh: 8\n       ^\n");
}

Test(log, levels_below_the_wanted_are_not_shown)
{
    oct_log_setup(OCT_LOG_WARN, true);
    oct_log(OCT_LOG_INFO, "a");
    oct_log_bar("b");
    oct_log(OCT_LOG_WARN, "c");
    cr_assert_stderr_eq_str("octet: warning: c\n");
}

Test(log, what_is_done_again_says_errors_alone)
{
    oct_log(OCT_LOG_WARN, "once");
    oct_log_again(true);
    oct_log(OCT_LOG_WARN, "twice");
    oct_log(OCT_LOG_ERROR, "failed");
    oct_log_again(false);
    oct_log(OCT_LOG_INFO, "then");
    cr_assert_stderr_eq_str("octet: warning: once\noctet: error: failed\noctet: then\n");
}

Test(log, a_bar_is_wiped_by_what_follows)
{
    oct_log_bar("10 %%");
    oct_log_bar("20 %%");
    oct_log(OCT_LOG_INFO, "done");
    oct_log(OCT_LOG_INFO, "really");
    cr_assert_stderr_eq_str("10 %\r\033[K20 %\r\033[Koctet: done\noctet: really\n");
}

Test(log, a_silent_process_says_and_opens_nothing)
{
    oct_log_setup(OCT_LOG_INFO, false);
    cr_assert_eq(oct_log_file("/no/such/folder/log.txt"), OCT_OK);
    oct_log(OCT_LOG_ERROR, "a");
    oct_log_bar("b");
    cr_assert_stderr_eq_str("");
}

/* Blanks out the digits of the times at the beginning of lines. */
static void mask_times(char *text)
{
    for (char *line = text; line && *line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        for (char *c = line; *c && *c != ' ' && *c != '\n'; c++)
            if (*c >= '0' && *c <= '9') *c = '0';
    }
}

Test(log, the_file_gets_every_line_with_its_time_but_no_bar)
{
    char path[64], text[200] = "";
    snprintf(path, sizeof path, "/tmp/octet_test_log_%d", (int)getpid());
    cr_assert_eq(oct_log_file(path), OCT_OK);
    oct_log(OCT_LOG_VERBOSE, "hidden");
    oct_log_bar("bar");
    oct_log(OCT_LOG_WARN, "two\nlines");
    cr_assert_eq(oct_log_file(NULL), OCT_OK);
    oct_log(OCT_LOG_WARN, "after");
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    size_t read = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    unlink(path);
    cr_assert_gt(read, 0);
    mask_times(text);
    cr_assert_str_eq(text, "0000-00-00T00:00:00Z octet: hidden\n"
                           "0000-00-00T00:00:00Z octet: warning: two\n   lines\n");
}

Test(log, a_file_that_cannot_be_opened_is_an_error)
{
    cr_assert_eq(oct_log_file("/no/such/folder/log.txt"), OCT_RESOURCE);
    cr_assert_str_eq(oct_error_message(0),
                     "/no/such/folder/log.txt: cannot be opened for the log: No "
                     "such file or directory");
}

Test(log, a_link_or_a_pipe_is_not_followed)
{
    oct_tmp tmp;
    oct_tmp_create(&tmp);
    const char *link = oct_tmp_path(&tmp, "link"), *pipe = oct_tmp_path(&tmp, "pipe");
    cr_assert_eq(symlink(oct_tmp_write_text(&tmp, "elsewhere", ""), link), 0);
    cr_assert_eq(mkfifo(pipe, 0600), 0);
    cr_assert_eq(oct_log_file(link), OCT_RESOURCE);
    cr_assert(
        strstr(oct_error_message(0), "link: the log is not written through a link or into a pipe"));
    cr_assert_eq(oct_log_file(pipe), OCT_RESOURCE);
    oct_tmp_remove(&tmp);
}

Test(log, a_full_disk_is_said_once_and_stops_nothing)
{
    cr_assert_eq(oct_log_file("/dev/full"), OCT_OK);
    oct_log(OCT_LOG_INFO, "one");
    oct_log(OCT_LOG_INFO, "two");
    cr_assert_stderr_eq_str("octet: one\noctet: warning: the log file cannot be written (No space "
                            "left on device); going on without it\noctet: two\n");
}

Test(log, a_line_too_long_is_cut_at_its_end)
{
    static char big[30000];
    memset(big, '\n', sizeof big - 1);
    oct_log(OCT_LOG_INFO, "%s", big);
    memset(big, 'x', sizeof big - 1);
    oct_log(OCT_LOG_INFO, "%s", big);
}
