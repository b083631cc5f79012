/* The binary layout of CIFAR-10 and CIFAR-100: records of label bytes and a planar RGB image of
 * 32 x 32. */
#pragma once

#include "io/dataset/dataset.h"

typedef struct oct_cifar {
    const char *files;        /* of oct_dataset_format, for messages */
    const char *const *names; /* of the split's files */
    size_t num_files;
    int label_bytes; /* before the image; the last of them is the label */
    int classes;
} oct_cifar;

oct_status oct_cifar_load(oct_dataset *data, const char *folder,
                          const oct_cifar *layout) OCT_NODISCARD;
