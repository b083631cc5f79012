/* A batch file of CIFAR-10: whole records with labels below 10, or refused. */
#include "tests/fuzz/dataset.h"

#include <string.h>

const char *const fuzz_name = "cifar10";
const char *const *const fuzz_words = NULL;

enum { RECORD = 3073 };

void fuzz_seeds(void)
{
    static uint8_t records[3 * RECORD];
    for (int i = 0; i < 3 * RECORD; i++)
        records[i] = (uint8_t)(i % RECORD == 0 ? i / RECORD * 4 : i * 31);
    fuzz_seed(records, RECORD);
    fuzz_seed(records, sizeof records);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_file("test_batch.bin", data, size);
    fuzz_dataset(&oct_dataset_cifar10, size);
    return 0;
}
