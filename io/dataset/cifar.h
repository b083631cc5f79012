/* The binary layout of CIFAR-10 and CIFAR-100: records of label bytes and a planar RGB image of
 * 32 x 32. */
#pragma once

#include "io/dataset/dataset.h"

/* The `open` of both formats. */
oct_status oct_cifar_open(oct_dataset *data, const oct_dataset_source *source,
                          oct_split split) OCT_NODISCARD;
