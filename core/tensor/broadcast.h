/* How two tensors are combined element by element where one of them repeats its values: over the positions of a sample,
 * (N, 1, 1, C) or (N, C) against (N, H, W, C); over its channels, (N, H, W, 1); or over both, (N, 1, 1, 1). The other
 * one has the shape of the result. Either may be first. */
#pragma once

#include "core/tensor/tensor.h"

/* A sample of the result is positions x channels. An input that repeats has 1 instead. */
typedef struct oct_broadcast {
    int64_t positions, channels;
    int64_t position[2], channel[2]; /* of input 0 and 1 */
} oct_broadcast;

/* Finds how a and b broadcast to one shape; false: they do not. Dimension 0 is the batch and never repeats. */
bool oct_broadcast_of(const oct_shape *a, const oct_shape *b, oct_broadcast *result);
/* Which of the two has the shape of the result. */
static inline int oct_broadcast_larger(const oct_broadcast *b)
{
    return b->position[0] < b->position[1] || b->channel[0] < b->channel[1];
}
/* Whether neither repeats. */
static inline bool oct_broadcast_is_plain(const oct_broadcast *b)
{
    return b->position[0] == b->position[1] && b->channel[0] == b->channel[1];
}

/* Values of one sample. */
static inline int64_t oct_broadcast_numel(const oct_broadcast *b, int input)
{
    return b->position[input] * b->channel[input];
}

/* Where input i has the values that belong to those of the result from (sample, position, channel) on, up to the end of
 * the position's channels: at this element, and where `step` is 0 all in that one. */
static inline int64_t oct_broadcast_at(const oct_broadcast *b, int input, const int64_t at[3],
                                       int64_t *step)
{
    const int64_t position = b->position[input] > 1 ? at[1] : 0;
    *step = b->channel[input] > 1;
    return at[0] * oct_broadcast_numel(b, input) + position * b->channel[input] + *step * at[2];
}

/* The place, (sample, position, channel), of an element of the result. */
static inline void oct_broadcast_place(const oct_broadcast *b, int64_t element, int64_t at[3])
{
    at[2] = element % b->channels;
    at[1] = element / b->channels % b->positions;
    at[0] = element / b->channels / b->positions;
}
