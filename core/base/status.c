/* Each thread has a failure record.
 *
 * A failure must be sayable when memory is out, so the record is a fixed area of the thread: texts
 * one after another, each ended by NUL. What does not fit is counted, and the last problem then
 * says how many more there were.
 */
#include "core/base/status.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AREA = 16384, PROBLEMS = 64 };

typedef struct record {
    oct_status code;
    size_t count;           /* problems held */
    size_t more;            /* problems that found no room */
    size_t begin[PROBLEMS]; /* in area */
    size_t used;            /* bytes of area */
    char area[AREA];
    char more_text[64];
} record;

static _Thread_local record current;
static void (*_Atomic stop_hook)(void);

static const struct {
    int exit;
    const char *meaning;
} statuses[] = {
#define X(name, exit, text) [OCT_##name] = {exit, text},
    OCT_STATUS_LIST(X)
#undef X
};
_Static_assert(OCT_COUNT(statuses) == OCT_PEER + 1, "the list has every status");

/* Adds a problem to the record, or to a new one; `more` counts those without room. */
static oct_status add_problem(oct_status code, bool new_record, const char *text)
{
    if (new_record || current.code == OCT_OK) {
        oct_fail_clear();
        current.code = code;
    }
    size_t bytes = strlen(text) + 1;
    if (current.count > 0 && (current.count == PROBLEMS - 1 || current.used + bytes > AREA)) {
        current.more++;
        snprintf(current.more_text, sizeof current.more_text, "and %zu more", current.more);
        return current.code;
    }
    memcpy(current.area + current.used, text, bytes);
    current.begin[current.count++] = current.used;
    current.used += bytes;
    return current.code;
}

/* Texts are formatted aside first, since an argument may point into the record. */
oct_status(oct_fail)(oct_status code, const char *format, ...)
{
    char text[AREA];
    OCT_PRINT_ARGS(text, format);
    return add_problem(code, true, text);
}

oct_status(oct_fail_add)(oct_status code, const char *format, ...)
{
    char text[AREA];
    OCT_PRINT_ARGS(text, format);
    return add_problem(code, false, text);
}

oct_status(oct_fail_prefix)(const char *format, ...)
{
    if (current.count == 0) return current.code;
    char text[AREA];
    OCT_PRINT_ARGS(text, format);
    const size_t length = strlen(text), bytes = length + 2;
    if (current.used + bytes > AREA) return current.code;
    memcpy(text + length, ": ", 2);
    memmove(current.area + bytes, current.area, current.used);
    memcpy(current.area, text, bytes);
    for (size_t i = 1; i < current.count; i++)
        current.begin[i] += bytes;
    current.used += bytes;
    return current.code;
}

void oct_fail_clear(void)
{
    current.code = OCT_OK;
    current.count = 0;
    current.more = 0;
    current.used = 0;
}

oct_status oct_fail_code(void)
{
    return current.code;
}

size_t oct_error_count(void)
{
    return current.count + (current.more > 0);
}

const char *oct_error_message(size_t problem)
{
    if (problem < current.count) return current.area + current.begin[problem];
    return problem == current.count && current.more > 0 ? current.more_text : "";
}

const char OCT_HEADERS = 0;

const char *oct_version(void)
{
    return OCT_VERSION;
}

int oct_status_exit(oct_status status)
{
    return (size_t)status < OCT_COUNT(statuses) ? statuses[status].exit : statuses[OCT_DEFECT].exit;
}

const char *oct_status_meaning(oct_status status)
{
    return (size_t)status < OCT_COUNT(statuses) ? statuses[status].meaning
                                                : statuses[OCT_DEFECT].meaning;
}

void oct_assert_hook(void (*stop)(void))
{
    atomic_store(&stop_hook, stop);
}

void oct_assert_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "octet: error: %s:%d: broken invariant: %s; this is a defect in Octet\n", file,
            line, condition);
    fflush(stderr);
    void (*stop)(void) = atomic_exchange(&stop_hook, NULL); /* once, as it may fail itself */
    if (stop) stop();
    abort();
}
