/* Every failure of stdout is seen: the first one sticks in the stream's error flag, and its reason is
 * taken when it happens. */
#include "launch/base/output.h"

#include "core/base/mem.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool reader_left;

oct_status oct_print_failed(int error)
{
    reader_left = error == EPIPE;
    if (reader_left) return OCT_OK;
    return oct_fail(OCT_RESOURCE, "standard output: cannot write results: %s", strerror(error));
}

static oct_status cannot_write(void)
{
    return oct_print_failed(errno);
}

oct_status oct_print(const char *format, ...)
{
    va_list list;
    char *text = NULL;
    if (reader_left) return OCT_OK;
    va_start(list, format);
    int length = oct_vsnprintf(NULL, 0, format, list);
    va_end(list);
    OCT_TRY(oct_alloc(&text, (size_t)(length > 0 ? length : 0) + 1, 1));
    va_start(list, format);
    int written = oct_vsnprintf(text, (size_t)length + 1, format, list);
    va_end(list);
    oct_text_clean(text);
    if (written >= 0) written = fputs(text, stdout);
    oct_free(&text);
    return written < 0 ? cannot_write() : OCT_OK;
}

oct_status oct_print_json(json_t *document)
{
    OCT_CHECK(document, OCT_RESOURCE, "not enough memory for the results as JSON");
    int failed = reader_left ? 0
                             : json_dumpf(document, stdout,
                                          JSON_INDENT(1) | JSON_REAL_PRECISION(9) |
                                              JSON_ENSURE_ASCII | JSON_ENCODE_ANY);
    json_decref(document);
    if (failed) OCT_TRY(cannot_write());
    return oct_print("\n");
}

json_t *oct_json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
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
    if (reader_left) return OCT_OK;
    return fflush(stdout) != 0 || ferror(stdout) ? cannot_write() : OCT_OK;
}
