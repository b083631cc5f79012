/* CIFAR-100 in its official binary version: a record has a coarse and a fine label; the fine ones are
 * the classes. */
#include "io/dataset/cifar.h"

#define FILES "expected files: train.bin and test.bin of the binary version of CIFAR-100"

enum { CLASSES = 100 };

static oct_status load(oct_dataset *data, const char *folder, oct_split split)
{
    static const char *const names[] = {"train.bin", "test.bin"};
    return oct_cifar_load(data, folder,
                          &(oct_cifar){.files = FILES,
                                       .names = &names[split],
                                       .num_files = 1,
                                       .label_bytes = 2,
                                       .classes = CLASSES});
}

const oct_dataset_format oct_dataset_cifar100 = {
    .name = "cifar100",
    .default_path = NULL,
    .files = FILES,
    .label_file = {"train.bin", "test.bin"},
    .classes = CLASSES,
    .load = load,
};
