/* What a figure of whole batches says: time, rate, memory, and how near it comes to the processor's
 * peak. */
#pragma once

#include "launch/bench/bench.h"
#include "launch/gauge.h"
#include "launch/bench/laps.h"

typedef struct oct_timed {
    const char *bench, *model; /* "step", "resnet20" */
    const char *mode;          /* qat, float or int8 */
    const char *numerics;      /* of its products, where there is a choice: bf16, f32, int8 */
    oct_gauge_peak memory;     /* of rank 0 */
    const char *memory_phase;  /* that the peak is of; NULL: there is but one */
    double operations;         /* of the batch, over all ranks */
    double peak;               /* Gop/s of one thread, had every product its own peak */
} oct_timed;

/* Takes the medians of the laps, each of a batch. */
oct_status oct_timed_give(oct_bench *bench, const oct_timed *timed, oct_laps *laps) OCT_NODISCARD;
