/* The arithmetic is in whole numbers, so that a place is exact and no bit depends on how a quotient was rounded. */
#include "core/tensor/resize.h"

#include "core/base/int_math.h"

const char *oct_interpolation_name(oct_interpolation mode)
{
    static const char *const names[] = {
        [OCT_NEAREST] = "nearest",
        [OCT_BILINEAR] = "bilinear",
        [OCT_BILINEAR_CORNERS] = "bilinear, corners on corners",
        [OCT_BILINEAR_ASYMMETRIC] = "bilinear, asymmetric",
        [OCT_NEAREST_ROUND] = "nearest centre",
        [OCT_NEAREST_HALF] = "nearest, centre before",
    };
    return mode >= 0 && mode < OCT_INTERPOLATIONS ? names[mode] : "no mode";
}

/* The place at `place / unit` of a side of `in` positions, between two of them. */
static oct_resize_place place_between(int64_t place, int64_t unit, int64_t in)
{
    const int64_t low = oct_min_i64(place / unit, in - 1);
    return (oct_resize_place){
        .low = low, .high = oct_min_i64(low + 1, in - 1), .part = place % unit, .unit = unit};
}

static oct_resize_place place_on(int64_t at)
{
    return (oct_resize_place){.low = at, .high = at, .unit = 1};
}

oct_resize_place oct_resize_place_of(oct_interpolation mode, int64_t at, int64_t in, int64_t out)
{
    const int64_t centre = (2 * at + 1) * in; /* in half pixels of the output, times `in` */
    switch ((int)mode) {
    case OCT_BILINEAR:
        return place_between(oct_max_i64(centre - out, 0), 2 * out, in);
    case OCT_BILINEAR_CORNERS:
        return place_between(at * (in - 1), oct_max_i64(out - 1, 1), in);
    case OCT_BILINEAR_ASYMMETRIC:
        return place_between(at * in, out, in);
    case OCT_NEAREST_ROUND: /* ceil((centre - 2 out) / (2 out)) */
        return place_on((centre - 1) / (2 * out));
    case OCT_NEAREST_HALF:
        return place_on(oct_max_i64(centre - out, 0) / (2 * out));
    default:
        return place_on(at * in / out);
    }
}
