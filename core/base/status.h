/* Everything in Octet fails in one way: a code that names the kind of failure, and one record per
 * thread that holds the sentences for the user.
 *
 * A function that can fail returns oct_status and gives results through pointers. The code decides
 * the exit status of the program (oct_status_exit); the record decides what is printed. One failure
 * may hold several problems (ten mistakes in a recipe), each a sentence of its own.
 */
#pragma once

#include "core/base/c_locale.h"

#include <octet/status.h>

/* name, exit status of the program, meaning */
#define OCT_STATUS_LIST(X)                                                                         \
    X(OK, 0, "done")                                                                               \
    X(MISMATCH, 1, "done, and the answer is no")                                                   \
    X(USAGE, 2, "the command line or the recipe is wrong; nothing was started")                    \
    X(DATA, 3, "an input file is missing, damaged or not what it should be")                       \
    X(PREPARE, 4, "the model cannot be prepared for this target")                                  \
    X(NUMERIC, 5, "training failed numerically")                                                   \
    X(LOST, 6, "a rank is lost, stuck or diverged")                                                \
    X(RESOURCE, 7, "the disk is full, memory is out or a permission is missing")                   \
    X(DEFECT, 70, "a defect in Octet")                                                             \
    X(STOPPED, 75, "stopped as requested, with a checkpoint: repeat the command to continue")      \
    X(PEER, 6, "another rank failed first; its sentence is printed, not ours")

/* Adds a problem to the record (starts one when there is none). A problem may have several lines,
 * separated by '\n': the first is the sentence, the others are context printed indented below. */
oct_status oct_fail_add(oct_status code, const char *format, ...) OCT_PRINTF(2, 3);

/* Puts "prefix: " before the first problem of the record; for a caller that knows the file or the
 * module's path. Returns the record's code. */
oct_status oct_fail_prefix(const char *format, ...) OCT_PRINTF(1, 2);

void oct_fail_clear(void);
oct_status oct_fail_code(void);

int oct_status_exit(oct_status status);
const char *oct_status_meaning(oct_status status);

/* Before a declaration: calls release(&variable) when the variable goes out of scope, by whatever way. Variables are
 * released in the order that is opposite to that of their declarations. json_auto_t does it for JSON. */
#define OCT_OWNED(release) __attribute__((cleanup(release)))

/* Forwards the failure of a call in a function whose releases depend on how it ends: sets its `status` and goes to its
 * label `out`. Others let OCT_OWNED release. */
#define OCT_TRY_OUT(call)                                                                          \
    do {                                                                                           \
        status = (call);                                                                           \
        if (status != OCT_OK) goto out;                                                            \
    } while (0)

/* Fails here, with a sentence for the user, unless the condition holds. */
#define OCT_CHECK(condition, code, ...)                                                            \
    do {                                                                                           \
        if (!(condition)) return oct_fail((code), __VA_ARGS__);                                    \
    } while (0)

#define OCT_CHECK_OUT(condition, code, ...)                                                        \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            status = oct_fail((code), __VA_ARGS__);                                                \
            goto out;                                                                              \
        }                                                                                          \
    } while (0)

/* Ends the program at a broken invariant: prints place and condition, calls the stop hook (dist
 * installs one that ends the whole job) and aborts. Never compiled out. */
#define OCT_ASSERT(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) oct_assert_failed(#condition, __FILE__, __LINE__);                       \
    } while (0)

void oct_assert_failed(const char *condition, const char *file, int line) __attribute__((noreturn));
void oct_assert_hook(void (*stop)(void));

#define OCT_COUNT(array) (sizeof(array) / sizeof((array)[0]))
