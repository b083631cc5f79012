/* octet bench: figures of this machine, one line each.
 *
 * Each answers one question: how fast is a training step, the integer model, a kernel, the sum over
 * ranks. Medians over repetitions; data is random, which costs what real data costs.
 */
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/base/text.h"
#include "core/base/whole.h"
#include "io/model_file.h"
#include "launch/certificate.h"
#include "launch/file_kind.h"
#include "launch/job.h"
#include "launch/output.h"
#include "launch/trainer.h"
#include "quant/pass/convert.h"

#include <inttypes.h>
#include <jansson.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MODEL, BATCH, STEPS, MODE, IMAGE, THREADS, RANKS };
enum { SEED = 7, REPETITIONS_MAX = 10000, LEAF = 8 };

static const oct_option options[] = {
    [MODEL] = {"--model", 0, OCT_OPT_TEXT, "NAME", "step: a model of octet help models", 0, 0},
    [BATCH] = {"--batch", 0, OCT_OPT_COUNT, "B", "step, infer: images at a time (default 64)", 1,
               65536},
    [STEPS] = {"--steps", 0, OCT_OPT_COUNT, "N", "step, infer: repetitions (default 10)", 1,
               REPETITIONS_MAX},
    [MODE] = {"--mode", 0, OCT_OPT_TEXT, "float|qat", "step: which (default qat)", 0, 0},
    [IMAGE] = {"--image", 0, OCT_OPT_TEXT, "HxWxC", "step: size of the images (default 32x32x3)", 0,
               0},
    [THREADS] = {"--threads", 0, OCT_OPT_COUNT, "T", "step, infer: threads of a rank (default 1)",
                 1, 256},
    [RANKS] = {"--ranks", 0, OCT_OPT_COUNT, "N", "step, reduce: start N ranks", 1, 4096},
    {0},
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int64_t n)
{
    qsort(values, (size_t)n, sizeof(double), by_value);
    return values[n / 2];
}

static int64_t option_or(const oct_args *args, int option, int64_t otherwise)
{
    return args->option[option].given ? args->option[option].count : otherwise;
}

/* step */

static oct_status read_image_size(const oct_args *args, oct_dataset *data)
{
    const char *text = args->option[IMAGE].given ? args->option[IMAGE].text : "32x32x3";
    char more;
    int h, w, c;
    bool good = strspn(text, "0123456789x") == strlen(text) && strlen(text) < 16 &&
                sscanf(text, "%dx%dx%d%c", &h, &w, &c, &more) == 3;
    OCT_CHECK(good && h > 0 && w > 0 && h <= 4096 && w <= 4096 && c >= 1 && c <= 4, OCT_USAGE,
              "command line: --image %s: write it as 32x32x3 (height, width, 1 to 4 channels)",
              text);
    data->h = h;
    data->w = w;
    data->c = c;
    return OCT_OK;
}

static oct_status random_data(oct_dataset *data, int64_t count)
{
    data->count = count;
    data->classes = 10;
    size_t bytes = (size_t)(data->h * data->w * data->c);
    OCT_TRY(oct_alloc(&data->images, (size_t)count, bytes));
    OCT_TRY(oct_alloc(&data->labels, (size_t)count, 1));
    for (size_t i = 0; i < (size_t)count * bytes; i++) {
        uint32_t bits[4];
        if (i % 16 == 0) oct_philox(SEED, OCT_STREAM_TEST, i / 16, 0, bits);
        data->images[i] = (uint8_t)(bits[i % 16 / 4] >> (8 * (i % 4)));
    }
    for (int64_t i = 0; i < count; i++)
        data->labels[i] = (uint8_t)(i % data->classes);
    return OCT_OK;
}

/* One batch is the whole data set, so an epoch is a step. */
static oct_status step_recipe(const oct_args *args, const oct_dataset *data, int64_t steps,
                              bool qat, oct_recipe *recipe)
{
    static const char *const ones[] = {"[0.5]", "[0.5, 0.5]", "[0.5, 0.5, 0.5]",
                                       "[0.5, 0.5, 0.5, 0.5]"};
    oct_text text = {0};
    oct_status status = oct_text_add(
        &text,
        "schema: 1\nmodel:\n  name: %s\nthreads: %" PRId64 "\ndata:\n  mean: %s\n  std: %s\n"
        "batch:\n  size: %" PRId64 "\n  leaf: %" PRId64 "\nfloat:\n  epochs: %" PRId64
        "\n  lr: 0.001\ncalibrate:\n"
        "  batches: 1\nqat:\n  epochs: %" PRId64 "\n  lr: 0.001\n  freeze_batch_norm: 1\n"
        "  freeze_scales: 1\n",
        args->option[MODEL].given ? args->option[MODEL].text : "cnn-small",
        option_or(args, THREADS, 1), ones[data->c - 1], ones[data->c - 1], data->count,
        oct_smaller(LEAF, data->count), qat ? 0 : steps, qat ? steps : 1);
    if (status == OCT_OK) status = oct_recipe_read(recipe, "octet bench", text.data, NULL, 0);
    oct_text_free(&text);
    return status;
}

