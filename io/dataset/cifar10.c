/* CIFAR-10 in its official binary version. The training data lie in five files. */
#include "io/dataset/cifar.h"

static const char *const train_files[] = {"data_batch_1.bin", "data_batch_2.bin",
                                          "data_batch_3.bin", "data_batch_4.bin",
                                          "data_batch_5.bin", NULL};
static const char *const test_files[] = {"test_batch.bin", NULL};

const oct_dataset_format oct_dataset_cifar10 = {
    .name = "cifar10",
    .files =
        "expected files: data_batch_1.bin to data_batch_5.bin and test_batch.bin of the binary "
        "version of CIFAR-10",
    .label_file = {"data_batch_*.bin", "test_batch.bin"},
    .classes = 10,
    .open = oct_cifar_open,
    .read = oct_memory_read,
    .close = oct_memory_close,
    .digest = oct_memory_digest,
    .batches = {train_files, test_files},
    .label_bytes = 1,
};
