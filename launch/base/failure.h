/* Failures become lines on stderr here and nowhere else. */
#pragma once

#include "core/base/status.h"

/* Prints the thread's record, each problem once:
 *     octet: error: recipe.yaml:3:1: unknown key 'optimizer.lrr'
 *         3 | lrr: 0.1
 * and after several problems how many there were. `status` is what the command returned; OCT_OK and
 * an OCT_PEER without a record print nothing. argc, argv: the command line, for OCT_DEFECT. */
void oct_failure_print(oct_status status, int argc, char **argv);

/* From now on what is printed also goes to this log file, where it is there. */
void oct_failure_log(const char *path);

/* After this nothing is printed: it has been said, here or by another rank. */
void oct_failure_silence(void);
bool oct_failure_silent(void);

/* Gives the exit status: that of the record's code where another rank failed first. */
int oct_failure_exit(oct_status status);
