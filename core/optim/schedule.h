/* The learning rate as a pure function of the step within a phase. */
#pragma once

#include <stdint.h>

typedef enum oct_schedule_kind {
    OCT_SCHEDULE_CONSTANT,
    OCT_SCHEDULE_STEP,
    OCT_SCHEDULE_COSINE
} oct_schedule_kind;

typedef struct oct_schedule {
    oct_schedule_kind kind;
    double lr;       /* peak */
    double final_lr; /* cosine: value reached at the end */
    int64_t warmup;  /* steps of linear rise from lr/warmup to lr */
    int64_t total;   /* steps of the phase */
    double gamma;    /* step: factor at each milestone */
    int64_t milestone[8];
    int num_milestones;
} oct_schedule;

double oct_schedule_lr(const oct_schedule *schedule, int64_t step);
