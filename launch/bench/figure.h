/* A figure of whole batches has time, rate, memory, and how near it comes to the processor's peak. */
#pragma once

#include "launch/bench/bench.h"
#include "launch/session/memory_meter.h"
#include "launch/bench/timing.h"

typedef struct oct_figure {
    const char *bench, *model; /* "step", "resnet20" */
    const char *mode;          /* qat, float or int8 */
    const char *numerics;      /* of its products, where there is a choice: bf16, f32, int8 */
    oct_memory_growth memory;  /* of rank 0 */
    const char *memory_phase;  /* that the peak is of; NULL: there is but one */
    double syncs;              /* of the ranks in a batch; 0: not counted */
    double operations;         /* of the batch, over all ranks */
    double peak;               /* Gop/s of one thread, had every product its own peak */
} oct_figure;

/* Prints the figure with the medians of the timings, each of a batch. */
oct_status oct_figure_print(oct_bench *bench, const oct_figure *figure,
                            oct_timings *timings) OCT_NODISCARD;
