/* NumPy's files of one array: samples, beside labels that are good, and labels beside good samples. */
#include "tests/fuzz/golden.h"

const char *const fuzz_name = "npy";
static const char *const words[] = {"(4, 5, 4, 2)", "(4,)", "(4, 3)", "()",   "True", "'descr': ",
                                    "<f4",          "|u1",  ">i8",    "'|b1", ", ",   NULL};
const char *const *const fuzz_words = words;

void fuzz_seeds(void)
{
    fuzz_seed_golden("npy_test");
}

static void read_as(const char *images, const char *labels, size_t size)
{
    const oct_dataset_source source = {.format = &oct_dataset_npy,
                                       .folder = fuzz_folder(),
                                       .goal = OCT_GOAL_VALUES,
                                       .images = images,
                                       .labels = labels};
    fuzz_source(&source, size, 64, fuzz_folder());
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char good[] = "\x93NUMPY\1\0\x40\0{'descr': '|u1', 'fortran_order': False, "
                               "'shape': (4, 1), }    \1\2\3\4";
    fuzz_file("good_test.npy", good, sizeof good - 1);
    fuzz_file("bad_test.npy", data, size);
    read_as("bad_{split}", "good_{split}", size);
    read_as("good_{split}", "bad_{split}", size);
    return 0;
}
