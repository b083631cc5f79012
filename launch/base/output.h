/* Results go to stdout. Writing may fail (a full disk); then the command fails too. A reader that
 * closes its pipe early, as head does, has read enough: what is left is dropped and nothing has
 * failed. */
#pragma once

#include "core/base/text.h"

oct_status oct_print(const char *format, ...) OCT_NODISCARD OCT_PRINTF(1, 2);
/* Prints one JSON document and a newline, and takes the document over. NULL is OCT_RESOURCE. */
struct json_t;
oct_status oct_print_json(struct json_t *document) OCT_NODISCARD;
/* A number as JSON, which has no infinity and no NaN: null in their place (new reference). */
struct json_t *oct_json_number(double value);
/* Adds a JSON document to a text. NULL is OCT_RESOURCE. */
oct_status oct_json_text(oct_text *text, const struct json_t *document, size_t flags) OCT_NODISCARD;
/* Writes out what is buffered; main calls it after the command. */
oct_status oct_print_flush(void) OCT_NODISCARD;
/* Judges the errno of a write to stdout that was made elsewhere. */
oct_status oct_print_failed(int error) OCT_NODISCARD;