static oct_status time_steps(oct_trainer *trainer, int64_t skipped, double *seconds, int64_t steps)
{
    oct_step_result result;
    for (int64_t i = 0; i < skipped; i++)
        OCT_TRY(oct_trainer_step(trainer, &result));
    for (int64_t i = 0; i < steps; i++) {
        double begin = oct_seconds();
        OCT_TRY(oct_trainer_step(trainer, &result));
        seconds[i] = oct_seconds() - begin;
    }
    return OCT_OK;
}

static oct_status print_step(const oct_args *args, const oct_recipe *recipe, bool qat, int ranks,
                             double step)
{
    double rate = (double)recipe->batch_size / step;
    size_t peak = oct_mem_peak();
    const char *mode = qat ? "qat" : "float";
    if (args->json)
        return oct_print_json(json_pack("{s:s, s:s, s:s, s:I, s:i, s:I, s:f, s:f, s:I}", "bench",
                                        "step", "model", recipe->model_name, "mode", mode, "batch",
                                        (json_int_t)recipe->batch_size, "ranks", ranks, "threads",
                                        (json_int_t)recipe->threads, "step_ms", 1e3 * step,
                                        "images_per_second", rate, "peak_bytes", (json_int_t)peak));
    return oct_print("step %s %s, batch %" PRId64 ", %d rank%s of %" PRId64 " thread%s: %.2f ms, "
                     "%.0f images/s, %.1f MB\n",
                     recipe->model_name, mode, recipe->batch_size, ranks, ranks > 1 ? "s" : "",
                     recipe->threads, recipe->threads > 1 ? "s" : "", 1e3 * step, rate,
                     (double)peak / 1e6);
}

static oct_status bench_step(oct_session *session, const oct_args *args)
{
    const char *mode = args->option[MODE].given ? args->option[MODE].text : "qat";
    bool qat = strcmp(mode, "qat") == 0;
    int64_t steps = option_or(args, STEPS, 10), skipped = 3;
    oct_dataset data = {0};
    oct_recipe recipe = {0};
    oct_trainer trainer = {0};
    double *seconds = NULL;
    oct_status status = OCT_OK;
    OCT_CHECK(qat || strcmp(mode, "float") == 0, OCT_USAGE, "command line: --mode %s: float or qat",
              mode);
    OCT_TRY(read_image_size(args, &data));
    OCT_TRY_OUT(random_data(&data, option_or(args, BATCH, 64)));
    OCT_TRY_OUT(step_recipe(args, &data, steps + skipped, qat, &recipe));
    OCT_TRY_OUT(oct_alloc(&seconds, (size_t)steps, sizeof(double)));
    oct_job_threads(session, recipe.threads);
    OCT_TRY_OUT(oct_trainer_create(&trainer, &recipe, session->group, &data, &data));
    OCT_TRY_OUT(time_steps(&trainer, skipped, seconds, steps));
    if (session->group->rank == 0)
        status = print_step(args, &recipe, qat, session->group->size, median(seconds, steps));
out:
    oct_trainer_destroy(&trainer);
    oct_recipe_free(&recipe);
    oct_dataset_free(&data);
    oct_free(&seconds);
    return status;
}

/* infer */

static int64_t sample_numbers(const oct_program *program, int32_t value)
{
    const oct_value *v = &program->values[value];
    return v->h * v->w * v->c;
}

