/* The learning rate rises from peak / cycle_divisor to the peak, and falls to peak / cycle_divisor /
 * cycle_final_divisor at the last step (Smith and Topin 2018), along half cosines or straight lines. As
 * torch.optim.lr_scheduler.OneCycleLR with two phases. */
#include "core/optim/schedule.h"

#include <math.h>

static double between(const oct_schedule *s, double from, double to, double done)
{
    const double pi = 3.14159265358979323846;
    if (s->cycle_linear) return from + (to - from) * done;
    return to + (from - to) / 2 * (1 + cos(pi * done));
}

static double one_cycle_lr(const oct_schedule *s, int64_t step)
{
    const double first = s->lr / s->cycle_divisor, last = first / s->cycle_final_divisor;
    const double at = (double)step, end = (double)(s->total - 1);
    const double top = s->cycle_rise * (double)s->total - 1;
    if (at >= end) return last;
    if (at <= top && top > 0) return between(s, first, s->lr, at / top);
    return between(s, s->lr, last, top > 0 ? (at - top) / (end - top) : at / end);
}

const oct_schedule_type oct_schedule_one_cycle = {
    .name = "one_cycle",
    .uses = " cycle_rise cycle_divisor cycle_final_divisor cycle_linear ",
    .rises = true,
    .lr = one_cycle_lr};
