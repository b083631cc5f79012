/* What the files of conv.h share. */
#pragma once

#include "core/kernel/bf16.h"
#include "core/kernel/conv.h"
#include "core/product/window.h"

enum { OCT_MAX_COL_TILE = 16 };

size_t oct_aligned(size_t bytes); /* to the next 64 */

/* Words that so many values of a row take; bfloat16 ones come in pairs. */
int64_t oct_words_of(const oct_float_kernel *k, bool pairs, int64_t values);

/* The tile (or two, see float_kernel.h) of a pair, from OCT_MAX_COL_TILE columns each. */
void oct_store_pairs(const oct_float_kernel *k, const uint16_t *first, const uint16_t *second,
                     void *tile);
