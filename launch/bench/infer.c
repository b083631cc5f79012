/* octet bench infer measures how fast an int8 model is.
 *
 * It takes a model file, or makes a built-in model here: calibrated on random images, trained for a
 * step so that no scale is that of the initial weights alone, and converted. */
#include "launch/bench/bench.h"
#include "launch/evaluate/multiply_adds.h"

#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/base/text.h"
#include "launch/deploy/certificate.h"
#include "launch/session/file_kind.h"
#include "quant/convert/convert.h"
#include "quant/program/step.h"

#include <omp.h>

enum { LEAST_RUNS = 10 };
static const double LEAST_SECONDS = 0.5; /* all runs together, unless their number is given */

typedef struct inference {
    oct_model file; /* empty where the zoo's model is made */
    oct_program made;
    const oct_program *program;
    oct_runtime *runtime;
    float *x, *y;
    oct_timings timings;
    oct_memory_meter memory_meter;
} inference;

static oct_status allocate_inference(inference *f, const oct_bench *bench)
{
    const oct_program *p = f->program;
    const size_t batch = (size_t)bench->batch;
    OCT_TRY(oct_alloc(&f->x, batch * (size_t)oct_inputs_numel(p), sizeof(float)));
    OCT_TRY(oct_alloc(&f->y, batch, oct_value_bytes(&p->values[p->output])));
    OCT_TRY(oct_timings_create(&f->timings, bench->repetitions > 0 ? bench->repetitions
                                                                   : OCT_BENCH_REPETITIONS_MAX));
    OCT_TRY(oct_runtime_create(&f->runtime, p, bench->batch, &oct_module_fallbacks));
    oct_fill_uniform(f->x, bench->batch * oct_inputs_numel(p), OCT_BENCH_SEED, OCT_STREAM_TEST, 0,
                     -1.0F, 1.0F);
    return OCT_OK;
}

static oct_status time_runs(inference *f, const oct_bench *bench)
{
    const float *input[OCT_PROGRAM_INPUTS] = {f->x};
    for (int i = 1; i < f->program->num_inputs; i++)
        input[i] = input[i - 1] +
                   bench->batch * oct_value_numel(&f->program->values[f->program->inputs[i - 1]]);
    for (int i = 0; i < OCT_BENCH_WARM_UP; i++)
        OCT_TRY(oct_runtime_run(f->runtime, bench->batch, input, f->y));
    const double began = oct_seconds();
    const oct_timings *t = &f->timings;
    while (t->count < t->room && (bench->repetitions > 0 || t->count < LEAST_RUNS ||
                                  oct_seconds() - began < LEAST_SECONDS)) {
        oct_timing_begin(&f->timings);
        OCT_TRY(oct_runtime_run(f->runtime, bench->batch, input, f->y));
        oct_timing_end(&f->timings);
    }
    return OCT_OK;
}

static oct_status print_inference(inference *f, oct_bench *bench)
{
    oct_peak peak;
    oct_figure timed = {
        .bench = "infer",
        .model = bench->file ? bench->file : bench->model,
        .mode = "int8",
        .numerics = "int8",
        .memory = oct_memory_meter_read(&f->memory_meter),
        .operations = 2.0 * (double)(bench->batch * oct_program_multiply_adds(f->program).forward),
    };
    OCT_TRY(oct_peak_measure(oct_cpu_isa(), &peak));
    timed.peak = peak.gops[OCT_ROOF_INT8];
    return oct_figure_print(bench, &timed, &f->timings);
}

oct_status oct_bench_infer(oct_bench *bench)
{
    inference f = {.memory_meter = oct_memory_meter_begin()};
    oct_status status = OCT_OK;
    OCT_CHECK(!bench->file != !bench->model, OCT_USAGE,
              "command line: name an int8 model (octet bench infer MODEL) or a built-in one "
              "(--model NAME)");
    f.program = bench->file ? &f.file.program : &f.made;
    if (bench->file) {
        OCT_TRY_OUT(oct_file_need_model(bench->file));
        OCT_TRY_OUT(oct_model_load(&f.file, bench->file));
        OCT_TRY_OUT(oct_model_check_runnable(&f.file, bench->file));
    } else {
        /* Of a batch of one leaf, whatever batch is timed: what training holds is no part of the figure. */
        oct_bench small = *bench;
        oct_bench_run run;
        small.batch = 8;
        OCT_TRY_OUT(oct_bench_run_begin(&run, &small, 0, 1));
        status = oct_bench_run_convert(&run, &f.made);
        oct_bench_run_end(&run);
        OCT_TRY_OUT(status);
    }
    omp_set_num_threads((int)bench->threads);
    oct_memory_reset_peak();
    OCT_TRY_OUT(allocate_inference(&f, bench));
    OCT_TRY_OUT(time_runs(&f, bench));
    OCT_TRY_OUT(print_inference(&f, bench));
out:
    oct_runtime_destroy(&f.runtime);
    oct_model_free(&f.file);
    oct_program_free(&f.made);
    oct_free(&f.x);
    oct_free(&f.y);
    oct_timings_free(&f.timings);
    return status;
}
