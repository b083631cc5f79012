/* Padding puts values around images (H, W, C): a constant, or values of the image. One definition for values and
 * codes. */
#pragma once

#include "core/tensor/tensor.h"

/* One sample: sizes of H, W and C, and places before them. */
typedef struct oct_pad_shape {
    int64_t in[3], out[3], before[3];
    int32_t mode; /* oct_pad_mode */
} oct_pad_shape;

/* The shape that a padding gives samples of (h, w, c); OCT_USAGE when it does not fit them: a size that
 * cannot be counted, or a mirror that has too little to show. */
oct_status oct_pad_shape_of(oct_pad_shape *shape, const oct_padding *padding, int64_t h, int64_t w,
                            int64_t c);
/* The same of a tensor with 2 to 4 dimensions, the batch in front; and the shape of the output. What a tensor has
 * not (H, W) cannot be padded. */
oct_status oct_pad_tensor_shape(oct_pad_shape *shape, const oct_padding *padding,
                                const oct_shape *from, oct_shape *out);
/* Writes "1, 2 above and below, 0, 0 at the sides, constant 0.5" and the like. */
void oct_padding_text(const oct_padding *padding, char *text, size_t size);
/* Checks that places are within sizes, which are at least 1, and that a mirror has enough to show; `code`
 * otherwise. */
oct_status oct_pad_check(const oct_pad_shape *shape, oct_status code);

/* Returns the place on side d of the input that a place of the output's side shows; -1: the constant. */
int64_t oct_pad_source(const oct_pad_shape *shape, int d, int64_t at);
/* Copies one sample of a checked shape, of values of 1, 2 or 4 bytes, with *fill where a constant is. */
void oct_pad_copy(const oct_pad_shape *shape, size_t bytes, const void *fill, const void *x,
                  void *restrict y);
