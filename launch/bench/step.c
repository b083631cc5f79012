/* octet bench step measures what a training step costs, in time and memory.
 *
 * A step is the trainer's own: the batch fetched and augmented, forward, backward, the sum over leaves
 * and ranks, the control reduction with the observers' ranges, the optimizer.
 */
#include "launch/bench/bench.h"
#include "launch/evaluate/multiply_adds.h"

enum { STEPS = 10 };

/* Takes the peak so far as one of `phase`; and starts a new measurement. */
static void note_peak(oct_figure *t, const oct_memory_meter *memory_meter, const char *phase)
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
                             const oct_memory_meter *memory_meter, oct_figure *t)
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

oct_status oct_bench_step(oct_bench *bench)
{
    oct_bench_run run = {0};
    oct_timings timings = {0};
    oct_program program = {0};
    oct_peak peak;
    oct_status status = OCT_OK;
    if (!bench->model) bench->model = "cnn-small";
    oct_figure timed = {
        .bench = "step",
        .model = bench->model,
        .mode = bench->qat ? "qat" : "float",
        .numerics = oct_numerics_name(bench->qat ? bench->numerics : OCT_NUMERICS_F32),
    };
    OCT_TRY_OUT(oct_timings_create(&timings, bench->repetitions > 0 ? bench->repetitions : STEPS));
    const int64_t steps = timings.room + OCT_BENCH_WARM_UP;
    const oct_memory_meter meter = oct_memory_meter_begin();
    OCT_TRY_OUT(oct_bench_run_begin(&run, bench, bench->qat ? 0 : steps, bench->qat ? steps : 0));
    note_peak(&timed, &meter, "prepare");
    OCT_TRY_OUT(time_steps(bench, &run.trainer, &timings, &meter, &timed));
    /* The steps of the figure are followed by those that the trainer's model needs to convert, since
     * the program shows what there was to compute. */
    OCT_TRY_OUT(oct_bench_run_convert(&run, &program));
    const oct_multiply_adds work = oct_program_multiply_adds(&program);
    const double each = 2.0 * (double)bench->batch;
    /* The peak has forward and backward each at the rate of its numbers. */
    const double forward = each * (double)work.forward,
                 backward = each * (double)(work.grad_weight + work.grad_input);
    const bool bf16 = bench->qat && bench->numerics == OCT_NUMERICS_BF16;
    OCT_TRY_OUT(oct_peak_measure(oct_cpu_isa(), &peak));
    timed.operations = forward + backward;
    timed.peak =
        timed.operations / (forward / peak.gops[bench->qat ? OCT_ROOF_INT8 : OCT_ROOF_F32] +
                            backward / peak.gops[bf16 ? OCT_ROOF_BF16 : OCT_ROOF_F32]);
    if (bench->session->group->rank == 0) OCT_TRY_OUT(oct_figure_print(bench, &timed, &timings));
out:
    oct_program_free(&program);
    oct_bench_run_end(&run);
    oct_timings_free(&timings);
    return status;
}
