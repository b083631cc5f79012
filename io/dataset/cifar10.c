/* CIFAR-10 in its official binary version. The training data lie in five files. */
#include "io/dataset/cifar.h"

#define FILES                                                                                      \
    "expected files: data_batch_1.bin to data_batch_5.bin and test_batch.bin of the binary "       \
    "version of CIFAR-10"

static const char *const train_files[] = {"data_batch_1.bin", "data_batch_2.bin",
                                          "data_batch_3.bin", "data_batch_4.bin",
                                          "data_batch_5.bin"};
static const char *const test_files[] = {"test_batch.bin"};

enum { CLASSES = 10 };

static oct_status load(oct_dataset *data, const char *folder, oct_split split)
{
    bool train = split == OCT_TRAIN;
    return oct_cifar_load(
        data, folder,
        &(oct_cifar){.files = FILES,
                     .names = train ? train_files : test_files,
                     .num_files = train ? OCT_COUNT(train_files) : OCT_COUNT(test_files),
                     .label_bytes = 1,
                     .classes = CLASSES});
}

const oct_dataset_format oct_dataset_cifar10 = {
    .name = "cifar10",
    .default_path = NULL,
    .files = FILES,
    .label_file = {"data_batch_*.bin", "test_batch.bin"},
    .classes = CLASSES,
    .load = load,
};
