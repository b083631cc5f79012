/* A bench run is random data, a recipe of a few steps, and a trainer over both. */
#include "launch/bench/bench_run.h"

#include "core/base/mem.h"
#include "core/base/text.h"
#include "core/base/int_math.h"
#include "launch/session/job.h"
#include "quant/convert/convert.h"

#include <inttypes.h>

static oct_status random_images(const oct_bench *bench, oct_dataset *data)
{
    const oct_image sample = {.dtype = OCT_U8, .h = bench->h, .w = bench->w, .c = bench->c};
    OCT_TRY(oct_memory_make(data, bench->batch, &sample, 10));
    oct_bench_fill(data->store, data->count * oct_image_numel(&sample), 0);
    for (int64_t i = 0; i < data->count; i++)
        data->labels[i] = (int32_t)(i % data->classes);
    return OCT_OK;
}

static oct_status write_recipe(const oct_bench *bench, int64_t float_steps, int64_t qat_steps,
                               oct_text *text)
{
    static const char *const halves[] = {"[0.5]", "[0.5, 0.5]", "[0.5, 0.5, 0.5]",
                                         "[0.5, 0.5, 0.5, 0.5]"};
    const char *half = halves[bench->c - 1];
    const bool moved = bench->h == 32 && bench->w == 32 && bench->c == 3;
    return oct_text_add(text,
                        "schema: 1\nmodel:\n  name: %s\nnumerics: %s\nthreads: %" PRId64
                        "\ndata:\n  mean: %s\n  std: %s\n  crop_padding: %d\n  flip: %s\n"
                        "batch:\n  size: %" PRId64 "\n  leaf: %" PRId64
                        "\nbatch_norm:\n  group: %s\nfloat:\n  epochs: %" PRId64
                        "\n  lr: 0.001\ncalibrate:\n  batches: 1\n"
                        "qat:\n  epochs: %" PRId64 "\n  lr: 0.001\n  freeze_batch_norm: 1\n"
                        "  freeze_scales: 1\n",
                        bench->model, oct_numerics_name(bench->numerics), bench->threads, half,
                        half, moved ? 4 : 0, moved ? "true" : "false", bench->batch,
                        oct_min_i64(bench->leaf, bench->batch),
                        bench->norm_group ? bench->norm_group : "batch", float_steps, qat_steps);
}

oct_status oct_bench_run_begin(oct_bench_run *run, const oct_bench *bench, int64_t float_steps,
                               int64_t qat_steps)
{
    oct_text text = {0};
    oct_status status = OCT_OK;
    *run = (oct_bench_run){0};
    OCT_TRY_OUT(random_images(bench, &run->data));
    OCT_TRY_OUT(write_recipe(bench, float_steps, qat_steps, &text));
    OCT_TRY_OUT(oct_recipe_read(&run->recipe, "octet bench", text.data, NULL, 0));
    oct_job_threads(bench->session, run->recipe.threads);
    OCT_TRY_OUT(oct_trainer_create(&run->trainer, &run->recipe, bench->session->group, &run->data,
                                   &run->data));
out:
    oct_text_free(&text);
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
