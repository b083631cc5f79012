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

/* Appends conv kernel x kernel (no bias, same padding), batch norm and, if asked, relu. */
oct_status oct_append_conv_bn(oct_module *sequential, int64_t in, int64_t out, int kernel,
                              int stride, bool relu) OCT_NODISCARD;

/* Fuses by hand, for eager, what follows each other in the sequentials below *root: convolution or
 * linear layer, batch norm, relu or relu6. */
oct_status oct_fuse_sequences(oct_module **root) OCT_NODISCARD;

/* Makes a list of names for oct_fuse_modules and oct_fuse_module_lists. */
#define OCT_NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Sets *slot to a new module from `create` and makes it the child `name` of self; destroys what a failed `create` has
 * built, and so does OCT_APPEND. */
#define OCT_CHILD(self, name, slot, create)                                                        \
    do {                                                                                           \
        OCT_TRY(oct_module_made(slot, create));                                                    \
        OCT_TRY(oct_module_add_child(self, name, slot));                                           \
    } while (0)
