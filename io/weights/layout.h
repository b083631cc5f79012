/* How a parameter or buffer of a module lies in files of frameworks with channels first, and the move that brings
 * it into the module's own layout. */
#pragma once

#include "core/nn/network.h"
#include "core/tensor/move.h"
#include "io/weights/order.h"
#include "io/weights/weights.h"

typedef struct oct_weight_layout {
    int ndim;
    int64_t dim[OCT_WEIGHT_DIMS]; /* in the file */
    oct_move_map map;             /* from the file's values to the tensor's */
} oct_weight_layout;

/* tensor: of `module`; order: of its call, or NULL. */
oct_weight_layout oct_weight_layout_of(const oct_module *module, const oct_tensor *tensor,
                                       const oct_module_order *order);
/* Whether an array of the file has this layout. Dimensions of 1 before and after the others do not count; a
 * parameter added to images may also lie as the model has it. *layout becomes the array's. */
bool oct_weight_layout_fits(oct_weight_layout *layout, const oct_tensor *tensor,
                            const oct_weight *array);

/* Whether an array has the shape of the tensor that a network read from such a file, or is its transpose. *order
 * becomes that of the array's values. */
bool oct_weight_order_fits(oct_file_order *order, const oct_weight *array);
