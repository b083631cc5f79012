/* Execution of an integer program.
 *
 * Samples are independent, so a thread takes a contiguous share of them and drives it through all steps
 * in blocks small enough for its cache; nothing is shared but the packed constants, and no thread waits
 * for another. The memory plan is per sample: a block of n samples uses n times its offsets, and each
 * thread has a part of the one block of memory. Where one thread is enough it is the calling one, and
 * OpenMP is not entered. Watching runs all samples as a single block instead, so that every value can
 * be shown whole. Float fallbacks are run by the host, which each thread opens for itself.
 */
#include "quant/program/step.h"

#include "core/base/cpu.h"
#include "core/base/mem.h"
#include "core/base/int_math.h"

#include <omp.h>
#include <stdatomic.h>
#include <stdio.h>

/* The bytes of a block's values, which should stay in a core's second cache. A program with many weights takes
 * larger blocks, since each block reads them again. */
static const int64_t block_bytes = 512 * 1024;

struct oct_packed {
    uint8_t **step; /* of each step, into `constants`; NULL without */
    uint8_t *constants;
    int64_t bytes, samples;
};

struct oct_runtime {
    const oct_program *program;
    const oct_kernel *kernel;
    const oct_fallback_host *host;
    int64_t max_batch, block; /* samples */
    int threads;
    atomic_flag busy;     /* a thread runs it */
    int64_t *offsets;     /* of each value, for one sample; -1: the caller's */
    int64_t sample_bytes; /* of the plan */
    const oct_packed *packed;
    oct_packed *own; /* is `packed`; NULL: that is the caller's */
    uint8_t *memory; /* values of all threads */
    int64_t memory_bytes;
    uint8_t *scratch;      /* one part a thread */
    int64_t scratch_bytes; /* of a part */
    void **fallbacks;      /* the host's states: threads x steps; NULL without float fallbacks */
};

/* The memory that a run reads and writes. */
typedef struct frame {
    int64_t samples;
    const float *input[OCT_STEP_INPUTS];
    void *output;
    uint8_t *memory;
    void *scratch;
    void **fallbacks;
} frame;

/* Checks options and puts defaults in the place of zeros. More threads than samples would have nothing to do. */
static oct_status take_options(const oct_runtime_options *given, oct_runtime_options *o)
{
    *o = given ? *given : (oct_runtime_options){0};
    OCT_CHECK(o->max_batch >= 0, OCT_USAGE,
              "the option max_batch is %lld; give 1 or more samples, or 0, which stands for 1",
              (long long)o->max_batch);
    OCT_CHECK(o->threads >= 0 && o->threads <= OCT_RUNTIME_THREADS_MAX, OCT_USAGE,
              "the option threads is %d; give 1 to %d, or 0 for as many as OpenMP has", o->threads,
              OCT_RUNTIME_THREADS_MAX);
    if (o->max_batch == 0) o->max_batch = 1;
    if (o->threads == 0) o->threads = omp_get_max_threads();
    o->threads = (int)oct_min_i64(o->threads, o->max_batch);
    return OCT_OK;
}

oct_status oct_packed_create(oct_packed **packed, const oct_program *program,
                             const oct_runtime_options *options)
{
    const oct_kernel *kernel = oct_kernel_here();
    oct_packed *made = NULL;
    oct_runtime_options o;
    oct_status status;
    *packed = NULL;
    OCT_TRY(oct_program_check(program));
    OCT_TRY(take_options(options, &o));
    const int64_t samples = oct_divide_up(o.max_batch, o.threads);
    OCT_TRY(oct_alloc(&made, 1, sizeof *made));
    made->samples = samples;
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = &program->steps[i];
        const oct_step_type *type = oct_step_type_of(step->kind);
        if (type->pack)
            made->bytes +=
                oct_round_up(type->packed_bytes(program, step, kernel, samples), OCT_CACHE_LINE);
    }
    OCT_TRY_OUT(oct_alloc(&made->constants, (size_t)made->bytes, 1));
    oct_mem_advise_huge_pages(made->constants, (size_t)made->bytes);
    OCT_TRY_OUT(oct_alloc(&made->step, (size_t)program->num_steps, sizeof *made->step));
    uint8_t *next = made->constants;
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = &program->steps[i];
        const oct_step_type *type = oct_step_type_of(step->kind);
        if (!type->pack) continue;
        made->step[i] = next;
        type->pack(program, step, kernel, samples, next);
        next += oct_round_up(type->packed_bytes(program, step, kernel, samples), OCT_CACHE_LINE);
    }
    *packed = made;
    return OCT_OK;
