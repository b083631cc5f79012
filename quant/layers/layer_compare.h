/* A comparison finds where two networks depart, layer by layer, over some samples. */
#pragma once

#include "quant/prepare/layer_error.h"
#include "quant/layers/layer_source.h"

/* A number that differs: its place and what both have there. */
typedef struct oct_layer_difference {
    int64_t sample, index; /* in the order of the samples; in the output of one sample */
    double a, b;           /* codes where both are codes of one grid; real values otherwise */
} oct_layer_difference;

/* A layer of b and the one of a that has its name. */
typedef struct oct_layer_comparison {
    bool pair;        /* a has one; otherwise the rest is 0 */
    bool same_format; /* both are of one type, and codes of the same scale, zero point and range */
    int64_t numbers, different; /* in any bit where the formats are the same, else as real values */
    oct_layer_difference first; /* where some differ */
    oct_error_sums sums;        /* of b's real values, with a's as the reference */
    double max_error;
} oct_layer_comparison;

typedef struct oct_comparing {
    oct_layer_pairs pairs;
    oct_layer_comparison *layers; /* of b, in its order */
    int64_t samples;              /* compared so far */
    float *values_a, *values_b;   /* of the layer at hand */
} oct_comparing;

/* Borrows both sources. */
oct_status oct_comparing_begin(oct_comparing *comparing, const oct_layer_source *a,
                               const oct_layer_source *b) OCT_NODISCARD;
/* Compares one sample; each network has its own input. */
oct_status oct_comparing_add(oct_comparing *comparing, const float *input_a,
                             const float *input_b) OCT_NODISCARD;
void oct_comparing_end(oct_comparing *comparing);
