/* The learning rate as a pure function of the step within a phase. A warm-up rises linearly and reaches
 * the peak at its last step; after it the schedule of schedule_list.def decides. */
#pragma once

#include "core/base/text.h"
#include "core/base/registry.h"

typedef enum oct_schedule_kind {
#define OCT_SCHEDULE(id, name) OCT_SCHEDULE_##id,
#include "core/optim/schedule_list.def"
} oct_schedule_kind;

/* What a schedule computes from: a peak, and the parameters of schedule_list.def; lengths are in epochs, as a recipe has them. */
typedef struct oct_schedule {
    double lr;     /* peak */
    int64_t total; /* steps of the phase */
    int64_t steps_per_epoch;
#define OCT_SCHEDULE_FIELD_REAL double
#define OCT_SCHEDULE_FIELD_BOOL bool
#define OCT_SCHEDULE_FIELD_REALS oct_reals
#define OCT_SCHEDULE_FIELD_WORD oct_schedule_kind
#define OCT_SCHEDULE_KEY(name, kind, def, min, max, table, same, help)                             \
    OCT_SCHEDULE_FIELD_##kind name;
#include "core/optim/schedule_list.def"
} oct_schedule;

typedef struct oct_schedule_type {
    const char *name;
    /* Parameters of schedule_list.def that not all have, between blanks; or NULL. */
    const char *uses;
    bool needs_milestones; /* computes nothing without them */
    bool rises;            /* has a rise of its own, so that there is no warm-up before it */
    /* The learning rate of a step after the warm-up. */
    double (*lr)(const oct_schedule *schedule, int64_t step);
} oct_schedule_type;

#define OCT_SCHEDULE(id, name) extern const oct_schedule_type oct_schedule_##name;
#include "core/optim/schedule_list.def"
extern const oct_registry oct_schedule_kind_table;

const oct_schedule_type *oct_schedule_type_of(oct_schedule_kind kind);
double oct_schedule_lr(const oct_schedule *schedule, int64_t step);
