/* The schedules, their table, and the warm-up that comes before each of them. */
#include "core/optim/schedule.h"

#include <math.h>

static const void *const listed[] = {
#define OCT_SCHEDULE(id, name) &oct_schedule_##name,
#include "core/optim/schedule_list.def"
};
const oct_registry oct_schedule_kind_table = OCT_REGISTRY("a schedule", listed);

const oct_schedule_type *oct_schedule_type_of(oct_schedule_kind kind)
{
    return oct_registry_at(&oct_schedule_kind_table, kind);
}

/* To the nearest step. */
static int64_t steps_of(const oct_schedule *schedule, double epochs)
{
    return (int64_t)rint(epochs * (double)schedule->steps_per_epoch);
}

double oct_schedule_lr(const oct_schedule *schedule, int64_t step)
{
    const int64_t warmup = steps_of(schedule, schedule->warmup);
    if (step < warmup) return schedule->lr * (double)(step + 1) / (double)warmup;
    return oct_schedule_type_of(schedule->schedule)->lr(schedule, step);
}

static const double pi = 3.14159265358979323846;

/* Falls from the peak to final_lr along half a cosine, whose angle goes from 0 to pi. */
static double half_cosine(const oct_schedule *s, double angle)
{
    return s->final_lr + (s->lr - s->final_lr) * 0.5 * (1 + cos(angle));
}

/* The share of the steps from the end of the warm-up to the end of the phase that are done; 1 after it. */
static double share_done(const oct_schedule *s, int64_t step)
{
    const int64_t warmup = steps_of(s, s->warmup), length = s->total - warmup;
    return step >= s->total || length < 1 ? 1 : (double)(step - warmup) / (double)length;
}

/* Stays at its peak from the warm-up to the end of the phase. */
static double constant_lr(const oct_schedule *s, int64_t step)
{
    (void)step;
    return s->lr;
}

const oct_schedule_type oct_schedule_constant = {.name = "constant", .lr = constant_lr};

/* Falls from its peak by the factor gamma at each milestone. */
static double step_lr(const oct_schedule *s, int64_t step)
{
    double rate = s->lr;
    for (int i = 0; i < s->milestones.count; i++)
        if (step >= steps_of(s, s->milestones.value[i])) rate *= s->gamma;
    return rate;
}

const oct_schedule_type oct_schedule_step = {
    .name = "step", .uses = " milestones gamma ", .needs_milestones = true, .lr = step_lr};

/* Follows half a cosine (Loshchilov and Hutter 2017, without restarts) from the peak at the end of the warm-up to
 * final_lr at the end of the phase. */
static double cosine_lr(const oct_schedule *s, int64_t step)
{
    return half_cosine(s, pi * share_done(s, step));
}

const oct_schedule_type oct_schedule_cosine = {
    .name = "cosine", .uses = " final_lr ", .lr = cosine_lr};

/* Follows half a cosine again and again (SGDR, Loshchilov and Hutter 2017): each period begins at the peak, falls to
 * final_lr, and is restart_factor times as long as the one before; the first one begins at the end of the warm-up. As
 * torch.optim.lr_scheduler.CosineAnnealingWarmRestarts. */
static double cosine_restarts_lr(const oct_schedule *s, int64_t step)
{
    double length = (double)steps_of(s, s->restart_epochs);
    double done = (double)(step - steps_of(s, s->warmup));
    if (length < 1) length = 1;
    if (s->restart_factor == 1) done = fmod(done, length);
    while (done >= length) {
        done -= length;
        length *= s->restart_factor;
    }
    return half_cosine(s, pi * done / length);
}

const oct_schedule_type oct_schedule_cosine_restarts = {
    .name = "cosine_restarts",
    .uses = " final_lr restart_epochs restart_factor ",
    .lr = cosine_restarts_lr};

/* Falls from the peak at the end of the warm-up to final_lr at the end of the phase, as a power of the share of steps
 * that are left; power 1 is a straight line. With final_lr 0 as torch.optim.lr_scheduler.PolynomialLR. */
static double polynomial_lr(const oct_schedule *s, int64_t step)
{
    return s->final_lr + (s->lr - s->final_lr) * pow(1 - share_done(s, step), s->power);
}

const oct_schedule_type oct_schedule_polynomial = {
    .name = "polynomial", .uses = " final_lr power ", .lr = polynomial_lr};

/* The learning rate on the way between two; done: the share of the way so far. */
static double interpolate_lr(const oct_schedule *s, double from, double to, double done)
{
    if (s->cycle_linear) return from + (to - from) * done;
    return to + (from - to) / 2 * (1 + cos(pi * done));
}

/* Rises from peak / cycle_divisor to the peak, and falls to peak / cycle_divisor / cycle_final_divisor at the last step
 * (Smith and Topin 2018), along half cosines or straight lines. As torch.optim.lr_scheduler.OneCycleLR with two
 * phases. */
static double one_cycle_lr(const oct_schedule *s, int64_t step)
{
    const double first = s->lr / s->cycle_divisor, last = first / s->cycle_final_divisor;
    const double at = (double)step, end = (double)(s->total - 1);
    const double peak_step = s->cycle_rise * (double)s->total - 1;
    if (at >= end) return last;
    if (at <= peak_step && peak_step > 0) return interpolate_lr(s, first, s->lr, at / peak_step);
    return interpolate_lr(s, s->lr, last,
                          peak_step > 0 ? (at - peak_step) / (end - peak_step) : at / end);
}

const oct_schedule_type oct_schedule_one_cycle = {
    .name = "one_cycle",
    .uses = " cycle_rise cycle_divisor cycle_final_divisor cycle_linear ",
    .rises = true,
    .lr = one_cycle_lr};
