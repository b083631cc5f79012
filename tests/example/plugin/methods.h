/* A second plug-in: methods of quantization. An observer that looks at all values; learned step sizes;
 * one of them around a zero point of its own.
 * Each is independent of the others; to make your own, copy one. */
#pragma once

#include <octet/plugin.h>

extern const oct_observer common_values_observer;
extern const oct_fake_quant_kind lsq_fake_quant, lsq_tensor_fake_quant, lsq_asymmetric_fake_quant;
/* The slope of all of them. */
void lsq_slope(int64_t n, const float *v, oct_qparams q, float *slope);
