/* Results go to stdout, failures become lines on stderr here and nowhere else. The first failure of a write to stdout (a
 * full disk, no memory) is kept, what follows it is dropped, and oct_print_flush returns it: then the command fails. A
 * reader that closes its pipe early, as head does, has read enough: what is left is dropped and nothing has failed. */
#pragma once

#include "core/base/text.h"

/* Prints to stdout, control characters replaced; a write that fails is kept for oct_print_flush. */
void oct_print(const char *format, ...) OCT_PRINTF(1, 2);
struct json_t;
/* Prints one JSON document and a newline, and frees the document. NULL: there was no memory for it. */
void oct_print_json(struct json_t *document);
/* A text as JSON, which has to be UTF-8: bytes of another text that cannot be printed are replaced (new reference). NULL
 * for NULL. */
struct json_t *oct_json_string(const char *text);
/* A number as JSON, which has no infinity and no NaN: null in their place (new reference). */
struct json_t *oct_json_number(double value);
struct json_t *oct_json_reals(const double *values, size_t count); /* an array (new reference) */
/* Adds a JSON document to a text. NULL is OCT_RESOURCE. */
oct_status oct_json_text(oct_text *text, const struct json_t *document, size_t flags);
/* Writes out what is buffered: OCT_RESOURCE when it, or anything before, could not be written. main calls it after the
 * command. */
oct_status oct_print_flush(void);
/* Fails with the errno of a write to stdout that failed elsewhere; a reader that closed its pipe is no failure. */
oct_status oct_print_failed(int error);

/* Prints the thread's record, each problem once:
 *     octet: error: recipe.yaml:3:1: unknown key 'optimizer.lrr'
 *         3 | lrr: 0.1
 * and after several problems how many there were. `status` is what the command returned; OCT_OK and
 * an OCT_PEER without a record print nothing. argc, argv: the command line, for OCT_DEFECT. */
void oct_failure_print(oct_status status, int argc, char **argv);

/* From now on what is printed also goes to the log.txt of this run folder, where it is there, when all else is closed. */
void oct_failure_log(const char *folder);

/* After this nothing is printed: it has been said, here or by another rank. */
void oct_failure_silence(void);

/* Gives the exit status: that of the record's code where another rank failed first. */
int oct_failure_exit(oct_status status);
