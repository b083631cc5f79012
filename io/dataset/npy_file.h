/* NumPy's .npy: a header of text that says type and shape, and the numbers. */
#pragma once

#include "io/dataset/array_set.h"

/* Makes the array of a span that holds a .npy file, of no dimension where it has none; takes the span, also when it
 * fails. `name` for messages. OCT_DATA for what is damaged, in Fortran's order, or no array of numbers in up to 4
 * dimensions; with `other` the last is no failure: *other is true, and the array may only be closed. */
oct_status oct_npy_take(oct_array *array, oct_span *span, const char *name,
                        bool *other) OCT_NODISCARD;
