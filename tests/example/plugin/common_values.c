/* An observer that clips rare values: the range holds all but one in a thousand at each end of the values seen so
 * far, which fade. */
#include "methods.h"

static const double rare = 0.001;

static void count(oct_range *range, int64_t *kept, const oct_observation *seen)
{
    oct_histogram_keep(range, kept, seen);
    range->min = oct_histogram_quantile(kept, rare);
    range->max = oct_histogram_quantile(kept, 1.0 - rare);
}

const oct_observer common_values_observer = {.name = "common-values", .count = count};
