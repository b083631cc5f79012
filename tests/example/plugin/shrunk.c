/* An observer: a moving average of nine tenths of each batch's range, which clips its rare ends. */
#include "example.h"

static void update(oct_range *range, const oct_observation *seen)
{
    if (!(seen->min <= seen->max)) return; /* nothing was seen */
    float step = range->updates == 0 ? 1.0f : seen->averaging;
    if (range->updates == 0) range->min = range->max = 0.0f;
    range->min += step * (0.9f * seen->min - range->min);
    range->max += step * (0.9f * seen->max - range->max);
    range->updates++;
}

const oct_observer shrunk_observer = {.name = "shrunk", .update = update};
