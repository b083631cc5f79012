/* What the program prints: results on stdout, failures on stderr.
 *
 * The first failure of stdout sticks, with its reason, until oct_print_flush reports it. All errors have one grammar:
 * "octet: error: " and a sentence, its context indented below. The text is composed first and written at once, so
 * lines of several processes do not mix. */
#include "launch/base/output.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include <octet/version.h>

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool writes_no_more; /* the reader left, or a write failed */
static int first_error;     /* errno of that write; 0: none */

static void fail_to_write(int error)
{
    if (writes_no_more) return;
    writes_no_more = true;
    first_error = error == EPIPE ? 0 : error;
}

oct_status oct_print_failed(int error)
{
    fail_to_write(error);
    if (first_error == 0) return OCT_OK;
    return oct_fail(OCT_RESOURCE, "standard output: cannot write results: %s",
                    strerror(first_error));
}

void oct_print(const char *format, ...)
{
    va_list list;
    OCT_OWNED(oct_free) char *text = NULL;
    if (writes_no_more) return;
    va_start(list, format);
    const int length = oct_vsnprintf(NULL, 0, format, list);
    va_end(list);
    if (length < 0 || oct_alloc(&text, (size_t)length + 1, 1) != OCT_OK) {
        fail_to_write(ENOMEM);
        return;
    }
    va_start(list, format);
    oct_vsnprintf(text, (size_t)length + 1, format, list);
    va_end(list);
    oct_text_clean(text);
    if (fputs(text, stdout) < 0) fail_to_write(errno);
}

void oct_print_json(json_t *document)
{
    const size_t flags =
        JSON_INDENT(1) | JSON_REAL_PRECISION(9) | JSON_ENSURE_ASCII | JSON_ENCODE_ANY;
    if (!document) fail_to_write(ENOMEM);
    errno = 0; /* it also fails where it writes nothing, such as for lack of memory */
    if (!writes_no_more && json_dumpf(document, stdout, flags) != 0)
        fail_to_write(errno ? errno : ENOMEM);
    json_decref(document);
    oct_print("\n");
}

json_t *oct_json_string(const char *text)
{
    json_t *json = json_string(text);
    OCT_OWNED(oct_free) char *clean = NULL;
    if (json || !text || oct_strdup(&clean, text) != OCT_OK) return json;
    oct_text_clean(clean);
    return json_string(clean);
}

json_t *oct_json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *oct_json_reals(const double *values, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(array, json_real(values[i]));
    return array;
}

static int add_bytes(const char *bytes, size_t size, void *text)
{
    return oct_text_add(text, "%.*s", (int)size, bytes) == OCT_OK ? 0 : -1;
}

oct_status oct_json_text(oct_text *text, const json_t *document, size_t flags)
{
    OCT_CHECK(document && json_dump_callback(document, add_bytes, text,
                                             flags | JSON_REAL_PRECISION(9)) == 0,
              OCT_RESOURCE, "out of memory for JSON");
    return OCT_OK;
}

oct_status oct_print_flush(void)
{
    if (!writes_no_more && fflush(stdout) != 0) fail_to_write(errno);
    return writes_no_more ? oct_print_failed(first_error) : OCT_OK;
}

/* Failures. */

static bool silent;
static char log_path[4096];

void oct_failure_log(const char *folder)
{
    const int length = snprintf(log_path, sizeof(log_path), "%s/log.txt", folder);
    if ((size_t)length >= sizeof(log_path)) log_path[0] = '\0';
}

void oct_failure_silence(void)
{
    silent = true;
}

static oct_status add_problem(oct_text *out, oct_status status, const char *problem)
{
    /* An answer that is no, and a stop that was asked for, are no errors. */
    bool error = status != OCT_MISMATCH && status != OCT_STOPPED;
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
    size_t count = oct_error_count();
    if (count == 0) OCT_TRY(add_problem(out, status, oct_status_meaning(status)));
    for (size_t i = 0; i < count; i++)
        OCT_TRY(add_problem(out, status, oct_error_message(i)));
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
    bool theirs = status == OCT_PEER && oct_error_count() > 0 && oct_fail_code() != OCT_OK;
    return oct_status_exit(theirs ? oct_fail_code() : status);
}

void oct_failure_print(oct_status status, int argc, char **argv)
{
    if (silent || status == OCT_OK || (status == OCT_PEER && oct_error_count() == 0)) return;
    OCT_OWNED(oct_text_free) oct_text out = {0};
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
                 oct_error_count() ? oct_error_message(0) : oct_status_meaning(status));
        oct_text_clean(text);
        fprintf(stderr, "octet: error: %s\n", text);
    }
    fflush(stderr);
}
