/* Runs a command from a test: own process group, captured output, and an end in any case.
 *
 * stdin is /dev/null. When the time is over, the command and all its descendants are killed, also
 * those that left its group (mpirun gives every rank a group of its own). It ignores and blocks no signal, whatever
 * the test's own parent does. The environment is the test's: use setenv, every Criterion test is a process of its own.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct oct_process {
    int exit_code;  /* 128 + signal when a signal ended it, 127 when it could not be started */
    bool timed_out; /* killed; exit_code is 137 */
    double seconds;
    char *out, *err; /* NUL-terminated, never NULL */
} oct_process;

/* The command line ends with NULL: oct_process_run(10, OCT_PROGRAM, "check", "x.yaml", NULL). */
oct_process oct_process_run(double timeout_s, const char *program, ...) __attribute__((sentinel));
oct_process oct_run_args(double timeout_s, const char *const *argv);
void oct_process_free(oct_process *job);

bool oct_process_said(const oct_process *job, const char *text);      /* on stdout or stderr */
int oct_process_said_times(const oct_process *job, const char *text); /* how often, both streams */

/* True with OCT_LONG=1 in the environment, as in the suite `tests/run --long`: tests take all of their cases, not the first few. */
bool oct_test_is_long(void);

/* The octet program of this build. */
#define OCT_PROGRAM OCT_BINARY_DIR "/octet"

/* Shows both streams when a job did not end as wanted. */
#define oct_check_exit(job, code)                                                                  \
    cr_assert((job).exit_code == (code) && !(job).timed_out,                                       \
              "exit %d, wanted %d%s\n--- stdout\n%s\n--- stderr\n%s", (job).exit_code, (code),     \
              (job).timed_out ? " (timed out)" : "", (job).out, (job).err)

#define oct_check_said(job, text)                                                                  \
    cr_assert(oct_process_said(&(job), (text)),                                                    \
              "nobody said \"%s\"\n--- stdout\n%s\n--- stderr\n%s", (text), (job).out, (job).err)
