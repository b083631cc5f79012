/* What figures share: printing, times, and the short run of a model. */
#include "launch/bench/bench.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/base/text.h"
#include "launch/base/output.h"
#include "launch/model/model.h"
#include "launch/session/job.h"
#include "quant/convert/convert.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

void oct_bench_print(oct_bench *bench, json_t *figure, const char *format, ...)
{
    if (bench->figures) {
        if (json_array_append_new(bench->figures, figure) != 0)
            oct_print_json(NULL); /* which reports the lack of memory */
        return;
    }
    json_decref(figure);
    char line[512];
    OCT_PRINT_ARGS(line, format);
    oct_print("%s\n", line);
}

void oct_bench_fill(uint8_t *bytes, int64_t n, uint32_t sub)
{
    uint32_t bits[4] = {0};
    for (int64_t i = 0; i < n; i++) {
        if (i % 16 == 0) oct_philox(OCT_BENCH_SEED, OCT_STREAM_TEST, (uint64_t)i / 16, sub, bits);
        bytes[i] = (uint8_t)(bits[i % 16 / 4] >> (8 * (i % 4)));
    }
}

/* Times. */

oct_status oct_timings_create(oct_timings *timings, int64_t room)
{
    *timings = (oct_timings){.room = room};
    OCT_TRY(oct_alloc(&timings->seconds, (size_t)room, sizeof(double)));
    return oct_alloc(&timings->cpu, (size_t)room, sizeof(double));
}

void oct_timings_free(oct_timings *timings)
{
    oct_free(&timings->seconds);
    oct_free(&timings->cpu);
}

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double oct_time_call(void (*call)(void *user), void *user, double at_least)
{
    const double begin = cpu_seconds();
    double passed = 0;
    int64_t calls = 0;
    do {
        call(user);
        calls++;
        passed = cpu_seconds() - begin;
    } while (passed < at_least);
    return passed / (double)calls;
}

void oct_timing_begin(oct_timings *timings)
{
    OCT_ASSERT(timings->count < timings->room);
    timings->cpu_began = cpu_seconds();
    timings->began = oct_seconds();
}

