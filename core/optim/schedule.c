/* This file holds the table of schedules and the warm-up that comes before each of them. */
#include "core/optim/schedule.h"

#include <math.h>

static const void *const listed[] = {
#define OCT_SCHEDULE(id, file) &oct_schedule_##file,
#include "core/optim/schedule_list.def"
};
const oct_registry oct_schedule_kind_table = OCT_REGISTRY("a schedule", listed);

const oct_schedule_type *oct_schedule_type_of(oct_schedule_kind kind)
{
    return oct_registry_at(&oct_schedule_kind_table, kind);
}

int64_t oct_schedule_steps(const oct_schedule *schedule, double epochs)
{
    return (int64_t)rint(epochs * (double)schedule->steps_per_epoch);
}

double oct_schedule_lr(const oct_schedule *schedule, int64_t step)
{
    const int64_t warmup = oct_schedule_steps(schedule, schedule->warmup);
    if (step < warmup) return schedule->lr * (double)(step + 1) / (double)warmup;
    return oct_schedule_type_of(schedule->schedule)->lr(schedule, step);
}
