/* Cross-layer equalization: channels between two layers get equal ranges, and the network computes the same as before.
 *
 * A layer, a relu or nothing, perhaps pools, and a layer that alone reads them: channel i of the first may be
 * divided by any r > 0, and what the second multiplies it with be multiplied by r. With a the largest weight of the
 * channel (batch norm's gain in it) and c the largest one that reads it, r = sqrt(a / c) makes both sqrt(a c).
 * (Nagel 2019, Data-Free Quantization.) Here r is the nearest power of two, so in float no bit of the network's output
 * changes, but where a number leaves the range of normal floats. */
#pragma once

#include "core/nn/module.h"

/* Equalizes a prepared model whose weights are in float yet, all pairs of layers, several times over since pairs may
 * be neighbours. *pairs: of them; *channels: that got a factor other than 1. A pair is left alone where layers
 * are shared, stand in a dynamic block, cut values at a bound, or add something else. OCT_USAGE when root is not
 * prepared, or by a method without graph. */
oct_status oct_equalize(oct_module *root, int64_t *pairs, int64_t *channels) OCT_NODISCARD;
