/* All errors have one grammar: "octet: error: " and a sentence, its context indented below. The text is
 * composed first and written at once, so lines of several processes do not mix. */
#include "launch/base/failure.h"

#include "core/base/log.h"
#include "core/base/text.h"
#include "octet_version.h"

#include <stdio.h>
#include <string.h>

static bool silent;
static char log_path[4096];

void oct_failure_log(const char *path)
{
    snprintf(log_path, sizeof(log_path), "%s", path);
}

void oct_failure_silence(void)
{
    silent = true;
}

bool oct_failure_silent(void)
{
    return silent;
}

static oct_status add_problem(oct_text *out, oct_status status, const char *problem)
{
    /* An answer that is no, and a stop that was asked for, are no errors. */
    bool error = status != OCT_NO && status != OCT_STOPPED;
    OCT_TRY(oct_text_add(out, "octet: %s", error ? "error: " : ""));
    for (;;) {
        size_t length = strcspn(problem, "\n");
        OCT_TRY(oct_text_add(out, "%.*s\n", (int)length, problem));
        if (problem[length] == '\0' || problem[length + 1] == '\0') return OCT_OK;
        problem += length + 1;
        OCT_TRY(oct_text_add(out, "    "));
    }
}

static oct_status compose_failure(oct_text *out, oct_status status, int argc, char **argv)
{
    size_t count = oct_fail_count();
    if (count == 0) OCT_TRY(add_problem(out, status, oct_status_meaning(status)));
    for (size_t i = 0; i < count; i++)
        OCT_TRY(add_problem(out, status, oct_fail_text(i)));
    if (oct_failure_exit(status) == oct_status_exit(OCT_DEFECT)) {
        OCT_TRY(oct_text_add(
            out, "    This is a defect in Octet. Please report it with the line above,\n"
                 "    the version (" OCT_VERSION ") and the command line:\n    "));
        for (int i = 0; i < argc; i++)
            OCT_TRY(oct_text_add(out, "%s%s", i ? " " : "", argv[i]));
        OCT_TRY(oct_text_add(out, "\n"));
    }
    if (count > 1)
        OCT_TRY(oct_text_add(
            out, "octet: %zu problems%s (exit %d)\n", count,
            oct_failure_exit(status) == oct_status_exit(OCT_USAGE) ? ", nothing was started" : "",
            oct_failure_exit(status)));
    return OCT_OK;
}

int oct_failure_exit(oct_status status)
{
    bool theirs = status == OCT_PEER && oct_fail_count() > 0 && oct_fail_code() != OCT_OK;
    return oct_status_exit(theirs ? oct_fail_code() : status);
}

void oct_failure_print(oct_status status, int argc, char **argv)
{
    if (silent || status == OCT_OK || (status == OCT_PEER && oct_fail_count() == 0)) return;
    oct_text out = {0};
    /* Without memory for the text the sentence goes out piece by piece. */
    if (compose_failure(&out, status, argc, argv) == OCT_OK) {
        oct_text_clean(out.data);
        oct_log_bar_end();
        fputs(out.data, stderr);
        oct_log_heard(out.data);
        if (log_path[0]) oct_log_append(log_path, out.data);
    } else {
        char text[1024];
        snprintf(text, sizeof text, "%s",
                 oct_fail_count() ? oct_fail_text(0) : oct_status_meaning(status));
        oct_text_clean(text);
        fprintf(stderr, "octet: error: %s\n", text);
    }
    fflush(stderr);
    oct_text_free(&out);
}
