/* The learning rate follows half a cosine again and again (SGDR, Loshchilov and Hutter 2017): each period
 * begins at the peak, falls to final_lr, and is restart_factor times as long as the one before; the first one
 * begins at the end of the warm-up. As torch.optim.lr_scheduler.CosineAnnealingWarmRestarts. */
#include "core/optim/schedule.h"

#include <math.h>

static double cosine_restarts_lr(const oct_schedule *s, int64_t step)
{
    const double pi = 3.14159265358979323846;
    double length = (double)oct_schedule_steps(s, s->restart_epochs);
    double done = (double)(step - oct_schedule_steps(s, s->warmup));
    if (length < 1) length = 1;
    if (s->restart_factor == 1) done = fmod(done, length);
    while (done >= length) {
        done -= length;
        length *= s->restart_factor;
    }
    return s->final_lr + (s->lr - s->final_lr) * 0.5 * (1 + cos(pi * done / length));
}

const oct_schedule_type oct_schedule_cosine_restarts = {
    .name = "cosine_restarts",
    .uses = " final_lr restart_epochs restart_factor ",
    .lr = cosine_restarts_lr};
