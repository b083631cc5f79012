/* A reader with a fault, for the test that faults are found: it falls over "bug". */
#include "tests/fuzz/fuzz.h"

#include <string.h>

const char *const fuzz_name = "planted";
static const char *const words[] = {"b", "u", "g", "bu", "ug", NULL};
const char *const *const fuzz_words = words;

void fuzz_seeds(void)
{
    fuzz_seed("big", 3);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i + 3 <= size; i++)
        FUZZ_REQUIRE(memcmp(data + i, "bug", 3) != 0, "a bug at %zu", i);
    return 0;
}