static oct_status bench_infer(const oct_args *args)
{
    int64_t batch = option_or(args, BATCH, 64), steps = option_or(args, STEPS, 10);
    int64_t threads = option_or(args, THREADS, 1);
    oct_model model = {0};
    oct_runtime *runtime = NULL;
    float *x = NULL, *y = NULL;
    double *seconds = NULL;
    oct_status status = OCT_OK;
    OCT_CHECK(args->num_words == 2, OCT_USAGE, "command line: write octet bench infer MODEL");
    OCT_TRY(oct_file_need_model(args->word[1]));
    OCT_TRY(oct_model_load(&model, args->word[1]));
    OCT_TRY_OUT(oct_model_ready(&model, args->word[1]));
    omp_set_num_threads((int)threads);
    const oct_program *program = &model.program;
    int64_t image = 0; /* numbers of a sample, over all inputs */
    for (int i = 0; i < program->num_inputs; i++)
        image += sample_numbers(program, program->inputs[i]);
    OCT_TRY_OUT(oct_alloc(&x, (size_t)(batch * image), sizeof(float)));
    OCT_TRY_OUT(oct_alloc(&y, (size_t)(batch * model.classes), sizeof(float)));
    OCT_TRY_OUT(oct_alloc(&seconds, (size_t)steps, sizeof(double)));
    OCT_TRY_OUT(oct_runtime_create(&runtime, program, batch, &oct_module_islands));
    oct_fill_uniform(x, batch * image, SEED, OCT_STREAM_TEST, 0, -1.0F, 1.0F);
    const float *input[OCT_STEP_INPUTS] = {x};
    for (int i = 1; i < program->num_inputs; i++)
        input[i] = input[i - 1] + batch * sample_numbers(program, program->inputs[i - 1]);
    for (int64_t i = -1; i < steps; i++) {
        double begin = oct_seconds();
        OCT_TRY_OUT(oct_runtime_run(runtime, batch, input, y));
        if (i >= 0) seconds[i] = oct_seconds() - begin;
    }
    double each = median(seconds, steps), rate = (double)batch / each;
    if (args->json)
        status = oct_print_json(json_pack(
            "{s:s, s:s, s:I, s:I, s:f, s:f, s:s}", "bench", "infer", "model", args->word[1],
            "batch", (json_int_t)batch, "threads", (json_int_t)threads, "ms", 1e3 * each,
            "images_per_second", rate, "kernel", oct_kernel_here()->name));
    else
        status = oct_print("infer %s, batch %" PRId64 ", %" PRId64 " thread%s, %s: %.3f ms, "
                           "%.0f images/s, %.1f MB\n",
                           args->word[1], batch, threads, threads > 1 ? "s" : "",
                           oct_kernel_here()->name, 1e3 * each, rate,
                           (double)oct_runtime_bytes(runtime) / 1e6);
out:
    oct_runtime_destroy(&runtime);
    oct_model_free(&model);
    oct_free(&x);
    oct_free(&y);
    oct_free(&seconds);
    return status;
}

/* kernels */

static const struct {
    const char *name;
    int64_t m, n, k;
} products[] = {
    {"conv 3x3 16-16 on 32x32", 1024, 16, 144},    {"conv 3x3 32-32 on 28x28", 784, 32, 288},
    {"conv 3x3 64-64 on 14x14", 196, 64, 576},     {"conv 1x1 64-128 on 16x16", 256, 128, 64},
    {"linear 3136-128, 64 images", 64, 128, 3136}, {"product 512x512x512", 512, 512, 512},
};

static oct_status bench_product(const oct_args *args, const oct_kernel *kernel, size_t product)
{
    int64_t m = products[product].m, n = products[product].n, k = products[product].k;
    int64_t lda = (k + kernel->k_tile - 1) / kernel->k_tile * kernel->k_tile, calls = 0;
    uint8_t *a = NULL;
    int8_t *w = NULL, *packed = NULL;
    int32_t *acc = NULL;
    oct_status status = OCT_OK;
    OCT_TRY_OUT(oct_alloc(&a, (size_t)m, (size_t)lda));
    OCT_TRY_OUT(oct_alloc(&w, (size_t)n, (size_t)k));
    OCT_TRY_OUT(oct_alloc(&packed, (size_t)oct_packed_bytes(kernel, n, k), 1));
    OCT_TRY_OUT(oct_alloc(&acc, (size_t)m, (size_t)n * sizeof(int32_t)));
    memset(a, 3, (size_t)(m * lda));
    memset(w, 2, (size_t)(n * k));
    oct_pack_weights(kernel, n, k, w, packed);
    oct_gemm(kernel, m, n, k, a, lda, packed, acc, n);
    double begin = oct_seconds(), seconds = 0;
    for (; seconds < 0.05; seconds = oct_seconds() - begin, calls++)
        oct_gemm(kernel, m, n, k, a, lda, packed, acc, n);
    double gops = 2e-9 * (double)(m * n * k) * (double)calls / seconds;
    status = args->json ? oct_print_json(json_pack("{s:s, s:s, s:s, s:f}", "bench", "kernels",
                                                   "kernel", kernel->name, "product",
                                                   products[product].name, "gops", gops))
                        : oct_print("%-12s %-28s %8.1f Gop/s\n", kernel->name,
                                    products[product].name, gops);
out:
    oct_free(&a);
    oct_free(&w);
    oct_free(&packed);
    oct_free(&acc);
    return status;
}

static oct_status bench_kernels(const oct_args *args)
{
    static const oct_isa isas[] = {OCT_ISA_REF, OCT_ISA_AVX2, OCT_ISA_AVX512VNNI};
    for (size_t i = 0; i < OCT_COUNT(isas); i++) {
        oct_isa_set set = 1U << isas[i] | 1U << OCT_ISA_REF;
        if (!oct_isa_has(oct_cpu_isa(), isas[i])) continue;
        for (size_t p = 0; p < OCT_COUNT(products); p++)
            OCT_TRY(bench_product(args, oct_kernel_select(set), p));
    }
    return OCT_OK;
}