out:
    oct_packed_destroy(&made);
    return status;
}

void oct_packed_destroy(oct_packed **packed)
{
    if (!*packed) return;
    OCT_FREE_ALL(&(*packed)->step, &(*packed)->constants, packed);
}

/* Decides how many samples a block has, and allocates the memory of all threads; watching runs max_batch samples as one
 * block. */
static oct_status plan_memory(oct_runtime *rt)
{
    const oct_program *program = rt->program;
    OCT_TRY(oct_alloc(&rt->offsets, (size_t)program->num_values, sizeof *rt->offsets));
    OCT_TRY(oct_plan_values(program, rt->offsets, &rt->sample_bytes));
    const int64_t sample = oct_max_i64(rt->sample_bytes, 1);
    const int64_t share = oct_divide_up(rt->max_batch, rt->threads);
    const int64_t block = (block_bytes + rt->packed->bytes / 4) / sample;
    rt->block = oct_max_i64(oct_min_i64(block, share), 1);
    const int64_t samples = oct_max_i64(rt->max_batch, rt->block * rt->threads);
    OCT_CHECK(!__builtin_mul_overflow(rt->sample_bytes, samples, &rt->memory_bytes), OCT_RESOURCE,
              "%lld samples of this program do not fit into memory; use a smaller batch",
              (long long)rt->max_batch);
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = &program->steps[i];
        const oct_step_type *type = oct_step_type_of(step->kind);
        if (!type->scratch_bytes) continue;
        const int64_t bytes = type->scratch_bytes(program, step, rt->kernel, rt->packed->samples);
        rt->scratch_bytes = oct_max_i64(rt->scratch_bytes, oct_round_up(bytes, OCT_CACHE_LINE));
    }
    OCT_TRY(oct_alloc(&rt->memory, (size_t)rt->memory_bytes, 1));
    return oct_alloc(&rt->scratch, (size_t)rt->scratch_bytes, (size_t)rt->threads);
}

enum { FLOAT_LAYERS_NAMED = 5 };

/* Lets the host open each float fallback, once for each thread. */
static oct_status open_fallbacks(oct_runtime *rt)
{
    const oct_program *program = rt->program;
    OCT_OWNED(oct_text_free) oct_text layers = {0};
    int64_t count = 0;
    for (int64_t i = 0; i < program->num_steps; i++) {
        if (program->steps[i].kind != OCT_STEP_FLOAT) continue;
        if (count < FLOAT_LAYERS_NAMED && !rt->host)
            OCT_TRY(oct_text_add(&layers, "%s%s", count ? ", " : "", program->steps[i].name));
        count++;
    }
    OCT_CHECK(count == 0 || rt->host, OCT_PREPARE,
              "%lld of its layers stay float (%s%s), which only the library octet computes; "
              "link that one (pkg-config octet), or quantize them",
              (long long)count, layers.data, count > FLOAT_LAYERS_NAMED ? ", ..." : "");
    if (count == 0) return OCT_OK;
    OCT_TRY(oct_alloc(&rt->fallbacks, (size_t)(rt->threads * program->num_steps), sizeof(void *)));
    for (int64_t i = 0; i < rt->threads * program->num_steps; i++) {
        const oct_step *step = &program->steps[i % program->num_steps];
        if (step->kind == OCT_STEP_FLOAT) OCT_TRY(rt->host->open(&rt->fallbacks[i], program, step));
    }
    return OCT_OK;
}

