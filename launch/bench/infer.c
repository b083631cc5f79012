/* octet bench infer: how fast is an int8 model?
 *
 * A model file, or a model of the zoo that is made here: calibrated on random images, trained for a
 * step so that no scale is that of the initial weights alone, and converted.
 */
#include "launch/bench/bench.h"
#include "launch/bench/gauge.h"
#include "launch/bench/rehearsal.h"
#include "launch/bench/work.h"

#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/base/text.h"
#include "core/base/whole.h"
#include "launch/certificate.h"
#include "launch/file_kind.h"
#include "quant/pass/convert.h"
#include "quant/runtime/step.h"

#include <inttypes.h>
#include <omp.h>

enum { LEAST_RUNS = 10 };
static const double LEAST_SECONDS = 0.5; /* all runs together, unless their number is given */

typedef struct inference {
    oct_model file; /* empty where the zoo's model is made */
    oct_program made;
    const oct_program *program;
    oct_runtime *runtime;
    float *x, *y;
    double *seconds;
    int64_t runs;
    oct_gauge gauge;
} inference;

static oct_status load(inference *f, const char *path)
{
    OCT_TRY(oct_file_need_model(path));
    OCT_TRY(oct_model_load(&f->file, path));
    OCT_TRY(oct_model_ready(&f->file, path));
    f->program = &f->file.program;
    return OCT_OK;
}

/* From a batch of one leaf, whatever batch is timed: what training holds is no part of the figure. */
static oct_status make(inference *f, const oct_bench *bench)
{
    oct_bench small = *bench;
    oct_rehearsal run;
    small.batch = 8;
    OCT_TRY(oct_rehearsal_begin(&run, &small, 0, 1));
    oct_status status = oct_rehearsal_convert(&run, &f->made);
    oct_rehearsal_end(&run);
    f->program = &f->made;
    return status;
}

static oct_status allocate(inference *f, const oct_bench *bench)
{
    const oct_program *p = f->program;
    const size_t batch = (size_t)bench->batch;
    const int64_t runs = bench->repetitions > 0 ? bench->repetitions : OCT_BENCH_REPETITIONS_MAX;
    OCT_TRY(oct_alloc(&f->x, batch * (size_t)oct_inputs_numel(p), sizeof(float)));
    OCT_TRY(oct_alloc(&f->y, batch, oct_value_bytes(&p->values[p->output])));
    OCT_TRY(oct_alloc(&f->seconds, (size_t)runs, sizeof(double)));
    OCT_TRY(oct_runtime_create(&f->runtime, p, bench->batch, &oct_module_islands));
    oct_fill_uniform(f->x, bench->batch * oct_inputs_numel(p), OCT_BENCH_SEED, OCT_STREAM_TEST, 0,
                     -1.0F, 1.0F);
    return OCT_OK;
}

static bool enough(const inference *f, const oct_bench *bench, double begin)
{
    if (bench->repetitions > 0) return f->runs >= bench->repetitions;
    return f->runs >= OCT_BENCH_REPETITIONS_MAX ||
           (f->runs >= LEAST_RUNS && oct_seconds() - begin >= LEAST_SECONDS);
}

static oct_status time_runs(inference *f, const oct_bench *bench)
{
    const float *input[OCT_STEP_INPUTS] = {f->x};
    for (int i = 1; i < f->program->num_inputs; i++)
        input[i] = input[i - 1] +
                   bench->batch * oct_value_numel(&f->program->values[f->program->inputs[i - 1]]);
    for (int i = 0; i < OCT_BENCH_WARM_UP; i++)
        OCT_TRY(oct_runtime_run(f->runtime, bench->batch, input, f->y));
    for (double first = oct_seconds(); !enough(f, bench, first); f->runs++) {
        double begin = oct_seconds();
        OCT_TRY(oct_runtime_run(f->runtime, bench->batch, input, f->y));
        f->seconds[f->runs] = oct_seconds() - begin;
    }
    return OCT_OK;
}

static oct_status tell(inference *f, oct_bench *bench)
{
    const char *model = bench->file ? bench->file : bench->model;
    const oct_gauge_peak memory = oct_gauge_read(&f->gauge);
    const int64_t work = bench->batch * oct_program_work(f->program).forward;
    const double each = oct_median(f->seconds, f->runs), rate = (double)bench->batch / each;
    const double gops = 2e-9 * (double)work / each;
    return oct_bench_give(
        bench,
        json_pack("{s:s, s:s, s:s, s:I, s:I, s:s, s:i, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I,"
                  " s:f}",
                  "bench", "infer", "model", model, "numerics", "int8", "batch",
                  (json_int_t)bench->batch, "threads", (json_int_t)bench->threads, "isa",
                  oct_bench_isa(), "warm_up", OCT_BENCH_WARM_UP, "steps", (json_int_t)f->runs,
                  "step_ms", 1e3 * each, "step_ms_least", 1e3 * f->seconds[0], "images_per_s", rate,
                  "peak_bytes_above_start", (json_int_t)memory.larger, "peak_bytes_allocated",
                  (json_int_t)memory.allocated, "peak_bytes_resident", (json_int_t)memory.resident,
                  "model_bytes", (json_int_t)oct_int8_bytes(f->program), "multiply_adds",
                  (json_int_t)work, "gops", gops),
        "infer %s, batch %" PRId64 ", %" PRId64 " thread%s, %s: %.3f ms, %.0f images/s, %.1f MB, "
        "%.1f Gop/s",
        model, bench->batch, bench->threads, bench->threads > 1 ? "s" : "", oct_bench_isa(),
        1e3 * each, rate, (double)memory.larger / 1e6, gops);
}

oct_status oct_bench_infer(oct_bench *bench)
{
    inference f = {.gauge = oct_gauge_begin()};
    oct_status status = OCT_OK;
    OCT_CHECK(!bench->file != !bench->model, OCT_USAGE,
              "command line: write octet bench infer MODEL, or --model NAME for one of the zoo");
    OCT_TRY_OUT(bench->file ? load(&f, bench->file) : make(&f, bench));
    omp_set_num_threads((int)bench->threads);
    oct_gauge_again();
    OCT_TRY_OUT(allocate(&f, bench));
    OCT_TRY_OUT(time_runs(&f, bench));
    OCT_TRY_OUT(tell(&f, bench));
out:
    oct_runtime_destroy(&f.runtime);
    oct_model_free(&f.file);
    oct_program_free(&f.made);
    oct_free(&f.x);
    oct_free(&f.y);
    oct_free(&f.seconds);
    return status;
}