/* reduce */

static oct_status bench_sum(const oct_session *session, const oct_args *args, int64_t n)
{
    enum { LEAVES = 16 };
    const oct_collective *group = session->group;
    oct_leaves leaves = oct_leaves_split(LEAVES, 1, group->rank, group->size);
    oct_subtree ranges[OCT_MAX_PARTS];
    size_t parts_count = (size_t)oct_leaves_parts(&leaves, ranges);
    int64_t repetitions = n < 10000 ? 200 : n < 1000000 ? 30 : 5;
    float *parts = NULL, *out = NULL;
    double *seconds = NULL;
    oct_status status = OCT_OK;
    status = oct_alloc(&parts, parts_count * (size_t)n, sizeof(float));
    if (status == OCT_OK) status = oct_alloc(&out, (size_t)n, sizeof(float));
    if (status == OCT_OK) status = oct_alloc(&seconds, (size_t)repetitions, sizeof(double));
    OCT_TRY_OUT(group->agree(group, status));

    double copy = 1e9;
    for (int64_t i = 0; i < repetitions; i++) {
        double begin = oct_seconds();
        OCT_TRY_OUT(group->tree_sum_f32(group, &leaves, parts, n, out));
        double middle = oct_seconds();
        memcpy(parts, out, parts_count > 0 ? (size_t)n * sizeof(float) : 0);
        seconds[i] = middle - begin;
        if (oct_seconds() - middle < copy) copy = oct_seconds() - middle;
    }
    double each = median(seconds, repetitions), mb = (double)n * sizeof(float) / 1e6;
    if (group->rank == 0)
        status = args->json
                     ? oct_print_json(json_pack("{s:s, s:i, s:I, s:f, s:f, s:f}", "bench", "reduce",
                                                "ranks", group->size, "floats", (json_int_t)n, "ms",
                                                1e3 * each, "mb_per_second", mb / each, "copy_ms",
                                                1e3 * copy))
                     : oct_print("reduce %9" PRId64
                                 " floats over %d rank%s: %8.3f ms, %8.0f MB/s (a copy: "
                                 "%.3f ms)\n",
                                 n, group->size, group->size > 1 ? "s" : "", 1e3 * each, mb / each,
                                 1e3 * copy);
out:
    oct_free(&parts);
    oct_free(&out);
    oct_free(&seconds);
    return status;
}

static oct_status bench_reduce(const oct_session *session, const oct_args *args)
{
    static const int64_t sizes[] = {1000, 10000, 100000, 1000000, 4000000};
    for (size_t i = 0; i < OCT_COUNT(sizes); i++)
        OCT_TRY(bench_sum(session, args, sizes[i]));
    return OCT_OK;
}

static oct_status bench(oct_session *session, const oct_args *args)
{
    const char *what = args->word[0];
    if (strcmp(what, "step") == 0) return bench_step(session, args);
    if (strcmp(what, "reduce") == 0) return bench_reduce(session, args);
    bool infer = strcmp(what, "infer") == 0;
    OCT_CHECK(infer || strcmp(what, "kernels") == 0, OCT_USAGE,
              "command line: there is no figure '%s'; choose step, infer, kernels or reduce", what);
    OCT_CHECK(session->group->size == 1, OCT_USAGE,
              "octet bench %s is for one process, but %d were started; run it without the launcher",
              what, session->group->size);
    return infer ? bench_infer(args) : bench_kernels(args);
}

static oct_status run(const oct_args *args)
{
    oct_session session;
    OCT_CHECK(args->num_words == 1 || strcmp(args->word[0], "infer") == 0, OCT_USAGE,
              "command line: '%s' is one word too many; only infer takes a file", args->word[1]);
    OCT_TRY(oct_session_open(&session, args));
    oct_status status = bench(&session, args);
    /* A wrong word is found by every rank before anything is exchanged. */
    if (status == OCT_USAGE) status = oct_session_agree(&session, status);
    return oct_session_end(&session, status);
}

const oct_command oct_command_bench = {
    .name = "bench",
    .usage = "octet bench step|infer MODEL|kernels|reduce [options]",
    .summary = "figures of this machine, one line each",
    .help = "step     a training step of --model on random images\n"
            "infer    the int8 model MODEL on random images\n"
            "kernels  integer products by every instruction set of this processor\n"
            "reduce   the sum over ranks; start it with --ranks or mpirun",
    .options = options,
    .min_words = 1,
    .max_words = 2,
    .parallel = true,
    .run = run,
};
