/* Figures of whole batches and sums. step: what a training step costs, in time and memory, as the trainer itself takes
 * it: the batch fetched and augmented, forward, backward, the sum over leaves and ranks, the control reduction with the
 * observers' ranges, the optimizer. infer: how fast an int8 model is, that of a file or a built-in one that is made
 * here. reduce: what a sum of gradients over ranks costs beside a copy of the same bytes, and with --native beside the
 * sum of the MPI library. */
#include "launch/bench/bench.h"

#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/base/text.h"
#include "launch/deploy/certificate.h"
#include "launch/deploy/device.h"
#include "launch/session/file_kind.h"
#include "quant/convert/convert.h"
#include "quant/program/step.h"

#include <inttypes.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

/* A figure of whole batches: time, rate, memory, and how near it comes to the processor's peak. */

typedef struct batch_figure {
    const char *bench, *model; /* "step", "resnet20" */
    const char *mode;          /* qat, float or int8 */
    const char *numerics;      /* of its products, where there is a choice: bf16, f32, int8 */
    oct_memory_growth memory;  /* of rank 0 */
    const char *memory_phase;  /* that the peak is of; NULL: there is but one */
    double syncs;              /* of the ranks in a batch; 0: not counted */
    double operations;         /* of the batch, over all ranks */
    double peak;               /* Gop/s of one thread, had every product its own peak */
} batch_figure;

/* Prints the figure with the medians of the timings, each of a batch. */
static void print_figure(oct_bench *bench, const batch_figure *t, oct_timings *timings)
{
    const int ranks = bench->session->group->size;
    const oct_timing each = oct_timings_median(timings);
    const double gops = 1e-9 * t->operations / each.seconds;
    const double rate = (double)bench->batch / each.seconds;
    const double peak = t->peak * (double)(bench->threads * ranks);
    const bool choice = strcmp(t->mode, t->numerics) != 0;
    char syncs[32] = "";
    if (t->syncs > 0 && ranks > 1) oct_snprintf(syncs, sizeof syncs, ", %g syncs", t->syncs);
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:i, s:I, s:s, s:i, s:I, s:f, s:f, s:f, s:f, s:I, s:I, s:I, "
        "s:s?}",
        "bench", t->bench, "model", t->model, "mode", t->mode, "numerics", t->numerics, "batch",
        (json_int_t)bench->batch, "ranks", ranks, "threads", (json_int_t)bench->threads, "isa",
        oct_isa_best(), "warm_up", OCT_BENCH_WARM_UP, "steps", (json_int_t)timings->count,
        "images_per_s", rate, "step_ms", 1e3 * each.seconds, "step_ms_least", 1e3 * each.least,
        "step_cpu_ms", 1e3 * each.cpu, "peak_bytes_above_start", (json_int_t)t->memory.larger,
        "peak_bytes_allocated", (json_int_t)t->memory.allocated, "peak_bytes_resident",
        (json_int_t)t->memory.resident, "peak_phase", t->memory_phase);
    json_t *speed =
        json_pack("{s:I, s:f, s:f, s:f}", "multiply_adds", (json_int_t)(t->operations / 2), "gops",
                  gops, "gops_peak", peak, "percent_of_peak", 100.0 * gops / peak);
    if (t->syncs > 0) json_object_set_new(object, "syncs", json_real(t->syncs));
    if (json_object_update_new(object, speed) != 0) {
        json_decref(object);
        object = NULL; /* no memory, which oct_bench_print reports */
    }
    oct_bench_print(bench, object,
                    "%s %s %s%s%s, batch %" PRId64 ", %d rank%s of %" PRId64
                    " thread%s, %s: %.2f ms, %.0f images/s%s, %s%s%s, %.1f Gop/s of %.1f (%.0f %%)",
                    t->bench, t->model, t->mode, choice ? " " : "", choice ? t->numerics : "",
                    bench->batch, ranks, ranks > 1 ? "s" : "", bench->threads,
                    bench->threads > 1 ? "s" : "", oct_isa_best(), 1e3 * each.seconds, rate, syncs,
                    oct_text_size((int64_t)t->memory.larger).text, t->memory_phase ? " in " : "",
                    t->memory_phase ? t->memory_phase : "", gops, peak, 100.0 * gops / peak);
}

