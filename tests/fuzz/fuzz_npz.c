/* NumPy's archives, as data sets. */
#include "tests/fuzz/golden.h"

const char *const fuzz_name = "npz";
static const char *const words[] = {"PK\1\2",  "PK\3\4", "PK\5\6", "PK\6\6", "PK\6\7",
                                    "(6, 5, ", "<f4",    "|u1",    ">i8",    NULL};
const char *const *const fuzz_words = words;

void fuzz_seeds(void)
{
    fuzz_seed_golden("npz_");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_one_file(&oct_dataset_npz, "a.npz", data, size);
    return 0;
}
