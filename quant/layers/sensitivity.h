/* Measures how much each quantizer alone changes what a prepared model computes, so that the few
 * layers that need them get 16-bit activations. */
#pragma once

#include "core/base/collective.h"
#include "quant/prepare/prepare.h"

/* Samples to measure on. */
typedef struct oct_sensitivity_data {
    int64_t samples;
    int64_t batch; /* samples at a time */
    int64_t leaf;
    /* The inputs' shapes; their data, and the first dimension of each shape, are not used. */
    oct_example example;
    int64_t outputs; /* numbers of the output for each sample; classes of a model that returns class
                      * numbers, which are compared as rows with a 1 at their class */
    const int32_t *labels; /* NULL: none, and no loss is compared */
    /* Samples [first, first + n) in order, of each input. */
    oct_status (*fetch)(void *user, int64_t first, int64_t n, float *const *input);
    /* Called after each forward over all samples with how many of this rank's are done. NULL: not called. */
    void (*progress)(void *user, int64_t done, int64_t all);
    void *user;
} oct_sensitivity_data;

/* Collective. One row for each activation quantizer that has a range, and one for each layer with
 * quantized weights: what its quantizer alone does to the float model's output over the samples.
 * Most sensitive first: by SQNR, then by path. Each rank measures its share of the quantizers, all
 * of each, so the table has the same bits for any number of ranks. All quantizers are OFF
 * afterwards, the model otherwise as before. OCT_PREPARE when root is not prepared or no quantizer
 * has seen a range, or root does not give `outputs` numbers a sample; OCT_NUMERIC when an output
 * is not finite. */
oct_status oct_sensitivity_measure(oct_sensitivity *table, oct_module *root,
                                   const oct_sensitivity_data *data, const oct_collective *group);
