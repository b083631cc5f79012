/* octet compare finds the layers in which two networks depart from each other. */
#include "core/base/int_math.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "launch/base/machine.h"
#include "launch/base/meter.h"
#include "launch/cmd/command.h"
#include "launch/cmd/compare_table.h"
#include "launch/session/build.h"
#include "launch/evaluate/evaluate.h"
#include "quant/program/step.h"

#include <omp.h>

enum { DATA, SAMPLES, SQNR, UNQUANTIZED, COMMON };
enum { STANDARD_SAMPLES = 32 };

/* Samples come from the data set, or, where it is not on this machine, from a model that holds golden inputs. */
typedef struct comparison {
    const oct_args *args;
    oct_compare_side a, b;
    oct_dataset data;
    oct_sample_subset subset_a, subset_b;
    const oct_model *golden; /* or NULL */
    int64_t samples;
    float *input_a, *input_b;
    oct_comparing found;
    double sqnr;
} comparison;

static oct_status read_sqnr(comparison *c)
{
    if (!c->args->option[SQNR].given) return OCT_OK;
    const char *text = c->args->option[SQNR].text;
    OCT_CHECK(oct_parse_f64(text, &c->sqnr), OCT_USAGE,
              "command line: --sqnr '%s': must be a number of dB, such as 20", text);
    return OCT_OK;
}

static oct_status open_sides(comparison *c)
{
    const oct_args *args = c->args;
    const char *data = args->option[DATA].given ? args->option[DATA].text : NULL;
    OCT_TRY(read_sqnr(c));
    OCT_TRY(oct_compare_side_open(&c->a, args->word[0], data));
    OCT_TRY(oct_compare_side_open(&c->b, args->word[1], data));
    OCT_CHECK(!args->option[UNQUANTIZED].given || c->a.kind != OCT_FILE_MODEL, OCT_USAGE,
              "command line: --unquantized: %s is an int8 model, which has no weights but codes; "
              "name a checkpoint or a run folder first",
              c->a.path);
    return OCT_OK;
}

static const oct_model *golden_of(const comparison *c)
{
    const oct_model *a = &c->a.model, *b = &c->b.model;
    if (c->a.kind != OCT_FILE_MODEL || c->b.kind != OCT_FILE_MODEL) return NULL;
    if (c->args->option[DATA].given) return NULL;
    return a->certificate.golden_count > 0 ? a : b->certificate.golden_count > 0 ? b : NULL;
}

/* Data that are not there are no failure where golden inputs are. */
static oct_status load_data(comparison *c)
{
    const oct_model *golden = golden_of(c);
    const oct_status status = oct_load_data(&c->a.recipe, OCT_TEST, NULL, &c->data);
    if (status != OCT_DATA || !golden) return status;
    const oct_value *in = &golden->program.values[golden->program.inputs[0]];
    oct_log(OCT_LOG_WARN, "%s; comparing on the golden inputs of the model instead",
            oct_fail_text(0));
    oct_fail_clear();
    c->golden = golden;
    c->data = (oct_dataset){.count = golden->certificate.golden_count,
                            .h = in->h,
                            .w = in->w,
                            .c = in->c,
                            .classes = golden->classes};
    return OCT_OK;
}

static oct_status make_probes(comparison *c)
{
    const oct_args *args = c->args;
    const int64_t wanted =
        args->option[SAMPLES].given ? args->option[SAMPLES].count : STANDARD_SAMPLES;
    const size_t numel = (size_t)(c->data.h * c->data.w * c->data.c);
    OCT_CHECK(c->data.count > 0, OCT_DATA, "data.path: there are no test images");
    c->samples = oct_min_i64(wanted, c->data.count);
    const oct_compare_side *sides[] = {&c->a, &c->b};
    for (int i = 0; i < 2; i++)
        if (sides[i]->kind == OCT_FILE_MODEL)
            OCT_TRY(oct_model_check_work(&sides[i]->model, c->samples, sides[i]->path));
    OCT_TRY(oct_alloc(&c->input_a, numel, sizeof(float)));
    OCT_TRY(oct_alloc(&c->input_b, numel, sizeof(float)));
    if (c->golden) return OCT_OK;
    OCT_TRY(oct_sample_subset_create(&c->subset_a, &c->a.recipe, &c->data, wanted));
    return oct_sample_subset_create(&c->subset_b, &c->b.recipe, &c->data, wanted);
}

static oct_status fetch(comparison *c, int64_t i)
{
    const int64_t numel = c->data.h * c->data.w * c->data.c;
    if (!c->golden) {
        OCT_TRY(oct_sample_subset_read(&c->subset_a, i, c->input_a));
        return oct_sample_subset_read(&c->subset_b, i, c->input_b);
    }
    for (int64_t k = 0; k < numel; k++)
        c->input_a[k] = c->input_b[k] = c->golden->golden_input[i * numel + k];
    return OCT_OK;
}

