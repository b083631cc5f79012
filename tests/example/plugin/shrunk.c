/* An observer: a moving average of nine tenths of each batch's range, which clips its rare ends. */
#include "example.h"

static void update(oct_range *state, float batch_min, float batch_max, float averaging)
{
    if (!(batch_min <= batch_max)) return; /* nothing was seen */
    float min = 0.9f * batch_min, max = 0.9f * batch_max;
    float step = state->updates == 0 ? 1.0f : averaging;
    if (state->updates == 0) state->min = state->max = 0.0f;
    state->min += step * (min - state->min);
    state->max += step * (max - state->max);
    state->updates++;
}

const oct_observer shrunk_observer = {.name = "shrunk", .update = update};