enum { STEPS = 10 };

/* Keeps the peak of memory since the last call, which was in `phase`, if it is the largest so far; then resets it. */
static void note_peak(batch_figure *t, const oct_memory_meter *memory_meter, const char *phase)
{
    const oct_memory_growth peak = oct_memory_meter_read(memory_meter);
    if (peak.larger > t->memory.larger) {
        t->memory = peak;
        t->memory_phase = phase;
    }
    oct_memory_reset_peak();
}

/* Takes steps that do not count, then those that do. In QAT the first one of all calibrates. */
static oct_status time_steps(const oct_bench *bench, oct_trainer *trainer, oct_timings *timings,
                             const oct_memory_meter *memory_meter, batch_figure *t)
{
    oct_step_result result;
    for (int i = 0; i < OCT_BENCH_WARM_UP; i++) {
        const oct_phase phase = oct_plan_phase(&trainer->plan, trainer->step);
        OCT_TRY(oct_trainer_step(trainer, &result));
        note_peak(t, memory_meter, oct_phase_name(phase));
    }
    const int64_t before = oct_comm_syncs(bench->session->comm);
    while (timings->count < timings->room) {
        oct_timing_begin(timings);
        OCT_TRY(oct_trainer_step(trainer, &result));
        oct_timing_end(timings);
    }
    t->syncs = (double)(oct_comm_syncs(bench->session->comm) - before) / (double)timings->count;
    note_peak(t, memory_meter, t->mode);
    return OCT_OK;
}

/* Times steps of training, and compares their operations a second with the peak of the processor. */
static oct_status bench_step(oct_bench *bench)
{
    OCT_OWNED(oct_timings_free) oct_timings timings = {0};
    OCT_OWNED(oct_bench_run_end) oct_bench_run run = {0};
    OCT_OWNED(oct_program_free) oct_program program = {0};
    oct_peak peak;
    oct_multiply_adds work;
    if (!bench->model) bench->model = "cnn-small";
    batch_figure timed = {
        .bench = "step",
        .model = bench->model,
        .mode = bench->qat ? "qat" : "float",
        .numerics = oct_numerics_name(bench->numerics),
    };
    OCT_TRY(oct_timings_create(&timings, bench->repetitions > 0 ? bench->repetitions : STEPS));
    const int64_t steps = timings.room + OCT_BENCH_WARM_UP;
    const oct_memory_meter meter = oct_memory_meter_begin();
    OCT_TRY(oct_bench_run_begin(&run, bench, bench->qat ? 0 : steps, bench->qat ? steps : 0));
    note_peak(&timed, &meter, "prepare");
    OCT_TRY(time_steps(bench, &run.trainer, &timings, &meter, &timed));
    /* The steps of the figure are followed by those that the trainer's model needs to convert, since
     * the program shows what there was to compute. */
    OCT_TRY(oct_bench_run_convert(&run, &program));
    OCT_TRY(oct_program_multiply_adds(&program, &work));
    const double each = 2.0 * (double)bench->batch;
    /* At the peak, forward and backward each take the time that the rate of their number type allows. */
    const double forward = each * (double)work.forward,
                 backward = each * (double)(work.grad_weight + work.grad_input);
    static const oct_roof roofs[] = {[OCT_NUMERICS_BF16] = OCT_ROOF_BF16,
                                     [OCT_NUMERICS_F32] = OCT_ROOF_F32,
                                     [OCT_NUMERICS_INT8] = OCT_ROOF_INT8};
    OCT_TRY(oct_peak_measure(oct_cpu_isa(), &peak));
    timed.operations = forward + backward;
    timed.peak = timed.operations /
                 (forward / peak.gops[bench->qat ? OCT_ROOF_INT8 : roofs[bench->numerics]] +
                  backward / peak.gops[roofs[bench->numerics]]);
    if (bench->session->group->rank == 0) print_figure(bench, &timed, &timings);
    return OCT_OK;
}

const oct_bench_figure oct_bench_step = {"step", bench_step, true, false};

/* A built-in model is calibrated on random images, trained for a step so that no scale is that of the initial weights
 * alone, and converted. */

enum { LEAST_RUNS = 10 };
static const double LEAST_SECONDS = 0.5; /* all runs together, unless their number is given */