static int64_t number_of(const void *user, int64_t sample)
{
    const comparison *c = user;
    return c->golden ? sample : oct_sample_subset_number(&c->subset_a, sample);
}

static oct_status compare(comparison *c)
{
    oct_meter meter;
    OCT_TRY(oct_comparing_begin(&c->found, &c->a.source, &c->b.source));
    if (!c->args->option[COMMON].given) OCT_TRY(oct_compare_check(&c->a, &c->b, &c->found.pairs));
    oct_meter_begin(&meter, "compare", "images", c->samples);
    for (int64_t i = 0; i < c->samples; i++) {
        OCT_TRY(fetch(c, i));
        OCT_TRY(oct_comparing_add(&c->found, c->input_a, c->input_b));
        oct_meter_show(&meter, i + 1);
    }
    oct_meter_end(&meter);
    return OCT_OK;
}

static oct_status compare_in_session(comparison *c)
{
    OCT_TRY(open_sides(c));
    OCT_TRY(load_data(c));
    OCT_TRY(make_probes(c));
    OCT_TRY(oct_compare_side_build(&c->a, &c->data, c->args->option[UNQUANTIZED].given));
    OCT_TRY(oct_compare_side_build(&c->b, &c->data, false));
    OCT_TRY(compare(c));
    const oct_compare_verdict verdict =
        oct_compare_judge(&c->a, &c->b, &c->found, c->args->option[SQNR].given ? &c->sqnr : NULL);
    OCT_TRY(c->args->json ? oct_compare_print_json(&verdict, number_of, c)
                          : oct_compare_print(&verdict, number_of, c));
    return oct_compare_answer(&verdict, number_of, c);
}

static oct_status run_compare(const oct_args *args)
{
    comparison c = {.args = args};
    omp_set_num_threads((int)oct_machine_cores());
    const oct_status status = compare_in_session(&c);
    oct_comparing_end(&c.found);
    oct_compare_side_close(&c.a);
    oct_compare_side_close(&c.b);
    oct_sample_subset_free(&c.subset_a);
    oct_sample_subset_free(&c.subset_b);
    if (!c.golden) oct_dataset_close(&c.data);
    oct_free(&c.input_a);
    oct_free(&c.input_b);
    return status;
}

static const oct_option options[] = {
    [DATA] = {"--data", 0, OCT_OPT_TEXT, "FOLDER",
              "folder of the data set, if it is not where the run had it", 0, 0},
    [SAMPLES] = {"--samples", 0, OCT_OPT_COUNT, "N",
                 "test images to compare on, spread evenly over the data (default 32)", 1, 1000000},
    [SQNR] = {"--sqnr", 0, OCT_OPT_TEXT, "DB",
              "a layer departs below this (default: bit for bit, or 20)", 0, 0},
    [UNQUANTIZED] = {"--unquantized", 0, OCT_OPT_FLAG, NULL,
                     "the first one with its quantizers off: what rounding alone costs", 0, 0},
    [COMMON] = {"--common", 0, OCT_OPT_FLAG, NULL,
                "networks may differ: compare the layers that both have", 0, 0},
    {0},
};

const oct_command oct_command_compare = {
    .name = "compare",
    .usage = "octet compare A B [--data FOLDER] [--samples N] [--sqnr DB] [--unquantized] "
             "[--common]",
    .summary = "finds the layers in which two checkpoints or int8 models depart",
    .help =
        "A and B are checkpoints, run folders (their newest checkpoint) or int8 models. Both "
        "run on the\n"
        "same test images, and each layer's outputs are compared: cosine, signal to noise of B "
        "against\n"
        "A in dB, largest error, share of numbers that differ. What is fused is one layer, also "
        "in float.\n"
        "\n"
        "Where both compute the same (two of one target, or both in float), a layer departs "
        "as soon\n"
        "as a bit differs; otherwise (float against codes, two targets) where its SQNR is "
        "below 20 dB.\n"
        "Layers that depart are marked with '!'. Exit status 0: none does; 1: some do.\n"
        "\n"
        "    octet compare runs/a runs/a/model.int8.h5                  # the same bits\n"
        "    octet compare runs/a runs/a/model.int8.h5 --unquantized    # what rounding costs\n"
        "    octet compare runs/x86/model.int8.h5 runs/pow2/model.int8.h5\n",
    .options = options,
    .min_words = 2,
    .max_words = 2,
    .run = run_compare,
};
