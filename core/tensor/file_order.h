/* Where the elements of a tensor in a file, row-major with these sizes, lie in a parameter or buffer: at
 * offset + sum(index_k * stride_k). With no dimensions: a single number. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

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