typedef struct inference {
    oct_model file; /* empty where the zoo's model is made */
    oct_program built_in;
    const oct_program *program;
    oct_runtime *runtime;
    float *x, *y;
    oct_timings timings;
} inference;

static oct_status allocate_inference(inference *f, const oct_bench *bench)
{
    const oct_program *p = f->program;
    const size_t batch = (size_t)bench->batch;
    OCT_TRY(oct_alloc(&f->x, batch * (size_t)oct_inputs_numel(p), sizeof(float)));
    OCT_TRY(oct_alloc(&f->y, batch, oct_value_bytes(&p->values[p->output])));
    OCT_TRY(oct_timings_create(&f->timings, bench->repetitions > 0 ? bench->repetitions
                                                                   : OCT_BENCH_REPETITIONS_MAX));
    OCT_TRY(oct_runtime_create(
        &f->runtime, p,
        &(oct_runtime_options){.max_batch = bench->batch, .host = &oct_module_fallbacks}));
    oct_fill_uniform(f->x, bench->batch * oct_inputs_numel(p), OCT_BENCH_SEED, OCT_STREAM_TEST, 0,
                     -1.0F, 1.0F);
    return OCT_OK;
}

/* Times forwards of a batch, whose inputs are one after another in x: as many as were asked for, or enough. */
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

/* Times an int8 model: of a file, or a built-in one that is trained for one step and converted. */
static oct_status bench_infer(oct_bench *bench)
{
    const oct_memory_meter memory_meter = oct_memory_meter_begin();
    inference f = {0};
    oct_peak peak;
    oct_multiply_adds work;
    oct_status status = OCT_OK;
    OCT_CHECK_ARGS(!bench->file != !bench->model,
                   "name an int8 model (octet bench infer MODEL) or a built-in one (--model NAME)");
    f.program = bench->file ? &f.file.program : &f.built_in;
    if (bench->file) {
        OCT_TRY_OUT(oct_file_need_model(bench->file));
        OCT_TRY_OUT(oct_model_load(&f.file, bench->file, bench->args->allow_large));
        OCT_TRY_OUT(oct_model_check_runnable(&f.file, bench->file));
    } else {
        /* Of a batch of one leaf, whatever batch is timed: what training holds is no part of the figure. */
        oct_bench small = *bench;
        oct_bench_run run;
        small.batch = 8;
        OCT_TRY_OUT(oct_bench_run_begin(&run, &small, 0, 1));
        status = oct_bench_run_convert(&run, &f.built_in);
        oct_bench_run_end(&run);
        OCT_TRY_OUT(status);
    }
    omp_set_num_threads((int)bench->threads);
    oct_memory_reset_peak();
    OCT_TRY_OUT(allocate_inference(&f, bench));
    OCT_TRY_OUT(time_runs(&f, bench));
    batch_figure timed = {
        .bench = "infer",
        .model = bench->file ? bench->file : bench->model,
        .mode = "int8",
        .numerics = "int8",
        .memory = oct_memory_meter_read(&memory_meter),
    };
    OCT_TRY_OUT(oct_program_multiply_adds(f.program, &work));
    timed.operations = 2.0 * (double)(bench->batch * work.forward);
    OCT_TRY_OUT(oct_peak_measure(oct_cpu_isa(), &peak));
    timed.peak = peak.gops[OCT_ROOF_INT8];
    print_figure(bench, &timed, &f.timings);
out:
    oct_runtime_destroy(&f.runtime);
    oct_model_free(&f.file);
    oct_program_free(&f.built_in);
    oct_free(&f.x);
    oct_free(&f.y);
    oct_timings_free(&f.timings);
    return status;
}

const oct_bench_figure oct_bench_infer = {"infer", bench_infer, false, false};

enum { LEAVES = 16 };

typedef struct sums {
    oct_leaves leaves;
    int64_t n;
    float *rows;   /* one of n for each part of the tree that this rank sums; at least one */
    float *copied; /* n, which only this rank sees */
    double *seconds, *native; /* of each repetition; native: NULL without --native */
    double copy;              /* least seconds */
    int64_t repetitions;
} sums;

