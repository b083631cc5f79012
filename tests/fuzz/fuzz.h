/* Fuzz targets: fuzz_NAME.c each, over one reader of untrusted bytes.
 *
 * A target defines LLVMFuzzerTestOneInput, and LLVMFuzzerCustomMutator where bytes changed at random
 * would not get past a checksum. The same file is linked with driver.c, which changes seeds by Philox
 * draws and needs nothing else, and by clang with libFuzzer, which is guided by coverage (README.md).
 */
#pragma once

#include "core/base/text.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* Changes `size` bytes in place, to at most `max`; returns the new size. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

extern const char *const fuzz_name;
/* Calls fuzz_seed for each file of the corpus: small and good ones, one for each kind of content. */
void fuzz_seeds(void);
void fuzz_seed(const void *data, size_t size);
/* Words that a text of this kind is made of, NULL at the end; or NULL for bytes. */
extern const char *const *const fuzz_words;

/* support.c */

/* One change of the bytes: flips, numbers at the edge of their range, copies, cuts, words. */
size_t fuzz_mutate(uint8_t *data, size_t size, size_t max, uint64_t seed);
/* A file with these bytes in this process's own folder of memory; its path stays good until the end. */
const char *fuzz_file(const char *name, const void *data, size_t size);
const char *fuzz_folder(void);

/* Around a call of the reader that is tested. At the end: the status is one of `allowed` (a bit for
 * each, FUZZ_BIT), a failure has sentences without control characters, and the first names `what`
 * (NULL: need not); no memory is held that was not before, and the peak was at most `factor` times the
 * input and `fixed` bytes. */
typedef struct fuzz_call {
    size_t live, size;
} fuzz_call;
#define FUZZ_BIT(status) (1U << (status))
fuzz_call fuzz_begin(size_t size);
void fuzz_said(oct_status status, unsigned allowed, const char *what);
void fuzz_end(const fuzz_call *call, size_t factor, size_t fixed);

/* What is read is what is written: `print` writes a thing as text, `reprint` reads that text and writes what
 * it has read; the two texts must be the same. */
void fuzz_round_trip(const void *thing, oct_status (*print)(const void *thing, oct_text *text),
                     oct_status (*reprint)(const void *thing, const oct_text *first,
                                           oct_text *second));

/* Ends the process when the condition does not hold: a finding. */
#define FUZZ_REQUIRE(condition, ...)                                                               \
    do {                                                                                           \
        if (!(condition)) fuzz_found(__FILE__, __LINE__, __VA_ARGS__);                             \
    } while (0)
/* What a target needs and is not tested by it. */
#define MAKE(call)                                                                                 \
    FUZZ_REQUIRE((call) == OCT_OK, "%s", oct_error_count() ? oct_error_message(0) : "not made")
_Noreturn void fuzz_found(const char *file, int line, const char *format, ...) OCT_PRINTF(3, 4);
