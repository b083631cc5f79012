/* The table of observers, and the keys that ranks exchange. */
#include "quant/observer/observer.h"

#include <math.h>
#include <string.h>

static const void *const listed[] = {
#define OCT_OBSERVER(file) &oct_observer_##file,
#include "quant/observer/observer_list.def"
#undef OCT_OBSERVER
};
oct_registry oct_observer_table = OCT_REGISTRY("an observer", listed);

/* Counts halve once in 1 / averaging steps, except while calibrating. */
void oct_observer_keep(oct_range *state, int64_t *histogram, const oct_seen *batch, float averaging)
{
    const int64_t life = (int64_t)(1.0f / averaging);
    const bool halves = !batch->calibrating && state->updates % life == life - 1;
    for (int bin = 0; halves && bin < OCT_HISTOGRAM_BINS; bin++)
        histogram[bin] /= 2;
    oct_histogram_merge(batch->count, histogram);
    state->updates++;
}

void oct_observer_cut(oct_range *state, const int64_t *histogram, float most)
{
    state->min = fmaxf(oct_histogram_quantile(histogram, 0), -most);
    state->max = fminf(oct_histogram_quantile(histogram, 1), most);
}

/* IEEE floats of one sign are ordered as their bits; negative ones the other way round. */
int32_t oct_float_key(float x)
{
    if (isnan(x)) return INT32_MAX;
    int32_t bits;
    const float canonical = x + 0.0f; /* -0 becomes +0 */
    memcpy(&bits, &canonical, sizeof bits);
    return bits ^ ((bits >> 31) & INT32_MAX);
}

/* The float whose key this is. */
float oct_float_of_key(int32_t key)
{
    const int32_t bits = key ^ ((key >> 31) & INT32_MAX);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