static oct_status allocate_sums(sums *s, const oct_collective *group, bool native)
{
    oct_subtree ranges[OCT_MAX_PARTS];
    const int parts = oct_leaves_parts(&s->leaves, ranges);
    oct_status status = group->rows_alloc(group, &s->rows, (size_t)(parts > 0 ? parts : 1),
                                          (size_t)s->n * sizeof(float));
    if (status == OCT_OK) status = oct_alloc(&s->copied, (size_t)s->n, sizeof(float));
    if (status == OCT_OK) status = oct_alloc(&s->seconds, (size_t)s->repetitions, sizeof(double));
    if (status == OCT_OK && native)
        status = oct_alloc(&s->native, (size_t)s->repetitions, sizeof(double));
    return group->agree(group, status);
}

/* Times sums of n floats over all ranks, beside a copy of the total and, if asked, the sum of the MPI library. */
static oct_status time_sums(sums *s, const oct_session *session)
{
    const oct_collective *group = session->group;
    s->copy = 1e9; /* the least of the seconds below */
    for (int64_t i = 0; i < s->repetitions; i++) {
        int64_t barrier = 0;
        bool lent; /* others read the total too: it is only copied here */
        OCT_TRY(group->max_i64(group, &barrier, 1));
        double begin = oct_seconds();
        OCT_TRY(group->sum_begin(group, &s->leaves, s->rows, s->n, s->n));
        OCT_TRY(group->sums_finish(group));
        double middle = oct_seconds();
        const float *total = group->rows_total(group, &s->leaves, s->rows, &lent);
        memcpy(s->copied, total, (size_t)s->n * sizeof(float));
        s->seconds[i] = middle - begin;
        if (oct_seconds() - middle < s->copy) s->copy = oct_seconds() - middle;
        if (!s->native) continue;
        begin = oct_seconds();
        OCT_TRY(oct_comm_sum_native(session->comm, s->copied, s->n));
        s->native[i] = oct_seconds() - begin;
    }
    return OCT_OK;
}

static oct_status bench_size(oct_bench *bench, int64_t n)
{
    const oct_collective *group = bench->session->group;
    sums s = {
        .leaves = oct_leaves_split(LEAVES, 1, group->rank, group->size),
        .n = n,
        .repetitions = n < 10000     ? 200
                       : n < 1000000 ? 30
                                     : 5,
    };
    oct_status status = OCT_OK;
    OCT_TRY_OUT(allocate_sums(&s, group, bench->native));
    OCT_TRY_OUT(time_sums(&s, bench->session));
    if (group->rank != 0) goto out;
    const double mb = (double)s.n * sizeof(float) / 1e6;
    const double each = oct_median(s.seconds, s.repetitions);
    const double native = s.native ? oct_median(s.native, s.repetitions) : 0;
    char beside[64] = "";
    json_t *figure =
        json_pack("{s:s, s:i, s:I, s:I, s:f, s:f, s:f}", "bench", "reduce", "ranks", group->size,
                  "floats", (json_int_t)s.n, "steps", (json_int_t)s.repetitions, "step_ms",
                  1e3 * each, "mb_per_s", mb / each, "copy_ms", 1e3 * s.copy);
    if (s.native) {
        json_object_set_new(figure, "native_ms", json_real(1e3 * native));
        oct_snprintf(beside, sizeof beside, ", %s %.3f ms", oct_comm_library(bench->session->comm),
                     1e3 * native);
    }
    oct_bench_print(
        bench, figure,
        "reduce %9" PRId64 " floats over %d rank%s: %8.3f ms, %8.0f MB/s (a copy: %.3f ms%s)", s.n,
        group->size, group->size > 1 ? "s" : "", 1e3 * each, mb / each, 1e3 * s.copy, beside);
out:
    if (s.rows) group->rows_free(group, &s.rows);
    OCT_FREE_ALL(&s.copied, &s.seconds, &s.native);
    return status;
}

static oct_status bench_reduce(oct_bench *bench)
{
    /* The last size is that of the gradients of a ResNet-18. */
    static const int64_t sizes[] = {1000, 10000, 100000, 1000000, 4000000, 11170000};
    for (size_t i = 0; i < OCT_COUNT(sizes); i++)
        OCT_TRY(bench_size(bench, sizes[i]));
    return OCT_OK;
}

const oct_bench_figure oct_bench_reduce = {"reduce", bench_reduce, true, true};
