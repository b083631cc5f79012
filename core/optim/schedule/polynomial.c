/* The learning rate falls from the peak at the end of the warm-up to final_lr at the end of the phase, as a
 * power of the share of steps that are left; power 1 is a straight line. With final_lr 0 as
 * torch.optim.lr_scheduler.PolynomialLR. */
#include "core/optim/schedule.h"

#include <math.h>

static double polynomial_lr(const oct_schedule *s, int64_t step)
{
    const int64_t warmup = oct_schedule_steps(s, s->warmup), length = s->total - warmup;
    if (step >= s->total || length < 1) return s->final_lr;
    const double left = 1 - (double)(step - warmup) / (double)length;
    return s->final_lr + (s->lr - s->final_lr) * pow(left, s->power);
}

const oct_schedule_type oct_schedule_polynomial = {
    .name = "polynomial", .uses = " final_lr power ", .lr = polynomial_lr};
