/* A layer survey measures what each layer of an int8 model makes of what float makes, over some samples. */
#pragma once

#include "quant/prepare/layer_error.h"
#include "quant/layers/layer_source.h"
#include "quant/layers/spread.h"

typedef struct oct_layer_distance {
    oct_error_sums sums;
    double max_error; /* the largest difference */
} oct_layer_distance;

/* The figures of one step of the program. */
typedef struct oct_layer_figures {
    bool known; /* the float model has such a layer; otherwise the rest is 0 */
    oct_spread
        spread; /* of what the layer computes in float, with the same weights, from float inputs */
    int64_t values;  /* of them */
    int64_t clipped; /* of them, beyond the codes of the output; 0 of a float output */
    oct_layer_distance same_weights; /* of the program's values from those */
    oct_layer_distance reference;    /* from those of the reference */
    bool referred;                   /* the reference has such a layer */
} oct_layer_figures;

typedef struct oct_layer_survey {
    const oct_program *program;
    oct_module *model; /* what it was made from; its quantizers are OFF meanwhile, then FROZEN */
    oct_module *reference; /* prepared in the same way, its quantizers OFF; NULL: none */
    int64_t samples;
    /* Writes sample i as the program's input wants it. */
    oct_status (*fetch)(void *user, int64_t i, float *input);
    void *user;
} oct_layer_survey;

/* Collective, of programs with one input: ranks share the samples, and each has the same bits for any number of
 * ranks. figures: a new array, one for each step, to be freed by the caller. */
oct_status oct_layer_survey_run(const oct_layer_survey *survey, const oct_collective *group,
                                oct_layer_figures **figures) OCT_NODISCARD;

/* The figures of a layer's weights: range of the floats, and what their codes make of them. */
typedef struct oct_weight_figures {
    float scale_min, scale_max; /* of the output channels */
    oct_spread spread;
    int64_t values, clipped;
    oct_error_sums sums;
} oct_weight_figures;
/* Of a layer with quantized weights. */
oct_status oct_weight_figures_of(const oct_qat_conv *layer,
                                 oct_weight_figures *figures) OCT_NODISCARD;
