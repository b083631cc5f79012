/* The products of a layer as training calls them, each on a leaf of random numbers: what octet bench
 * kernels times. */
#pragma once

#include "core/tensor/conv_shape.h"
#include "quant/kernel/qops.h"

enum { OCT_PRODUCT_SAMPLES = 8 }; /* a leaf */

/* One product of one layer on one instruction set. Operands of blocks of bytes, in the order in which the
 * kind of product knows them. */
enum { OCT_PRODUCT_OPERANDS = 5 };
typedef struct oct_layer_product {
    oct_conv_shape shape;
    const oct_kernel *integers;
    void *operand[OCT_PRODUCT_OPERANDS];
} oct_layer_product;

typedef struct oct_product_kind {
    const char *name;
    /* Allocates and fills the operands; what fails is freed by oct_product_free. */
    oct_status (*make)(oct_layer_product *p);
    void (*call)(oct_layer_product *p);
} oct_product_kind;

size_t oct_product_kinds(void);
const oct_product_kind *oct_product_kind_at(size_t i);
void oct_product_free(oct_layer_product *p);
