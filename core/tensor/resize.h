/* Where the positions of a resized side are on the side that it is made from: one definition for values and
 * codes. */
#pragma once

#include <octet/nn.h>

static inline int oct_is_bilinear(oct_interpolation mode)
{
    return mode >= OCT_BILINEAR && mode <= OCT_BILINEAR_ASYMMETRIC;
}
/* "bilinear" and the like, for people. */
const char *oct_interpolation_name(oct_interpolation mode);

/* Output position `at` is at low + part / unit, between low and high; part is 0 where nothing is mixed. */
typedef struct oct_resize_place {
    int64_t low, high, part, unit;
} oct_resize_place;
/* Returns where position `at` of `out` is on the input. 0 <= at < out, and no product of two sizes overflows. */
oct_resize_place oct_resize_place_of(oct_interpolation mode, int64_t at, int64_t in, int64_t out);
