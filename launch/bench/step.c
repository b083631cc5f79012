/* octet bench step: what does a training step cost, in time and memory?
 *
 * A step is the trainer's own: the batch fetched and augmented, forward, backward, the sum over leaves
 * and ranks, the meeting of the observers, the optimizer.
 */
#include "launch/bench/bench.h"
#include "launch/bench/gauge.h"
#include "launch/bench/rehearsal.h"
#include "launch/bench/work.h"

#include "core/base/mem.h"
#include "core/base/text.h"

#include <inttypes.h>

typedef struct step_figure {
    double seconds, least; /* median and least of the repetitions */
    oct_gauge_peak memory;
    int64_t multiply_adds; /* of the batch */
} step_figure;

/* Steps that do not count, then those that do. In QAT the first one of them calibrates. */
static oct_status time_steps(oct_trainer *trainer, double *seconds, int64_t steps)
{
    oct_step_result result;
    for (int64_t i = -OCT_BENCH_WARM_UP; i < steps; i++) {
        double begin = oct_seconds();
        OCT_TRY(oct_trainer_step(trainer, &result));
        if (i >= 0) seconds[i] = oct_seconds() - begin;
    }
    return OCT_OK;
}

/* The steps of the figure are followed by as many as make the trainer's model one that converts, since
 * the program tells what there was to compute. */
static oct_status count_work(oct_rehearsal *run, int64_t *multiply_adds)
{
    oct_program program = {0};
    OCT_TRY(oct_rehearsal_convert(run, &program));
    oct_work work = oct_program_work(&program);
    *multiply_adds = run->recipe.batch_size * (work.forward + work.grad_weight + work.grad_input);
    oct_program_free(&program);
    return OCT_OK;
}

static oct_status measure(oct_bench *bench, oct_rehearsal *run, double *seconds,
                          step_figure *figure)
{
    const int64_t steps = bench->repetitions, all = steps + OCT_BENCH_WARM_UP;
    oct_gauge gauge = oct_gauge_begin();
    OCT_TRY(oct_rehearsal_begin(run, bench, bench->qat ? 0 : all, bench->qat ? all : 0));
    OCT_TRY(time_steps(&run->trainer, seconds, steps));
    figure->memory = oct_gauge_read(&gauge);
    figure->seconds = oct_median(seconds, steps);
    figure->least = seconds[0];
    return count_work(run, &figure->multiply_adds);
}

static oct_status tell(oct_bench *bench, const step_figure *f)
{
    const int ranks = bench->session->group->size;
    const char *mode = bench->qat ? "qat" : "float";
    const char *numerics = bench->qat ? bench->numerics : "f32";
    const double rate = (double)bench->batch / f->seconds, ms = 1e3 * f->seconds;
    const double gops = 2e-9 * (double)f->multiply_adds / f->seconds;
    return oct_bench_give(
        bench,
        json_pack(
            "{s:s, s:s, s:s, s:s, s:I, s:i, s:I, s:s, s:i, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:I,"
            " s:f}",
            "bench", "step", "model", bench->model, "mode", mode, "numerics", numerics, "batch",
            (json_int_t)bench->batch, "ranks", ranks, "threads", (json_int_t)bench->threads, "isa",
            oct_bench_isa(), "warm_up", OCT_BENCH_WARM_UP, "steps", (json_int_t)bench->repetitions,
            "step_ms", ms, "step_ms_least", 1e3 * f->least, "images_per_s", rate,
            "peak_bytes_above_start", (json_int_t)f->memory.larger, "peak_bytes_allocated",
            (json_int_t)f->memory.allocated, "peak_bytes_resident", (json_int_t)f->memory.resident,
            "multiply_adds", (json_int_t)f->multiply_adds, "gops", gops),
        "step %s %s, %s, batch %" PRId64 ", %d rank%s of %" PRId64
        " thread%s: %.2f ms, %.0f images/s, "
        "%.1f MB, %.1f Gop/s",
        bench->model, mode, numerics, bench->batch, ranks, ranks > 1 ? "s" : "", bench->threads,
        bench->threads > 1 ? "s" : "", ms, rate, (double)f->memory.larger / 1e6, gops);
}

oct_status oct_bench_step(oct_bench *bench)
{
    oct_rehearsal run = {0};
    step_figure figure;
    double *seconds = NULL;
    oct_status status = OCT_OK;
    if (!bench->model) bench->model = "cnn-small";
    if (bench->repetitions == 0) bench->repetitions = 10;
    OCT_TRY_OUT(oct_alloc(&seconds, (size_t)bench->repetitions, sizeof(double)));
    OCT_TRY_OUT(measure(bench, &run, seconds, &figure));
    if (bench->session->group->rank == 0) OCT_TRY_OUT(tell(bench, &figure));
out:
    oct_rehearsal_end(&run);
    oct_free(&seconds);
    return status;
}
