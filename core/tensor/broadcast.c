/* Shapes that broadcast, and sums over the places that repeat one value. */
#include "core/tensor/broadcast.h"

#include "core/base/int_math.h"

/* A tensor as samples of positions x channels. */
typedef struct plane {
    int64_t positions, channels;
} plane;

static plane plane_of(const oct_shape *shape)
{
    plane p = {.positions = 1, .channels = shape->ndim > 1 ? shape->dim[shape->ndim - 1] : 1};
    for (int i = 1; i < shape->ndim - 1; i++)
        p.positions *= shape->dim[i];
    return p;
}

/* Whether `small` repeats where it has not what `large` has: channels 1, and positions all 1, or none written. */
static bool repeats_in(const oct_shape *small, const oct_shape *large)
{
    const plane s = plane_of(small), l = plane_of(large);
    if (small->ndim < 2 || small->dim[0] != large->dim[0]) return false;
    if (s.channels != l.channels && s.channels != 1) return false;
    if (s.positions == 1 && (small->ndim == large->ndim || small->ndim == 2))
        return small->ndim <= large->ndim;
    for (int i = 1; i < large->ndim - 1; i++)
        if (small->ndim != large->ndim || small->dim[i] != large->dim[i]) return false;
    return small->ndim == large->ndim;
}

bool oct_broadcast_of(const oct_shape *a, const oct_shape *b, oct_broadcast *made)
{
    const oct_shape *shape[2] = {a, b};
    const bool equal = oct_shape_equal(a, b);
    if (!equal && !repeats_in(a, b) && !repeats_in(b, a)) return false;
    *made = (oct_broadcast){0};
    for (int i = 0; i < 2; i++) {
        const plane p = plane_of(shape[i]);
        made->position[i] = p.positions;
        made->channel[i] = p.channels;
        made->positions = oct_max_i64(made->positions, p.positions);
        made->channels = oct_max_i64(made->channels, p.channels);
    }
    return true;
}

enum { BLOCK = 256 }; /* channels that are summed together */

/* Adds up rows of at most BLOCK values, one below the other. */
static void sum_rows(const oct_broadcast *b, const float *grad, int64_t n, double *sum)
{
    for (int64_t c = 0; c < n; c++)
        sum[c] = 0;
    for (int64_t p = 0; p < b->positions; p++)
        for (int64_t c = 0; c < n; c++)
            sum[c] += (double)grad[p * b->channels + c];
}

void oct_broadcast_sum(const oct_broadcast *b, int input, const float *grad, float *sum)
{
    double rows[BLOCK];
    if (b->channel[input] == 1 && b->channels > 1) {
        const int64_t places = b->position[input] > 1 ? 1 : b->positions;
        for (int64_t p = 0; p < b->position[input]; p++, grad += b->channels) {
            double total = 0;
            for (int64_t c = 0; c < places * b->channels; c++)
                total += (double)grad[c];
            sum[p] = (float)total;
        }
        return;
    }
    for (int64_t c = 0; c < b->channels; c += BLOCK) {
        const int64_t n = oct_min_i64(b->channels - c, BLOCK);
        sum_rows(b, grad + c, n, rows);
        for (int64_t k = 0; k < n; k++)
            sum[c + k] = (float)rows[k];
    }
}
