/* Running minimum and maximum: the range of everything seen. */
#include "quant/observer/observer.h"

static void extend_range(oct_range *state, float batch_min, float batch_max, float averaging)
{
    (void)averaging;
    if (!(batch_min <= batch_max)) return; /* nothing was seen */
    state->min = batch_min < state->min ? batch_min : state->min;
    state->max = batch_max > state->max ? batch_max : state->max;
    state->updates++;
}

const oct_observer oct_observer_min_max = {.name = "min_max", .update = extend_range};
