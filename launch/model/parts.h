/* These are building blocks that several models share. */
#pragma once

#include "quant/module/quant_modules.h"

/* Appends `create` to a sequential; for lists of layers: OCT_APPEND(seq, oct_relu_create(&item)). */
#define OCT_APPEND(sequential, create)                                                             \
    do {                                                                                           \
        oct_module *item = NULL;                                                                   \
        OCT_TRY(oct_module_made(&item, create));                                                   \
        OCT_TRY(oct_sequential_append(sequential, &item));                                         \
    } while (0)

/* Fuses by hand, for eager, what follows each other in the sequentials below *root: convolution or
 * linear layer, batch norm, relu or relu6. */
oct_status oct_fuse_sequences(oct_module **root) OCT_NODISCARD;

/* Makes a list of names for oct_fuse_modules and oct_fuse_module_lists. */
#define OCT_NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})
