/* Models are found by name, and written as module trees that a user could have written. A new one is a
 * file in this folder and a line in model_list.def. */
#pragma once

#include "core/base/registry.h"
#include "quant/module/quant_modules.h"

#include <octet/plugin.h>

#define OCT_MODEL(id, file) extern const oct_model_spec oct_model_##file;
#include "launch/model/model_list.def"
#undef OCT_MODEL

extern oct_registry oct_model_table;
const oct_model_spec *oct_model_find(const char *name);

/* Building blocks that several models share. */

/* Appends `create` to a sequential; for lists of layers: OCT_APPEND(seq, oct_relu_create(&item)). */
#define OCT_APPEND(sequential, create)                                                             \
    do {                                                                                           \
        oct_module *item = NULL;                                                                   \
        OCT_TRY(oct_module_made(&item, create));                                                   \
        OCT_TRY(oct_sequential_append(sequential, &item));                                         \
    } while (0)

/* Makes a child of a model of one's own: OCT_ADD(m, quant, oct_quant_stub_create(&m->quant)) is m->quant, by that name. */
#define OCT_ADD(model, member, create)                                                             \
    OCT_TRY(oct_module_add(&(model)->base, #member, &(model)->member, create))

/* Fuses by hand, for eager, what follows each other in the sequentials below *root: convolution or
 * linear layer, batch norm, relu or relu6. */
oct_status oct_fuse_sequences(oct_module **root);

/* Makes a list of names for oct_fuse_modules and oct_fuse_module_lists. */
#define OCT_NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})
