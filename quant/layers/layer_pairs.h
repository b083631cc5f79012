/* Layer pairs lay the layers of two networks side by side: each is shown what both have computed for the same
 * sample. */
#pragma once

#include "quant/layers/layer_source.h"

typedef struct oct_layer_pairs {
    const oct_layer_source *a, *b;
    int64_t *a_of;    /* by layer of b; -1: a has none */
    int64_t *b_of;    /* by layer of a; -1: b has none */
    oct_tensor *held; /* by layer of a: its output for the sample at hand */
    uint8_t *memory;
} oct_layer_pairs;

/* Borrows both sources. */
oct_status oct_layer_pairs_create(oct_layer_pairs *pairs, const oct_layer_source *a,
                                  const oct_layer_source *b) OCT_NODISCARD;
void oct_layer_pairs_free(oct_layer_pairs *pairs);

/* Shows layer `b` of the second network, and what the first has for it, which is of as many numbers. */
typedef void (*oct_layer_pair_fn)(void *user, int64_t b, const oct_tensor *of_a,
                                  const oct_tensor *of_b);
/* Runs a sample through both, in the order of b's layers. Each has its own input, since each may want its images in
 * another range. */
oct_status oct_layer_pairs_run(const oct_layer_pairs *pairs, const float *input_a,
                               const float *input_b, oct_layer_pair_fn show,
                               void *user) OCT_NODISCARD;
