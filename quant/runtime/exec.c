/* Execution of an integer program.
 *
 * Samples are independent, so a thread takes a contiguous share of them and drives it through all steps
 * in blocks small enough for its cache; nothing is shared but the packed weights, and no thread waits
 * for another. The memory plan is per sample: a block of n samples uses n times its offsets, and each
 * thread has a part of the one block of memory. Watching runs all samples as a single block instead, so
 * that every value can be shown whole.
 */
#include "quant/runtime/planner.h"

#include "core/base/mem.h"
#include "core/base/whole.h"
#include "quant/qparams.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { ALIGN = 64 };

/* What a block's values may take of a core's second cache, and how far reading big weights again for
 * every block pays for a larger one. */
static const int64_t block_bytes = 512 * 1024;

struct oct_runtime {
    const oct_program *program;
    const oct_kernel *kernel;
    int64_t max_batch, block; /* samples */
    int threads;
    int64_t *offsets;     /* of each value, for one sample; -1: the caller's */
    int64_t sample_bytes; /* of the plan */
    int8_t **packed;      /* of each step, into `weights`; NULL without */
    int8_t *weights;
    int64_t weight_bytes;
    uint8_t *memory; /* values of all threads */
    int64_t memory_bytes;
    uint8_t *scratch;      /* one part a thread */
    int64_t scratch_bytes; /* of a part */
};

/* Where a run reads and writes. */
typedef struct frame {
    int64_t samples;
    const float *input;
    float *output;
    uint8_t *memory;
    void *scratch;
} frame;

static bool multiplies(const oct_step *step)
{
    return step->kind == OCT_STEP_CONV || step->kind == OCT_STEP_CONV_FLOAT;
}

static oct_status pack_weights(oct_runtime *rt)
{
    const oct_program *program = rt->program;
    for (int64_t i = 0; i < program->num_steps; i++)
        if (multiplies(&program->steps[i]))
            rt->weight_bytes +=
                oct_round_up(oct_qconv_packed_bytes(rt->kernel, &program->steps[i].conv), ALIGN);
    OCT_TRY(oct_alloc(&rt->weights, (size_t)rt->weight_bytes, 1));
    OCT_TRY(oct_alloc(&rt->packed, (size_t)program->num_steps, sizeof *rt->packed));
    int8_t *next = rt->weights;
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = &program->steps[i];
        if (!multiplies(step)) continue;
        rt->packed[i] = next;
        oct_qconv_pack(rt->kernel, &step->conv, step->weight, next);
        next += oct_round_up(oct_qconv_packed_bytes(rt->kernel, &step->conv), ALIGN);
    }
    return OCT_OK;
}

