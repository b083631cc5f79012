/* The table of observers, the keys that ranks exchange, and ranges of channels. */
#include "quant/observer/observer.h"

#include <math.h>
#include <string.h>

static const void *const listed[] = {
#define OCT_OBSERVER(file) &oct_observer_##file,
#include "quant/observer/observer_list.def"
#undef OCT_OBSERVER
};
oct_registry oct_observer_table = OCT_REGISTRY("an observer", listed);

const oct_observer *oct_observer_find(const char *name)
{
    return oct_registry_find(&oct_observer_table, name);
}

oct_status oct_observer_register(const oct_observer *observer)
{
    return oct_registry_add(&oct_observer_table, observer);
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

float oct_float_of_key(int32_t key)
{
    const int32_t bits = key ^ ((key >> 31) & INT32_MAX);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

void oct_channel_range(const float *x, int64_t rows, int64_t channels, float *min, float *max)
{
    for (int64_t c = 0; c < channels; c++) {
        min[c] = INFINITY;
        max[c] = -INFINITY;
    }
    for (int64_t r = 0; r < rows; r++, x += channels) {
        for (int64_t c = 0; c < channels; c++) {
            /* A NaN, once taken, is never replaced. */
            min[c] = x[c] < min[c] || isnan(x[c]) ? x[c] : min[c];
            max[c] = x[c] > max[c] || isnan(x[c]) ? x[c] : max[c];
        }
    }
    for (int64_t c = 0; c < channels; c++) {
        min[c] += 0.0f;
        max[c] += 0.0f;
    }
}
