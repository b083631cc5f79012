/* CIFAR-100 in its official binary version: a record has a coarse and a fine label; the fine ones are
 * the classes. */
#include "io/dataset/cifar.h"

static const char *const train_files[] = {"train.bin", NULL}, *const test_files[] = {"test.bin",
                                                                                     NULL};

const oct_dataset_format oct_dataset_cifar100 = {
    .name = "cifar100",
    .files = "expected files: train.bin and test.bin of the binary version of CIFAR-100",
    .label_file = {"train.bin", "test.bin"},
    .classes = 100,
    .open = oct_cifar_open,
    .read = oct_memory_read,
    .close = oct_memory_close,
    .digest = oct_memory_digest,
    .batches = {train_files, test_files},
    .label_bytes = 2,
};
