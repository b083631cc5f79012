/* NumPy's .npy: a header of text that says type and shape, and the numbers. */
#pragma once

#include "io/dataset/array.h"

/* Makes the array of a span that holds a .npy file; takes the span, also when it fails. `name` for
 * messages. OCT_DATA for what is damaged, of an unknown type or in Fortran's order. */
oct_status oct_npy_take(oct_array *array, oct_span *span, const char *name) OCT_NODISCARD;
