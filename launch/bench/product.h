/* octet bench kernels times the products of a layer as training calls them, each on a leaf of random numbers
 * (weight gradients on as many as are summed together). */
#pragma once

#include "core/kernel/conv.h"
#include "launch/bench/peak.h"
#include "quant/kernel/qconv.h"

enum { OCT_PRODUCT_LEAF = 8 };

/* A kind of product, of one layer, on one instruction set. */
enum { OCT_PRODUCT_OPERANDS = 6 };
typedef struct oct_layer_product {
    const struct oct_product_kind *kind;
    oct_conv_shape shape;
    int64_t samples; /* of a call: a leaf, unless make says more */
    const oct_kernel *integers;
    oct_qconv_plan integer_plan;
    const oct_float_kernel *floats;
    oct_conv_plan plan;                  /* of the product of floats */
    void *operand[OCT_PRODUCT_OPERANDS]; /* owned; the kind knows what they are */
} oct_layer_product;

typedef struct oct_product_kind {
    const char *name;
    oct_roof roof;
    bool
        openblas; /* the same on every instruction set, with a gathered input, whose padding is multiplied too */
    /* Allocates and fills the operands; oct_product_free frees what a failure left. */
    oct_status (*make)(oct_layer_product *p);
    void (*call)(oct_layer_product *p);
} oct_product_kind;

size_t oct_product_kinds(void);
const oct_product_kind *oct_product_kind_at(size_t i);
void oct_product_free(oct_layer_product *p);
/* Multiply-adds of a call. */
int64_t oct_product_multiply_adds(const oct_layer_product *p);
