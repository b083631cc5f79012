/* A second plug-in: methods of quantization. An observer that looks at all values; learned step sizes;
 * a zero point of one's own.
 * Each is independent of the others; to make your own, copy one. */
#pragma once

#include "launch/plugin.h"

extern const oct_observer percentile_observer;
extern const oct_fake_quant_kind lsq_fake_quant, lsq_tensor_fake_quant, asymmetric_fake_quant;
