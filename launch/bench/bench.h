/* The figures of octet bench, and what they share.
 *
 * A figure is the median of repetitions after a warm-up that does not count, on data that is random and
 * not zero. It goes to stdout as a line of text, or with --json as an object of the one document that
 * the command prints.
 */
#pragma once

#include "core/kernel/float_kernel.h"
#include "launch/base/machine.h"
#include "launch/session/session.h"
#include "launch/train/trainer.h"
#include "quant/kernel/kernel.h"
#include "quant/program/program.h"

#include <jansson.h>

enum { OCT_BENCH_WARM_UP = 3, OCT_BENCH_SEED = 7, OCT_BENCH_REPETITIONS_MAX = 10000 };

typedef struct oct_bench {
    oct_session *session;
    const oct_args *args;
    const char *file;       /* infer: an int8 model, or NULL */
    const char *model;      /* a model of the zoo; NULL: not given */
    int64_t h, w, c;        /* of an image */
    int64_t batch, threads; /* threads: of a rank */
    int64_t leaf;           /* samples of one of the batch */
    int64_t repetitions;    /* 0: as many as the figure needs */
    bool qat;               /* step: QAT or float */
    oct_numerics numerics;  /* step: of the backward of QAT, or of float */
    const char *norm_group; /* step: batch_norm.group of its recipe */
    bool native;            /* reduce: beside the library's own */
    json_t *figures;        /* with --json: an array */
} oct_bench;

/* A figure, or several of one kind. */
typedef struct oct_bench_figure {
    const char *name;
    oct_status (*run)(oct_bench *bench);
    bool parallel; /* on several ranks too */
    bool several;  /* --json gives an array */
} oct_bench_figure;
extern const oct_bench_figure oct_bench_step, oct_bench_infer, oct_bench_kernels, oct_bench_reduce;

/* Takes the figure over: it is added to the others, or without --json the line is printed instead. */
void oct_bench_print(oct_bench *bench, json_t *figure, const char *format, ...) OCT_PRINTF(3, 4);

/* Fills n bytes with random bits, others for each `sub`. */
void oct_bench_fill(uint8_t *bytes, int64_t n, uint32_t sub);

/* Time. A repetition is timed by the clock and by the processor time that this process took for it. On a machine with
 * other work the second is the steadier one. */

typedef struct oct_timings {
    int64_t count, room;
    double *seconds, *cpu; /* of each repetition; cpu: of all threads together */
    double began, cpu_began;
} oct_timings;

/* Makes room; oct_timings_free frees it, also after a failure. */
oct_status oct_timings_create(oct_timings *timings, int64_t room);
void oct_timings_free(oct_timings *timings);
void oct_timing_begin(oct_timings *timings);
void oct_timing_end(oct_timings *timings);

typedef struct oct_timing {
    double seconds, least, cpu; /* medians, and the least of the seconds */
} oct_timing;
/* Returns the medians of at least one repetition, and the least of its seconds; sorts them. */
oct_timing oct_timings_median(oct_timings *timings);

/* Repeats the call until that much of the processor's time has passed; the seconds of one. */
double oct_time_call(void (*call)(void *user), void *user, double at_least);
double oct_median(double *values, int64_t n); /* of n > 0, which are sorted */

/* What the processor can do: the products of Octet's own tables (core/product/panel.h) on operands that stay in
 * registers and the first-level cache, the best of some rounds. It is the ceiling under which figures stand, taken in
 * the same run. */

typedef enum oct_roof { OCT_ROOF_INT8, OCT_ROOF_BF16, OCT_ROOF_F32, OCT_ROOFS } oct_roof;

/* Operations a second of one thread, in units of 1e9; a multiplication and an addition are two. */
typedef struct oct_peak {
    double gops[OCT_ROOFS];
} oct_peak;

/* Measures the peak of each kind of product with the best kernels for the instruction sets `have`. */
oct_status oct_peak_measure(oct_isa_set have, oct_peak *peak);

/* A short run of a model on random images. */

/* Everything that the trainer borrows. */
typedef struct oct_bench_run {
    oct_dataset data;
    oct_recipe recipe;
    oct_trainer trainer;
} oct_bench_run;

/* Makes data and trainer, standing at step 0 of `float_steps`, one step of calibration and `qat_steps`
 * with live batch norm and moving scales. One batch is the whole data set. Images of 32x32x3 are cropped
 * and flipped, as CIFAR-10's are. */
oct_status oct_bench_run_begin(oct_bench_run *run, const oct_bench *bench, int64_t float_steps,
                               int64_t qat_steps);
void oct_bench_run_end(oct_bench_run *run);

/* Takes the steps that are left, and converts: *program to be freed by the caller. */
oct_status oct_bench_run_convert(oct_bench_run *run, oct_program *program);
