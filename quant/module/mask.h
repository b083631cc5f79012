/* Clip masks: one bit an element, bit i%8 of byte i/8, 1 where the gradient passes. */
#pragma once

#include <stdint.h>

/* Clears grad[i] where the mask is 0. */
void oct_mask_apply(const uint8_t *mask, int64_t n, float *grad);