static int64_t within(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* Samples whose accumulators a step that ends in float keeps aside: small planes go together, so that
 * the weights are read once for all of them. */
static int64_t float_chunk(const oct_conv_shape *s)
{
    return within(256 / (s->out_h * s->out_w), 1, 256);
}

static int64_t float_acc_bytes(const oct_conv_shape *s)
{
    return oct_round_up(float_chunk(s) * s->out_h * s->out_w * s->out_c * (int64_t)sizeof(int32_t),
                        ALIGN);
}

static int64_t step_scratch(const oct_runtime *rt, const oct_step *step)
{
    if (!multiplies(step)) return 0;
    const oct_conv_shape *s = &step->conv;
    int64_t bytes = oct_round_up(oct_qconv_scratch_bytes(rt->kernel, s), ALIGN);
    if (step->kind == OCT_STEP_CONV_FLOAT) bytes += float_acc_bytes(s);
    return bytes;
}

static oct_status plan_memory(oct_runtime *rt)
{
    const oct_program *program = rt->program;
    OCT_TRY(oct_alloc(&rt->offsets, (size_t)program->num_values, sizeof *rt->offsets));
    OCT_TRY(oct_plan_values(program, rt->offsets, &rt->sample_bytes));
    const int64_t share = (rt->max_batch + rt->threads - 1) / rt->threads;
    const int64_t sample = rt->sample_bytes > 0 ? rt->sample_bytes : 1;
    rt->block = within((block_bytes + rt->weight_bytes / 4) / sample, 1, share);

    const int64_t shares = rt->block * rt->threads;
    const int64_t samples = rt->max_batch > shares ? rt->max_batch : shares;
    OCT_CHECK(!__builtin_mul_overflow(rt->sample_bytes, samples, &rt->memory_bytes), OCT_RESOURCE,
              "%lld samples of this program do not fit into memory; use a smaller batch",
              (long long)rt->max_batch);
    for (int64_t i = 0; i < program->num_steps; i++) {
        const int64_t bytes = step_scratch(rt, &program->steps[i]);
        if (bytes > rt->scratch_bytes) rt->scratch_bytes = bytes;
    }
    OCT_TRY(oct_alloc(&rt->memory, (size_t)rt->memory_bytes, 1));
    return oct_alloc(&rt->scratch, (size_t)rt->scratch_bytes, (size_t)rt->threads);
}

oct_status oct_runtime_create(oct_runtime **runtime, const oct_program *program, int64_t max_batch)
{
    oct_status status;
    oct_runtime *rt = NULL;
    *runtime = NULL;
    OCT_CHECK(max_batch >= 1, OCT_USAGE, "a runtime for %lld samples cannot be made",
              (long long)max_batch);
    OCT_TRY(oct_program_check(program));
    OCT_TRY(oct_alloc(&rt, 1, sizeof *rt));
    rt->program = program;
    rt->kernel = oct_kernel_here();
    rt->max_batch = max_batch;
    rt->threads = omp_get_max_threads();
    OCT_TRY_OUT(pack_weights(rt));
    OCT_TRY_OUT(plan_memory(rt));
    *runtime = rt;
    return OCT_OK;
out:
    oct_runtime_destroy(&rt);
    return status;
}

void oct_runtime_destroy(oct_runtime **runtime)
{
    oct_runtime *rt = *runtime;
    if (!rt) return;
    oct_free(&rt->offsets);
    oct_free(&rt->packed);
    oct_free(&rt->weights);
    oct_free(&rt->memory);
    oct_free(&rt->scratch);
    oct_free(runtime);
}

size_t oct_runtime_bytes(const oct_runtime *rt)
{
    return sizeof *rt +
           (size_t)(rt->weight_bytes + rt->memory_bytes + rt->scratch_bytes * rt->threads) +
           (size_t)rt->program->num_values * sizeof *rt->offsets +
           (size_t)rt->program->num_steps * sizeof *rt->packed;
}

static const void *value_in(const oct_runtime *rt, const frame *f, int32_t value)
{
    if (value == rt->program->input) return f->input;
    if (value == rt->program->output) return f->output;
    return f->memory + rt->offsets[value] * f->samples;
}

static void *value_out(const oct_runtime *rt, const frame *f, int32_t value)
{
    if (value == rt->program->output) return f->output;
    return f->memory + rt->offsets[value] * f->samples;
}

static void run_conv_float(const oct_runtime *rt, const frame *f, const oct_step *step,
                           const int8_t *packed, const uint8_t *x, float *y)
{
    const oct_conv_shape *s = &step->conv;
    const int64_t in = s->in_h * s->in_w * s->in_c, pixels = s->out_h * s->out_w;
    const uint8_t zero_point = (uint8_t)rt->program->values[step->input[0]].q.zero_point;
    int32_t *acc = f->scratch;
    uint8_t *scratch = (uint8_t *)f->scratch + float_acc_bytes(s);
    for (int64_t n = 0, chunk = float_chunk(s); n < f->samples; n += chunk) {
        const int64_t samples = f->samples - n < chunk ? f->samples - n : chunk;
        oct_qconv_accumulate(rt->kernel, s, samples, x + n * in, zero_point, packed, acc, scratch);
        oct_requant_float(samples * pixels, s->out_c, acc, step->bias, step->multiplier,
                          y + n * pixels * s->out_c);
    }
}

static void run_conv(const oct_runtime *rt, const frame *f, const oct_step *step,
                     const int8_t *packed, const uint8_t *x, uint8_t *y)
{
    const oct_requant requant = {.bias = step->bias,
                                 .multiplier = step->multiplier,
                                 .lo = step->lo,
                                 .hi = step->hi,
                                 .zero_point = rt->program->values[step->output].q.zero_point,
                                 .six = INFINITY};
    const uint8_t zero_point = (uint8_t)rt->program->values[step->input[0]].q.zero_point;
    oct_qconv_forward(rt->kernel, &step->conv, f->samples, x, zero_point, packed, &requant, y, NULL,
                      NULL, f->scratch);
}

static void run_step(const oct_runtime *rt, const frame *f, int64_t number)
{
    const oct_step *step = &rt->program->steps[number];
    const oct_conv_shape *s = &step->conv;
    const oct_value *made = &rt->program->values[step->output];
    const int64_t numel = f->samples * made->h * made->w * made->c;
    const void *x = value_in(rt, f, step->input[0]);
    void *y = value_out(rt, f, step->output);
    switch (step->kind) {
    case OCT_STEP_QUANTIZE:
        oct_quantize(x, numel, made->q, y, NULL, NULL, NULL);
        break;
    case OCT_STEP_CONV:
        run_conv(rt, f, step, rt->packed[number], x, y);
        break;
    case OCT_STEP_CONV_FLOAT:
        run_conv_float(rt, f, step, rt->packed[number], x, y);
        break;
    case OCT_STEP_ADD:
        oct_qadd_forward(numel, x, value_in(rt, f, step->input[1]), &step->add, y, NULL, NULL);
        break;
    case OCT_STEP_MAX_POOL:
        oct_qmax_pool(f->samples, s->in_h, s->in_w, s->in_c, s->kernel_h, s->stride, s->padding, x,
                      y);
        break;
    case OCT_STEP_AVG_POOL:
        oct_qavg_pool(f->samples, s->in_h, s->in_w, s->in_c, s->kernel_h, s->kernel_w, s->stride,
                      made->q, x, y);
        break;
    case OCT_STEP_DEQUANTIZE:
        oct_dequantize(x, numel, rt->program->values[step->input[0]].q, y);
        break;
    case OCT_STEP_KINDS:
        OCT_ASSERT(!"a checked program has only known steps");
    }
}

void oct_runtime_run(oct_runtime *rt, int64_t samples, const float *input, float *output)
{
    OCT_ASSERT(samples >= 0 && samples <= rt->max_batch);
    const oct_value *values = rt->program->values;
    const int64_t in = (int64_t)(oct_value_bytes(&values[rt->program->input]) / sizeof(float));
    const int64_t out = (int64_t)(oct_value_bytes(&values[rt->program->output]) / sizeof(float));
    const int threads = (int)within(samples, 1, rt->threads);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int t = 0; t < threads; t++) {
        const int64_t end = samples * (t + 1) / threads;
        for (int64_t n = samples * t / threads; n < end; n += rt->block) {
            const frame f = {.samples = end - n < rt->block ? end - n : rt->block,
                             .input = input + n * in,
                             .output = output + n * out,
                             .memory = rt->memory + t * rt->block * rt->sample_bytes,
                             .scratch = rt->scratch + t * rt->scratch_bytes};
            for (int64_t i = 0; i < rt->program->num_steps; i++)
                run_step(rt, &f, i);
        }
    }
}

void oct_runtime_watch(oct_runtime *rt, int64_t samples, const float *input, float *output,
                       oct_watch_fn watch, void *user)
{
    if (!watch) {
        oct_runtime_run(rt, samples, input, output);
        return;
    }
    OCT_ASSERT(samples >= 0 && samples <= rt->max_batch);
    const frame f = {.samples = samples,
                     .input = input,
                     .output = output,
                     .memory = rt->memory,
                     .scratch = rt->scratch};
    for (int64_t i = 0; i < rt->program->num_steps; i++) {
        const oct_step *step = &rt->program->steps[i];
        run_step(rt, &f, i);
        watch(user, step->output, step, value_in(rt, &f, step->output),
              oct_value_bytes(&rt->program->values[step->output]) * (size_t)samples);
    }
}
