/* The learning rate stays at its peak from the warm-up to the end of the phase. */
#include "core/optim/schedule.h"

static double constant_lr(const oct_schedule *s, int64_t step)
{
    (void)step;
    return s->lr;
}

const oct_schedule_type oct_schedule_constant = {.name = "constant", .lr = constant_lr};
