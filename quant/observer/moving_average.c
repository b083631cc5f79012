/* Moving average of the batches' ends: end += averaging * (batch end - end). The range starts at the
 * first batch, so it does not depend on an arbitrary beginning. */
#include "quant/observer/observer.h"

static void average_range(oct_range *state, float batch_min, float batch_max, float averaging)
{
    if (!(batch_min <= batch_max)) return; /* nothing was seen */
    if (state->updates == 0) {
        state->min = batch_min;
        state->max = batch_max;
    } else {
        state->min = state->min + averaging * (batch_min - state->min);
        state->max = state->max + averaging * (batch_max - state->max);
    }
    state->updates++;
}

const oct_observer oct_observer_moving_average = {.name = "moving_average",
                                                  .update = average_range};