static oct_status make_ready(oct_runtime *rt, const oct_runtime_options *options)
{
    oct_runtime_options o;
    OCT_TRY(take_options(options, &o));
    rt->max_batch = o.max_batch;
    rt->threads = o.threads;
    rt->host = o.host;
    rt->packed = o.packed;
    if (!rt->packed) {
        OCT_TRY(oct_packed_create(&rt->own, rt->program, options));
        rt->packed = rt->own;
    }
    OCT_TRY(plan_memory(rt));
    return open_fallbacks(rt);
}

oct_status oct_runtime_create(oct_runtime **runtime, const oct_program *program,
                              const oct_runtime_options *options)
{
    oct_runtime *rt = NULL;
    fenv_t rounding;
    OCT_CHECK(runtime, OCT_USAGE, "a runtime needs a place, and has NULL");
    *runtime = NULL;
    OCT_CHECK(program, OCT_USAGE, "a runtime needs a program, and has NULL");
    OCT_TRY(oct_alloc(&rt, 1, sizeof *rt));
    rt->program = program;
    rt->kernel = oct_kernel_here();
    atomic_flag_clear(&rt->busy);
    (void)oct_is_forked(); /* threads are begun from here on */
    oct_round_to_nearest(&rounding);
    const oct_status status = make_ready(rt, options);
    oct_round_as_before(&rounding);
    if (status == OCT_OK)
        *runtime = rt;
    else
        oct_runtime_destroy(&rt);
    return status;
}

void oct_runtime_destroy(oct_runtime **runtime)
{
    oct_runtime *rt = runtime ? *runtime : NULL;
    if (!rt) return;
    for (int64_t i = 0; rt->host && rt->fallbacks && i < rt->threads * rt->program->num_steps; i++)
        if (rt->fallbacks[i]) rt->host->close(rt->fallbacks[i]);
    oct_free(&rt->fallbacks);
    oct_free(&rt->offsets);
    oct_packed_destroy(&rt->own);
    OCT_FREE_ALL(&rt->memory, &rt->scratch, runtime);
}

/* Where a value is in memory: in the plan's, or the caller's. */
static const void *value_in(const oct_runtime *rt, const frame *f, int32_t value)
{
    const oct_program *program = rt->program;
    if (rt->offsets[value] >= 0) return f->memory + rt->offsets[value] * f->samples;
    for (int i = 0; i < program->num_inputs; i++)
        if (program->inputs[i] == value) return f->input[i];
    return f->output;
}

/* Runs a step on the samples of a frame; the host runs a kind that has no `run`, a float fallback. */
static oct_status run_step(const oct_runtime *rt, const frame *f, int64_t number)
{
    const oct_step *step = &rt->program->steps[number];
    const oct_step_type *type = oct_step_type_of(step->kind);
    const void *input[OCT_STEP_INPUTS];
    void *output = step->output == rt->program->output
                       ? f->output
                       : f->memory + rt->offsets[step->output] * f->samples;
    for (int i = 0; i < step->num_inputs; i++)
        input[i] = value_in(rt, f, step->input[i]);
    if (type->run) {
        type->run(&(oct_step_run){.program = rt->program,
                                  .step = step,
                                  .kernel = rt->kernel,
                                  .packed = rt->packed->step[number],
                                  .samples = f->samples,
                                  .input = input,
                                  .output = output,
                                  .scratch = f->scratch});
        return OCT_OK;
    }
    const float *values[OCT_STEP_INPUTS];
    for (int i = 0; i < step->num_inputs; i++)
        values[i] = input[i];
    OCT_ASSERT(f->fallbacks);
    if (rt->host->run(f->fallbacks[number], f->samples, values, output) != OCT_OK)
        return oct_fail_prefix("%s", step->name);
    return OCT_OK;
}

/* The memory with which thread t runs `samples` samples of a call, from sample n on. */
static frame frame_of(const oct_runtime *rt, int t, int64_t n, int64_t samples,
                      const float *const *input, void *output)
{
    const oct_program *program = rt->program;
    const int64_t bytes = (int64_t)oct_value_bytes(&program->values[program->output]);
    frame f = {.samples = samples,
               .output = (uint8_t *)output + n * bytes,
               .memory = rt->memory + t * rt->block * rt->sample_bytes,
               .scratch = rt->scratch + t * rt->scratch_bytes,
               .fallbacks = rt->fallbacks ? rt->fallbacks + t * program->num_steps : NULL};
    for (int i = 0; i < program->num_inputs; i++)
        f.input[i] = input[i] + n * oct_value_numel(&program->values[program->inputs[i]]);
    return f;
}

