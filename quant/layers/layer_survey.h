/* A layer survey measures what each layer of an int8 model makes of what float makes, over some samples. */
#pragma once

#include "core/base/collective.h"
#include "quant/layers/layer_source.h"

#include <math.h>

/* A spread is how the values of a tensor are distributed: range, and counts in 64 bins as wide as a power of two.
 *
 * The width follows from the range alone: it is the smallest with which 64 bins reach from the smallest to
 * the largest value. Where the range grows, pairs of bins become one, so counts depend neither on the order in
 * which values come nor on who has counted them. */
enum { OCT_SPREAD_BINS = 64 };

typedef struct oct_spread {
    float min, max;  /* min > max: there is no value */
    int64_t unusual; /* infinities and NaN, which are not counted below */
    int exponent;    /* a bin is 2^exponent wide */
    int64_t first;   /* bin i holds the values from (first + i) 2^exponent on */
    int64_t count[OCT_SPREAD_BINS];
} oct_spread;

void oct_spread_begin(oct_spread *spread);
/* Counts n values; the range grows with them. */
void oct_spread_add(oct_spread *spread, const float *x, int64_t n);
/* These are the values at which the first bin begins and the last one ends. */
static inline double oct_spread_from(const oct_spread *spread)
{
    return ldexp((double)spread->first, spread->exponent);
}
static inline double oct_spread_to(const oct_spread *spread)
{
    return ldexp((double)(spread->first + OCT_SPREAD_BINS), spread->exponent);
}

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

/* Measures every step of a program with one input against both models. Collective: ranks share the samples, and each
 * has the same bits for any number of ranks. figures: a new array, one for each step, to be freed by the caller. */
oct_status oct_layer_survey_run(const oct_layer_survey *survey, const oct_collective *group,
                                oct_layer_figures **figures);

/* The figures of a layer's weights: range of the floats, and what their codes make of them. */
typedef struct oct_weight_figures {
    float scale_min, scale_max; /* of the output channels */
    oct_spread spread;
    int64_t values, clipped;
    oct_error_sums sums;
} oct_weight_figures;
/* Measures a layer's weights, and the error of rounding them to codes with the scale of each channel. */
oct_status oct_weight_figures_of(const oct_qat_conv *layer, oct_weight_figures *figures);
