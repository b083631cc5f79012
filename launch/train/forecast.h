/* The forecast says what a run will take, found by a short run of one rank's share on this machine: a few steps of every
 * phase, an evaluation, a conversion. Nothing is written. Where a share is large, or would not fit, fewer
 * images go by at a time, and memory and time are continued along the line through two such measures. */
#pragma once

#include "io/dataset/dataset.h"
#include "launch/session/plan.h"
#include "launch/train/training.h"

#define OCT_STAGE_LIST(X)                                                                          \
    X(START, "reading the data")                                                                   \
    X(FLOAT, "training in float")                                                                  \
    X(CALIBRATE, "calibration")                                                                    \
    X(QAT, "QAT")                                                                                  \
    X(EVALUATE, "evaluation")                                                                      \
    X(CONVERT, "conversion")

typedef enum oct_stage {
#define X(name, text) OCT_STAGE_##name,
    OCT_STAGE_LIST(X)
#undef X
        OCT_STAGES
} oct_stage;

const char *oct_stage_text(oct_stage stage);

typedef struct oct_forecast {
    int64_t
        bytes[OCT_STAGES]; /* resident, at most, of the rank that takes most; 0: no such stage */
    oct_stage peak;        /* where that is most */
    double step_seconds[OCT_PHASES]; /* 0: no such phase */
    double seconds;                  /* of the whole run, evaluations included */
    int64_t evaluations;
    bool too_large; /* not even `images` at a time could be tried; nothing else is known then */
    int64_t images; /* of the largest share that was run */
} oct_forecast;

/* What the forecast is about. */
typedef struct oct_forecast_subject {
    const oct_recipe *recipe;
    const oct_init *init; /* what the run starts from */
    const oct_dataset *train, *test;
    int ranks;
    int64_t checkpoint_bytes; /* of a checkpoint's file */
} oct_forecast_subject;

oct_status oct_forecast_make(oct_forecast *forecast, const oct_forecast_subject *subject);
