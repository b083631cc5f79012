/* A move reads the values of each sample in another order, maybe some of them only, or some of them more than
 * once: slices, transpositions, depth to space, channel shuffles and reversals are data for it. */
#pragma once

#include "core/tensor/tensor.h"

/* Returns the map that copies `dims` dimensions of these sizes as they are, row-major. Callers change strides, order or
 * sizes of its loops to what they want moved, and set `out`. */
oct_move_map oct_move_over(int dims, const int64_t *size);
/* Values that the map reads of a sample; -1 when they are more than can be counted. */
int64_t oct_move_numel(const oct_move_map *map);
/* Checks that the loops stay inside a sample of `numel` values (INT64_MAX: not known yet); `code` otherwise. */
oct_status oct_move_check(const oct_move_map *map, int64_t numel, oct_status code);

/* Copies one sample from x to y by a map that has been checked; values of 1, 2 or 4 bytes. */
void oct_move_copy(const oct_move_map *map, size_t bytes, const void *x, void *restrict y);
/* Adds each value of y to the value of x that oct_move_copy reads for it, in the order of y: the gradient of a move. */
void oct_move_add_back(const oct_move_map *map, const float *y, float *restrict x);

/* Where the elements of a tensor in a file, row-major with these sizes, are in a parameter or buffer: at
 * offset + sum(index_k * stride_k). With no dimensions: a single number. */
enum { OCT_FILE_ORDER_DIMS = 6 };
typedef struct oct_file_order {
    int64_t dims; /* without a gap after it: orders are compared as bytes */
    int64_t size[OCT_FILE_ORDER_DIMS], stride[OCT_FILE_ORDER_DIMS];
    int64_t offset;
} oct_file_order;

/* The row-major order of a shape. */
oct_file_order oct_file_order_of(int64_t dims, const int64_t *size);
/* Makes of the order of a matrix with `rows` rows that of its transpose; false: its rows do not end between two
 * dimensions. */
bool oct_file_order_turn(oct_file_order *order, int64_t rows);
/* Copies a tensor of a file to its place. */
void oct_file_order_in(const oct_file_order *order, const float *file, float *value);
/* Copies the tensor from where one order has it to where another one has it, or adds it to what is there. */
void oct_file_order_move(const oct_file_order *from, const float *x, const oct_file_order *to,
                         float *y, bool add);

/* Transposes a matrix: to (columns, rows) = from (rows, columns). Pitches are values from one row to the next. */
void oct_transpose_f32(int64_t rows, int64_t columns, const float *from, int64_t from_pitch,
                       float *to, int64_t to_pitch);
