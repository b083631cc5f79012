/* The stream between rounding.c and judge.cc: a head, then as many items as it says. */
#pragma once

#include <stdint.h>

typedef enum rounding_kind {
    ROUNDING_LAYER, /* int32 sums, then u16 codes whose zero point is 32768 */
    ROUNDING_ADD,   /* u8 codes of both inputs, then those of the output; the next two, too */
    ROUNDING_SUB,
    ROUNDING_MUL,
    ROUNDING_RESCALE,  /* u8 codes of the input, then of the output */
    ROUNDING_LOGISTIC, /* the same; the next, too */
    ROUNDING_TANH,
    ROUNDING_KINDS
} rounding_kind;

typedef struct rounding_head {
    int32_t kind, count;
    float scale[3]; /* of both inputs (a layer's: of input and weights) and of the output */
    int32_t zero_point[3];
} rounding_head;