/* Runs a thread's samples, from first to end, in blocks. */
static oct_status run_share(const oct_runtime *rt, int t, int64_t first, int64_t end,
                            const float *const *input, void *output)
{
    for (int64_t n = first; n < end; n += rt->block) {
        const frame f = frame_of(rt, t, n, oct_min_i64(end - n, rt->block), input, output);
        for (int64_t i = 0; i < rt->program->num_steps; i++)
            OCT_TRY(run_step(rt, &f, i));
    }
    return OCT_OK;
}

/* Shares the samples among several threads of OpenMP, which have rounding modes of their own. Records of failures belong to
 * threads, so the caller gets the last one's sentence. */
static oct_status run_shares(const oct_runtime *rt, int threads, int64_t samples,
                             const float *const *input, void *output)
{
    oct_status failed = OCT_OK;
    char text[512];
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int t = 0; t < threads; t++) {
        fenv_t rounding;
        oct_round_to_nearest(&rounding);
        const oct_status status =
            run_share(rt, t, samples * t / threads, samples * (t + 1) / threads, input, output);
        oct_round_as_before(&rounding);
        if (status == OCT_OK) continue;
#pragma omp critical(oct_runtime_failure)
        {
            failed = status;
            snprintf(text, sizeof text, "%s", oct_error_message(0));
        }
    }
    return failed == OCT_OK ? OCT_OK : oct_fail(failed, "%s", text);
}

/* Runs all samples as one block, and shows each value. */
static oct_status run_watched(const oct_runtime *rt, int64_t samples, const float *const *input,
                              void *output, oct_watch_fn watch, void *user)
{
    const frame f = frame_of(rt, 0, 0, samples, input, output);
    for (int64_t i = 0; i < rt->program->num_steps; i++) {
        const oct_step *step = &rt->program->steps[i];
        OCT_TRY(run_step(rt, &f, i));
        watch(user, step->output, step, value_in(rt, &f, step->output),
              oct_value_bytes(oct_step_output(rt->program, step)) * (size_t)samples);
    }
    return OCT_OK;
}

oct_status oct_runtime_run(oct_runtime *rt, int64_t samples, const float *const *input,
                           void *output)
{
    return oct_runtime_watch(rt, samples, input, output, NULL, NULL);
}

oct_status oct_runtime_watch(oct_runtime *rt, int64_t samples, const float *const *input,
                             void *output, oct_watch_fn watch, void *user)
{
    fenv_t rounding;
    oct_status status;
    OCT_CHECK(rt, OCT_USAGE, "a run of NULL, which is no net");
    OCT_CHECK(samples >= 0 && samples <= rt->max_batch, OCT_USAGE,
              "%lld samples; a run of this net has 0 to %lld", (long long)samples,
              (long long)rt->max_batch);
    if (samples == 0) return OCT_OK;
    OCT_CHECK(input && output, OCT_USAGE, "a run needs inputs and an output, and has NULL");
    for (int i = 0; i < rt->program->num_inputs; i++)
        OCT_CHECK(input[i], OCT_USAGE, "input %d is NULL", i);
    OCT_CHECK(!atomic_flag_test_and_set_explicit(&rt->busy, memory_order_acquire), OCT_USAGE,
              "this net is at work in another thread; make one for each with oct_net_clone");
    const int most = rt->threads > 1 && samples > 1 && !oct_is_forked() ? rt->threads : 1;
    const int threads = (int)oct_min_i64(samples, most);
    oct_round_to_nearest(&rounding);
    if (watch)
        status = run_watched(rt, samples, input, output, watch, user);
    else if (threads > 1)
        status = run_shares(rt, threads, samples, input, output);
    else
        status = run_share(rt, 0, 0, samples, input, output);
    oct_round_as_before(&rounding);
    atomic_flag_clear_explicit(&rt->busy, memory_order_release);
    return status;
}
