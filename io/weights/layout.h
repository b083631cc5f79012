/* The layout of a parameter or buffer of a module in files of frameworks with channels first, such as PyTorch. */
#pragma once

#include "core/nn/module.h"
#include "core/tensor/move.h"
#include "io/weights/weights.h"

typedef struct oct_torch_layout {
    int ndim;
    int64_t dim[OCT_WEIGHT_DIMS]; /* in the file */
    oct_move_map map;             /* from the file's values to the tensor's */
} oct_torch_layout;

/* The image that features were, or become; c 0: none, or one in which all orders are the same. Where a model flattens an
 * image, its features are in the order (h, w, c), and those of such a framework in (c, h, w). So the columns of a linear
 * layer after a flatten change places, and the rows of one whose output becomes an image. */
typedef struct oct_feature_order {
    int64_t h, w, c;
} oct_feature_order;

/* The layout in a file of a tensor of this shape that belongs to a module of a type. groups: of a transposed
 * convolution. in, out: what the module's input was and its output becomes; NULL: none. */
oct_torch_layout oct_torch_layout_of(const oct_module_type *type, const oct_shape *shape,
                                     int64_t groups, const oct_feature_order *in,
                                     const oct_feature_order *out);
/* The layout of a tensor that is in a file as in the model: the same dimensions, in the same order. */
oct_torch_layout oct_torch_layout_plain(const oct_shape *shape);
