/* octet bench times a short run of a model on random images, or converts what it trains. */
#pragma once

#include "launch/bench/bench.h"
#include "launch/train/trainer.h"
#include "quant/program/program.h"

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
                               int64_t qat_steps) OCT_NODISCARD;
void oct_bench_run_end(oct_bench_run *run);

/* Takes the steps that are left, and converts: *program to be freed by the caller. */
oct_status oct_bench_run_convert(oct_bench_run *run, oct_program *program) OCT_NODISCARD;
