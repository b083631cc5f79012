/* HDF5 files of other programs, as data sets. */
#include "tests/fuzz/golden.h"

const char *const fuzz_name = "hdf5";
const char *const *const fuzz_words = NULL;

void fuzz_seeds(void)
{
    fuzz_seed_golden("h5_");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_one_file(&oct_dataset_hdf5, "a.h5", data, size);
    return 0;
}
