/* Observers: ranges of a tensor over training steps (octet/quantizer.h).
 *
 * What ranks exchange are the batch's min and max as order-preserving integer keys, and the counts of its
 * histogram where an observer wants them; the state is updated from the global values, so it is the same on
 * all ranks and for any number of them.
 * State has its final shape from creation: min, max (f32) and the number of updates, and a
 * histogram (s64) for an observer that counts. Adding one: a file in this folder and a line in
 * observer_list.def.
 */
#pragma once

#include "core/base/registry.h"

#include <octet/quantizer.h>

#define OCT_OBSERVER(file) extern const oct_observer oct_observer_##file;
#include "quant/observer/observer_list.def"
#undef OCT_OBSERVER

/* Observers are numbered in the order of the list, then of plug-ins. */
extern oct_registry oct_observer_table;

/* Sets the range to what was counted in [-most, most]. */
void oct_observer_cut(oct_range *range, const int64_t *histogram, float most);

/* Keys preserve the order: a < b as floats gives key(a) < key(b); -0 and +0 share one key. NaN maps to
 * INT32_MAX so that a maximum shows it. oct_float_of_order leads back. */
int32_t oct_float_key(float x);
