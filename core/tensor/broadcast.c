/* Shapes that broadcast. */
#include "core/tensor/broadcast.h"

#include "core/base/int_math.h"

/* A tensor as samples of positions x channels. */
typedef struct sample_plane {
    int64_t positions, channels;
} sample_plane;

/* The last dimension is the channels, those between it and the batch are positions. */
static sample_plane plane_of(const oct_shape *shape)
{
    sample_plane p = {.positions = 1,
                      .channels = shape->ndim > 1 ? shape->dim[shape->ndim - 1] : 1};
    for (int i = 1; i < shape->ndim - 1; i++)
        p.positions *= shape->dim[i];
    return p;
}

/* Whether `small` broadcasts to `large`: over channels where it has one, over positions where all its dimensions
 * between batch and channels are 1 or it has none. All other dimensions are equal. */
static bool repeats_in(const oct_shape *small, const oct_shape *large)
{
    const sample_plane few = plane_of(small), all = plane_of(large);
    if (small->ndim < 2 || small->dim[0] != large->dim[0]) return false;
    if (all.positions == 0 || all.channels == 0) return false; /* nothing is in it to repeat for */
    if (few.channels != all.channels && few.channels != 1) return false;
    if (few.positions == 1 && (small->ndim == large->ndim || small->ndim == 2))
        return small->ndim <= large->ndim;
    for (int i = 1; i < large->ndim - 1; i++)
        if (small->ndim != large->ndim || small->dim[i] != large->dim[i]) return false;
    return small->ndim == large->ndim;
}

bool oct_broadcast_of(const oct_shape *a, const oct_shape *b, oct_broadcast *result)
{
    const oct_shape *shape[2] = {a, b};
    const bool equal = oct_shape_equal(a, b);
    if (!equal && !repeats_in(a, b) && !repeats_in(b, a)) return false;
    *result = (oct_broadcast){0};
    for (int i = 0; i < 2; i++) {
        const sample_plane p = plane_of(shape[i]);
        result->position[i] = p.positions;
        result->channel[i] = p.channels;
        result->positions = oct_max_i64(result->positions, p.positions);
        result->channels = oct_max_i64(result->channels, p.channels);
    }
    return true;
}
