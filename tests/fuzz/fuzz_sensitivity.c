/* Sensitivity tables: read, and what is read is what is written. */
#include "core/base/mem.h"
#include "io/recipe/sensitivity_file.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

const char *const fuzz_name = "sensitivity";
static const char *const words[] = {"# octet sensitivity 1\n",
                                    "activation",
                                    "weight",
                                    "inf",
                                    "-inf",
                                    "nan",
                                    "1e400",
                                    "\t",
                                    "  ",
                                    "\n",
                                    "\r\n",
                                    "#",
                                    "layer1.0.conv1",
                                    "\x1b",
                                    "..",
                                    "0x1p3",
                                    NULL};
const char *const *const fuzz_words = words;

void fuzz_seeds(void)
{
    static const char good[] = "# octet sensitivity 1\n# a comment\n\t# and a set back one\n"
                               "layer1.0.conv1  activation  21.62  0.9965  0.0131\n"
                               "head  weight  inf  1  0\n";
    static const char none[] = "# octet sensitivity 1\n";
    fuzz_seed(good, strlen(good));
    fuzz_seed(none, strlen(none));
}

static oct_status print(const void *thing, oct_text *text)
{
    return oct_sensitivity_print(thing, NULL, text);
}

static oct_status reprint(const void *thing, const oct_text *first, oct_text *second)
{
    (void)thing;
    oct_sensitivity again = {0};
    OCT_TRY(
        oct_sensitivity_read(&again, fuzz_file("again.sensitivity", first->data, first->length)));
    oct_status status = print(&again, second);
    oct_sensitivity_free(&again);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    oct_sensitivity table = {0};
    const char *path = fuzz_file("input.sensitivity", data, size);
    fuzz_call call = fuzz_begin(size);
    oct_status status = oct_sensitivity_read(&table, path);
    fuzz_said(status, FUZZ_BIT(OCT_OK) | FUZZ_BIT(OCT_DATA), path);
    if (status == OCT_OK) fuzz_round_trip(&table, print, reprint);
    oct_sensitivity_free(&table);
    fuzz_end(&call, 256, (size_t)1 << 20);
    return 0;
}
