#include "quant/layers/spread.h"

#include "core/base/mem.h"
#include "quant/observer/observer.h"

#include <math.h>
#include <string.h>

/* Widths below this are of no use to anybody, and a float has 24 bits. */
enum { SMALLEST = -64, FLOAT_BITS = 24 };

void oct_spread_begin(oct_spread *spread)
{
    *spread = (oct_spread){.min = INFINITY, .max = -INFINITY};
}

static int64_t bin_of(double x, int exponent)
{
    return (int64_t)floor(ldexp(x, -exponent));
}

/* Neither part of it can fall when the range grows. */
static int width_for(float min, float max)
{
    int magnitude;
    frexp(fmax(fabs((double)min), fabs((double)max)), &magnitude);
    int exponent = magnitude - FLOAT_BITS > SMALLEST ? magnitude - FLOAT_BITS : SMALLEST;
    while (bin_of((double)max, exponent) - bin_of((double)min, exponent) >= OCT_SPREAD_BINS)
        exponent++;
    return exponent;
}

/* Makes the spread reach over a range; its counts stay true. */
static void widen_to(oct_spread *s, float min, float max)
{
    int64_t count[OCT_SPREAD_BINS] = {0};
    const bool empty = s->min > s->max;
    if (!empty && min >= s->min && max <= s->max) return;
    if (min < s->min) s->min = min;
    if (max > s->max) s->max = max;
    const int exponent = width_for(s->min, s->max);
    const int64_t first = bin_of((double)s->min, exponent);
    for (int i = 0; i < OCT_SPREAD_BINS && !empty; i++) {
        if (s->count[i] == 0) continue;
        const double low = ldexp((double)(s->first + i), s->exponent);
        count[bin_of(low, exponent) - first] += s->count[i];
    }
    memcpy(s->count, count, sizeof count);
    s->exponent = exponent;
    s->first = first;
}

void oct_spread_add(oct_spread *s, const float *x, int64_t n)
{
    float min = INFINITY, max = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) continue;
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
    }
    if (min <= max) widen_to(s, min + 0.0f, max + 0.0f); /* 0 has one sign */
    const double factor = ldexp(1.0, -s->exponent), first = (double)s->first;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(x[i]))
            s->count[(int64_t)(floor((double)x[i] * factor) - first)]++;
        else
            s->unusual++;
}

/* Ends of ranges as whole numbers whose maximum is that of all ranks. */
static oct_status reduce_ranges(oct_spread *spreads, int64_t count, const oct_collective *group)
{
    int64_t *keys;
    OCT_TRY(oct_alloc(&keys, (size_t)count * 2, sizeof *keys));
    for (int64_t i = 0; i < count; i++) {
        keys[2 * i] = -(int64_t)oct_float_key(spreads[i].min);
        keys[2 * i + 1] = oct_float_key(spreads[i].max);
    }
    const oct_status status = group->max_i64(group, keys, 2 * count);
    for (int64_t i = 0; i < count && status == OCT_OK; i++) {
        const float min = oct_float_of_key((int32_t)-keys[2 * i]);
        const float max = oct_float_of_key((int32_t)keys[2 * i + 1]);
        if (min <= max) widen_to(&spreads[i], min, max);
    }
    oct_free(&keys);
    return status;
}

/* Counts below 2^53 are exact as doubles: ranks are the leaves of a sum that there is anyway. */
static oct_status reduce_counts(oct_spread *spreads, int64_t count, const oct_collective *group)
{
    enum { EACH = OCT_SPREAD_BINS + 1 };
    const oct_leaves ranks = oct_leaves_split(group->size, 1, group->rank, group->size);
    double *numbers;
    OCT_TRY(oct_alloc(&numbers, (size_t)count * EACH, sizeof *numbers));
    for (int64_t i = 0; i < count; i++) {
        for (int b = 0; b < OCT_SPREAD_BINS; b++)
            numbers[i * EACH + b] = (double)spreads[i].count[b];
        numbers[i * EACH + OCT_SPREAD_BINS] = (double)spreads[i].unusual;
    }
    const oct_status status = group->tree_sum_f64(group, &ranks, numbers, count * EACH, numbers);
    for (int64_t i = 0; i < count && status == OCT_OK; i++) {
        for (int b = 0; b < OCT_SPREAD_BINS; b++)
            spreads[i].count[b] = (int64_t)numbers[i * EACH + b];
        spreads[i].unusual = (int64_t)numbers[i * EACH + OCT_SPREAD_BINS];
    }
    oct_free(&numbers);
    return status;
}

oct_status oct_spread_merge(oct_spread *spreads, int64_t count, const oct_collective *group)
{
    OCT_TRY(reduce_ranges(spreads, count, group));
    return reduce_counts(spreads, count, group);
}

double oct_spread_from(const oct_spread *s)
{
    return ldexp((double)s->first, s->exponent);
}

double oct_spread_to(const oct_spread *s)
{
    return ldexp((double)(s->first + OCT_SPREAD_BINS), s->exponent);
}
