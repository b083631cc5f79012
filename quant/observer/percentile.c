/* Percentile: magnitudes up to the one that this percentage of all values does not exceed. */
#include "quant/observer/observer.h"

/* Takes as the range what was counted in [-q, q], q being the percentile of the magnitudes. */
static void cut_at_percentile(oct_range *range, int64_t *histogram, const oct_observation *seen)
{
    int64_t magnitudes[OCT_HISTOGRAM_BINS];
    oct_histogram_keep(range, histogram, seen);
    oct_histogram_magnitudes(histogram, magnitudes);
    float most = oct_histogram_quantile(magnitudes, seen->percentile / 100);
    /* Of a tensor that is 0 nearly everywhere the rare values are all there is. */
    if (most == 0.0f) most = oct_histogram_quantile(magnitudes, 1);
    oct_observer_cut(range, histogram, most);
}

const oct_observer oct_observer_percentile = {.name = "percentile", .count = cut_at_percentile};
