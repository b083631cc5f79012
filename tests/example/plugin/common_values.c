/* An observer that clips rare values: the range holds all but one in a thousand at each end of the values seen so
 * far; counts are halved every 1/averaging steps. */
#include "methods.h"

static const double rare = 0.001;

/* Integers, which are the same on every rank. */
static void fade(const oct_range *state, int64_t *kept, float averaging)
{
    const int64_t life = (int64_t)(1.0f / averaging);
    if (state->updates % life != life - 1) return;
    for (int bin = 0; bin < OCT_HISTOGRAM_BINS; bin++)
        kept[bin] /= 2;
}

static void count(oct_range *state, int64_t *kept, const oct_seen *batch, float averaging)
{
    fade(state, kept, averaging);
    oct_histogram_merge(batch->count, kept);
    state->min = oct_histogram_quantile(kept, rare);
    state->max = oct_histogram_quantile(kept, 1.0 - rare);
    state->updates++;
}

const oct_observer common_values_observer = {.name = "common-values", .count = count};
