/* Running minimum and maximum: the range of everything seen. */
#include "quant/observer/observer.h"

static void extend_range(oct_range *range, const oct_observation *seen)
{
    if (!(seen->min <= seen->max)) return; /* nothing was seen */
    range->min = seen->min < range->min ? seen->min : range->min;
    range->max = seen->max > range->max ? seen->max : range->max;
    range->updates++;
}

const oct_observer oct_observer_min_max = {.name = "min_max", .update = extend_range};
