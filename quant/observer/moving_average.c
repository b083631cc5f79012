/* Moving average of the batches' ends: end += averaging * (batch end - end). The range starts at the
 * first batch, so it does not depend on an arbitrary beginning. */
#include "quant/observer/observer.h"

static void average_range(oct_range *range, const oct_observation *seen)
{
    if (!(seen->min <= seen->max)) return; /* nothing was seen */
    if (range->updates == 0) {
        range->min = seen->min;
        range->max = seen->max;
    } else {
        range->min = range->min + seen->averaging * (seen->min - range->min);
        range->max = range->max + seen->averaging * (seen->max - range->max);
    }
    range->updates++;
}

const oct_observer oct_observer_moving_average = {.name = "moving_average",
                                                  .update = average_range};
