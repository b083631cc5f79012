/* The learning rate falls from its peak by the factor gamma at each milestone. */
#include "core/optim/schedule.h"

static double step_lr(const oct_schedule *s, int64_t step)
{
    double rate = s->lr;
    for (int i = 0; i < s->milestones.count; i++)
        if (step >= oct_schedule_steps(s, s->milestones.value[i])) rate *= s->gamma;
    return rate;
}

const oct_schedule_type oct_schedule_step = {
    .name = "step", .uses = " milestones gamma ", .needs_milestones = true, .lr = step_lr};
