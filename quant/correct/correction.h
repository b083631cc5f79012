/* What is done to the weights of a prepared model before it computes with codes: before calibration cross-layer
 * equalization, after it second-order rounding and bias correction, by the codes that come into each layer. */
#pragma once

#include "core/base/collective.h"
#include "quant/module/quant_modules.h"

typedef struct oct_correction_options {
    oct_rounding rounding;
    bool bias;
} oct_correction_options;

/* What became of the layers, the same on all ranks. */
typedef struct oct_correction {
    int64_t rounded, corrected;
    int64_t left; /* that wanted it and stay as they are: shared, or with scales of their own */
} oct_correction;

/* Collective. Corrects weights in rounds, each for as many layers as their products have room for, in the order of the
 * tree, so later rounds see the weights that earlier ones have left. In each round `run` runs forwards in evaluation with
 * frozen scales over this rank's samples; it fails on all ranks or on none. Sums are whole numbers, and rank 0 alone makes
 * weights of them, so these have the same bits on any number of ranks and threads. Second-order rounding factors by
 * OpenBLAS, whose last bits differ between kinds of processors. */
oct_status oct_correct_weights(oct_module *root, const oct_correction_options *options,
                               const oct_collective *group, oct_status (*run)(void *user),
                               void *user, oct_correction *done);

/* Cross-layer equalization: channels between two layers get equal ranges, and the network computes the same as before.
 *
 * A layer, a relu or nothing, perhaps pools, and a layer that alone reads them: channel i of the first may be
 * divided by any r > 0, and what the second multiplies it with be multiplied by r. With a the largest weight of the
 * channel (batch norm's gain in it) and c the largest one that reads it, r = sqrt(a / c) makes both sqrt(a c).
 * (Nagel 2019, Data-Free Quantization.) Here r is the nearest power of two, so in float no bit of the network's output
 * changes, but where a number leaves the range of normal floats. */
/* Equalizes a prepared model whose weights are in float yet, all pairs of layers, several times over since pairs may
 * be neighbours. *pairs: of them; *channels: that got a factor other than 1. A pair is left alone where layers
 * are shared, are in a dynamic block, cut values at a bound, or add something else. OCT_USAGE when root is not
 * prepared, or by a method without graph. */
oct_status oct_equalize(oct_module *root, int64_t *pairs, int64_t *channels);
