/* Learning rates. Warm-up rises linearly and reaches the peak at its last step; a cosine (Loshchilov
 * and Hutter 2017, without restarts) runs from the end of the warm-up to the end of the phase. */
#include "core/optim/schedule.h"

#include <math.h>

static double cosine(const oct_schedule *s, int64_t step)
{
    const double pi = 3.14159265358979323846;
    int64_t length = s->total - s->warmup;
    if (step >= s->total || length < 1) return s->final_lr;
    double done = (double)(step - s->warmup) / (double)length;
    return s->final_lr + (s->lr - s->final_lr) * 0.5 * (1 + cos(pi * done));
}

static double staircase(const oct_schedule *s, int64_t step)
{
    double lr = s->lr;
    for (int i = 0; i < s->num_milestones; i++) {
        if (step >= s->milestone[i]) lr *= s->gamma;
    }
    return lr;
}

double oct_schedule_lr(const oct_schedule *schedule, int64_t step)
{
    if (step < schedule->warmup)
        return schedule->lr * (double)(step + 1) / (double)schedule->warmup;
    switch (schedule->kind) {
    case OCT_SCHEDULE_COSINE:
        return cosine(schedule, step);
    case OCT_SCHEDULE_STEP:
        return staircase(schedule, step);
    case OCT_SCHEDULE_CONSTANT:
        break;
    }
    return schedule->lr;
}
