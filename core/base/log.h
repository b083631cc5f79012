/* The log writes lines for people, on stderr and in the run folder's log.txt. Ranks other than 0
 * are silent here: what all ranks know is said once. */
#pragma once

#include "core/base/status.h"

typedef enum oct_log_level {
    OCT_LOG_SILENT = -1,
    OCT_LOG_ERROR,
    OCT_LOG_WARN,
    OCT_LOG_INFO,
    OCT_LOG_VERBOSE
} oct_log_level;

/* Sets which lines go to stderr and whether this process speaks at all. The default is SILENT: stderr belongs to the
 * program that calls. */
void oct_log_setup(oct_log_level level, bool speaks);

/* From now on also appends every line, after its time (UTC), to this file, in place of the one before; NULL stops. A
 * process that does not speak opens none. OCT_RESOURCE if it cannot be opened, is a link or a pipe; the log then stays as it
 * was. */
oct_status oct_log_file(const char *path);

/* Appends the time and a line that another process has already printed to an existing log file; where that fails, does
 * nothing. */
void oct_log_append(const char *path, const char *text);

/* From now on errors are also given to this function, as they are written. */
void oct_log_hear(void (*hear)(const char *text));
void oct_log_heard(const char *text); /* of an error that is written elsewhere */

/* Leaves out all lines but errors while something is done once more, which would be said twice. */
void oct_log_again(bool again);

/* Writes "octet: text", "octet: warning: text" or "octet: error: text". */
void oct_log(oct_log_level level, const char *format, ...) OCT_PRINTF(2, 3);

/* Writes a line from any rank, also where the log is silent: what only this rank knows. */
void oct_log_anyone(oct_log_level level, const char *format, ...) OCT_PRINTF(2, 3);

/* Writes a progress line that the next line replaces (a bar on a terminal). */
void oct_log_bar(const char *format, ...) OCT_PRINTF(1, 2);
/* Takes the progress line away. */
void oct_log_bar_end(void);