void oct_timing_end(oct_timings *timings)
{
    timings->seconds[timings->count] = oct_seconds() - timings->began;
    timings->cpu[timings->count] = cpu_seconds() - timings->cpu_began;
    timings->count++;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double oct_median(double *values, int64_t n)
{
    qsort(values, (size_t)n, sizeof(double), by_value);
    return values[n / 2];
}

oct_timing oct_timings_median(oct_timings *timings)
{
    double seconds = oct_median(timings->seconds, timings->count);
    return (oct_timing){
        .seconds = seconds,
        .least = timings->seconds[0], /* sorted by oct_median */
        .cpu = oct_median(timings->cpu, timings->count),
    };
}

/* A bench run is random data, a recipe of a few steps, and a trainer over both. */

/* Whether the model gives classes for each pixel. */
static bool gives_pixels(const oct_bench *bench)
{
    const oct_model_spec *spec = oct_model_find(bench->model);
    return spec && spec->per_pixel;
}

/* Each pixel of a map has a class that is not that of its neighbours. */
static oct_status read_map(const oct_dataset *data, int64_t index, oct_image *image, oct_image *map)
{
    OCT_TRY(oct_dataset_memory.read(data, index, image, NULL));
    OCT_TRY(oct_image_resize(map, OCT_S32, data->read_h, data->read_w, 1));
    for (int64_t p = 0; p < oct_image_numel(map); p++)
        ((int32_t *)map->data)[p] = (int32_t)((index + p) % data->classes);
    return OCT_OK;
}

/* Random images of ten classes, or with a class for each pixel where the model gives those. */
static oct_status make_data(const oct_bench *bench, oct_dataset *data)
{
    static oct_dataset_format maps;
    const oct_image sample = {.dtype = OCT_U8, .h = bench->h, .w = bench->w, .c = bench->c};
    OCT_TRY(oct_memory_make(data, bench->batch, &sample, 10));
    oct_bench_fill(data->store, data->count * oct_image_numel(&sample), 0);
    for (int64_t i = 0; i < data->count; i++)
        data->labels[i] = (int32_t)(i % data->classes);
    if (!gives_pixels(bench)) return OCT_OK;
    maps = *data->format;
    maps.read = read_map;
    data->format = &maps;
    data->goal = OCT_GOAL_MAP;
    data->rows = bench->h * bench->w;
    return OCT_OK;
}

/* Writes the recipe of a run whose data set is one batch, so an epoch is a step. */
static oct_status write_recipe(const oct_bench *bench, int64_t float_steps, int64_t qat_steps,
                               oct_text *text)
{
    static const char *const halves[] = {"[0.5]", "[0.5, 0.5]", "[0.5, 0.5, 0.5]",
                                         "[0.5, 0.5, 0.5, 0.5]"};
    const char *half = halves[bench->c - 1], *numerics = oct_numerics_name(bench->numerics);
    const bool augments = bench->h == 32 && bench->w == 32 && bench->c == 3;
    return oct_text_add(
        text,
        "schema: 1\nmodel:\n  name: %s\nnumerics: %s\nthreads: %" PRId64
        "%s\n  mean: %s\n  std: %s\n  crop_padding: %d\n  flip: %s\n"
        "batch:\n  size: %" PRId64 "\n  leaf: %" PRId64
        "\nbatch_norm:\n  group: %s\nfloat:\n  numerics: %s\n  epochs: %" PRId64
        "\n  lr: 0.001\ncalibrate:\n  batches: 1\n"
        "qat:\n  epochs: %" PRId64 "\n  lr: 0.001\n  freeze_batch_norm: 1\n"
        "  freeze_scales: 1\n",
        bench->model, bench->qat ? numerics : "bf16", bench->threads,
        gives_pixels(bench) ? "\nmetrics: [miou]\ndata:\n  goal: map\n  classes: 10" : "\ndata:",
        half, half, augments ? 4 : 0, augments ? "true" : "false", bench->batch,
        oct_min_i64(bench->leaf, bench->batch), bench->norm_group ? bench->norm_group : "batch",
        bench->qat ? "f32" : numerics, float_steps, qat_steps);
}

oct_status oct_bench_run_begin(oct_bench_run *run, const oct_bench *bench, int64_t float_steps,
                               int64_t qat_steps)
{
    OCT_OWNED(oct_text_free) oct_text text = {0};
    oct_status status = OCT_OK;
    *run = (oct_bench_run){0};
    OCT_TRY_OUT(make_data(bench, &run->data));
    OCT_TRY_OUT(write_recipe(bench, float_steps, qat_steps, &text));
    OCT_TRY_OUT(oct_recipe_read(&run->recipe, "octet bench", text.data, NULL, 0));
    oct_job_threads(bench->session, run->recipe.threads);
    OCT_TRY_OUT(oct_trainer_create(&run->trainer, &run->recipe, bench->session->group, &run->data,
                                   &run->data));
out:
    if (status != OCT_OK) oct_bench_run_end(run);
    return status;
}

void oct_bench_run_end(oct_bench_run *run)
{
    oct_trainer_destroy(&run->trainer);
    oct_recipe_free(&run->recipe);
    oct_dataset_close(&run->data);
}

oct_status oct_bench_run_convert(oct_bench_run *run, oct_program *program)
{
    const oct_dataset *data = &run->data;
    oct_step_result result;
    while (!oct_trainer_done(&run->trainer))
        OCT_TRY(oct_trainer_step(&run->trainer, &result));
    return oct_convert(program, run->trainer.model,
                       OCT_EXAMPLE(OCT_SHAPE(1, data->h, data->w, data->c)),
                       oct_target_at(run->recipe.quant_target), NULL);
}
