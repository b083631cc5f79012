/* octet bench takes figures of this machine (bench/). */
#include "launch/bench/bench.h"
#include "launch/cmd/command.h"

enum { MODEL, BATCH, LEAF, STEPS, MODE, NUMERICS, IMAGE, GROUP, THREADS, RANKS, NATIVE };

static const oct_option options[] = {
    [MODEL] = OCT_TEXT(0, "--model", "NAME",
                       "step, infer: a model of octet help models (step: default cnn-small)"),
    [BATCH] = OCT_NUMBER(0, "--batch", "B", 1, 65536, "step, infer: images at a time (default 64)"),
    [LEAF] =
        OCT_NUMBER(0, "--leaf", "L", 1, 65536, "step: samples of a leaf of the batch (default 8)"),
    [STEPS] = OCT_NUMBER(0, "--steps", "N", 1, OCT_BENCH_REPETITIONS_MAX,
                         "repetitions that count (default: step 10, infer half a second)"),
    [MODE] = OCT_TEXT(0, "--mode", "float|qat", "step: which (default qat)"),
    [NUMERICS] = OCT_TEXT(
        0, "--numerics", "bf16|f32|int8",
        "step: of the backward of QAT (default int8), or of float (f32, default, or bf16)"),
    [IMAGE] = OCT_TEXT(0, "--image", "HxWxC",
                       "step, infer --model: size of the images (default 32x32x3)"),
    [GROUP] = OCT_TEXT(0, "--norm-group", "GROUP",
                       "step: batch_norm.group of its recipe (default batch)"),
    [THREADS] =
        OCT_NUMBER(0, "--threads", "T", 1, 256, "step, infer: threads of a rank (default 1)"),
    [RANKS] = OCT_NUMBER(0, "--ranks", "N", 1, 4096, "step, reduce: start N ranks"),
    [NATIVE] = OCT_SWITCH(
        0, "--native", "reduce: beside the MPI library's own sum, whose bits depend on the ranks"),
    {0},
};

static const oct_bench_figure *const figures[] = {&oct_bench_step, &oct_bench_infer,
                                                  &oct_bench_kernels, &oct_bench_reduce};

static oct_status read_image_size(oct_bench *bench)
{
    const oct_args *args = bench->args;
    const char *text = args->option[IMAGE].given ? args->option[IMAGE].text : "32x32x3";
    char more;
    int h, w, c;
    bool good = strspn(text, "0123456789x") == strlen(text) && strlen(text) < 16 &&
                sscanf(text, "%dx%dx%d%c", &h, &w, &c, &more) == 3;
    OCT_CHECK_ARGS(good && h > 0 && w > 0 && h <= 4096 && w <= 4096 && c >= 1 && c <= 4,
                   "--image %s: write it as 32x32x3 (height, width, 1 to 4 channels)", text);
    bench->h = h;
    bench->w = w;
    bench->c = c;
    return OCT_OK;
}

static oct_status read_bench(oct_bench *bench)
{
    const oct_args *args = bench->args;
    bench->file = args->num_words > 1 ? args->word[1] : NULL;
    bench->model = args->option[MODEL].text;
    bench->batch = oct_option_count(args, BATCH, 64);
    bench->leaf = oct_option_count(args, LEAF, 8);
    bench->threads = oct_option_count(args, THREADS, 1);
    bench->norm_group = args->option[GROUP].text;
    bench->native = args->option[NATIVE].given;
    bench->repetitions = oct_option_count(args, STEPS, 0);
    const char *mode = args->option[MODE].given ? args->option[MODE].text : "qat";
    bench->qat = strcmp(mode, "qat") == 0;
    OCT_CHECK_ARGS(bench->qat || strcmp(mode, "float") == 0, "--mode %s: use float or qat", mode);
    char choice[OCT_REGISTRY_CHOICE_BYTES];
    const oct_registry *words = bench->qat ? &oct_numerics_table : &oct_float_numerics_table;
    const char *word = bench->qat ? "int8" : "f32";
    if (args->option[NUMERICS].given) word = args->option[NUMERICS].text;
    OCT_CHECK_ARGS(oct_registry_find(words, word), "--numerics %s: use %s", word,
                   oct_registry_choice(words, " or ", choice));
    bench->numerics = (oct_numerics)oct_registry_index(&oct_numerics_table, word);
    return read_image_size(bench);
}

static oct_status run_figure(oct_bench *bench)
{
    const oct_collective *group = bench->session->group;
    const oct_bench_figure *figure = NULL;
    for (size_t i = 0; i < OCT_COUNT(figures); i++)
        if (strcmp(figures[i]->name, bench->args->word[0]) == 0) figure = figures[i];
    OCT_CHECK_ARGS(figure, "there is no figure '%s'; choose step, infer, kernels or reduce",
                   bench->args->word[0]);
    OCT_CHECK(figure->parallel || group->size == 1, OCT_USAGE,
              "octet bench %s is for one process, but %d were started; run it without the launcher",
              figure->name, group->size);
    OCT_TRY(read_bench(bench));
    if (bench->args->json) bench->figures = json_array();
    json_auto_t *all = bench->figures;
    OCT_TRY(figure->run(bench));
    if (all && group->rank == 0)
        oct_print_json(json_incref(figure->several ? all : json_array_get(all, 0)));
    return OCT_OK;
}

static oct_status run_bench(const oct_args *args)
{
    oct_session session;
    oct_bench bench = {.session = &session, .args = args};
    OCT_CHECK_ARGS(args->num_words == 1 || strcmp(args->word[0], "infer") == 0,
                   "unexpected argument '%s'; only infer takes a file", args->word[1]);
    OCT_TRY(oct_session_open(&session, args, OCT_DEADLINE_S));
    oct_status status = run_figure(&bench);
    /* A wrong word is found by every rank before anything is exchanged. */
    if (status == OCT_USAGE) status = oct_session_agree(&session, status);
    return oct_session_end(&session, status);
}

const oct_command oct_command_bench = {
    .name = "bench",
    .usage = "octet bench step|infer MODEL|kernels|reduce [options]",
    .summary = "measures this machine: one line for each figure",
    .help =
        "step     a training step of --model on random images: all that `octet train` does for "
        "one\n"
        "infer    the int8 model MODEL, or --model made on the spot, on random images\n"
        "kernels  the products of training on the layers of residual networks, by every "
        "instruction set\n"
        "reduce   the sum over ranks; start it with --ranks or mpirun; --native: beside "
        "MPI_Allreduce\n"
        "\n"
        "A figure is the median of repetitions, after 3 that do not count. Memory is the peak\n"
        "above what was there before the model: the larger of what the allocator gave out and\n"
        "what the process grew by, and of a step it is said in which phase: prepare, calibrate,\n"
        "float or qat. Gop/s are the multiply-adds of convolutions and linear layers (two\n"
        "operations each; a step: forward, and backward to inputs and weights; padding not\n"
        "counted) over the whole time, beside what the processor's units could do of them,\n"
        "measured then and there. --json also has the least time, and the processor's own, which\n"
        "other work disturbs less. OCT_ISA narrows the instruction sets. Unset\n"
        "OPENBLAS_CORETYPE, which can halve OpenBLAS.\n"
        "\n"
        "    octet bench step --model resnet20 --batch 64 --json\n"
        "    octet bench infer --model resnet20 --batch 1\n",
    .options = options,
    .min_words = 1,
    .max_words = 2,
    .parallel = true,
    .run = run_bench,
};
