/* The learning rate follows half a cosine (Loshchilov and Hutter 2017, without restarts) from the peak at
 * the end of the warm-up to final_lr at the end of the phase. */
#include "core/optim/schedule.h"

#include <math.h>

static double cosine_lr(const oct_schedule *s, int64_t step)
{
    const double pi = 3.14159265358979323846;
    const int64_t warmup = oct_schedule_steps(s, s->warmup), length = s->total - warmup;
    if (step >= s->total || length < 1) return s->final_lr;
    double done = (double)(step - warmup) / (double)length;
    return s->final_lr + (s->lr - s->final_lr) * 0.5 * (1 + cos(pi * done));
}

const oct_schedule_type oct_schedule_cosine = {
    .name = "cosine", .uses = " final_lr ", .lr = cosine_lr};
