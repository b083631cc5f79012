/* octet compare finds the layers in which two networks depart from each other. */
#include "core/base/int_math.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "launch/base/machine.h"
#include "launch/base/meter.h"
#include "launch/cmd/command.h"
#include "launch/cmd/compare_side.h"
#include "launch/base/output.h"
#include "launch/session/build.h"
#include "launch/evaluate/evaluate.h"
#include "quant/layers/layer_source.h"
#include "quant/program/step.h"

#include <jansson.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

enum { DATA, SAMPLES, SQNR, UNQUANTIZED, COMMON };
enum { STANDARD_SAMPLES = 32, CLOSE = 20 }; /* CLOSE: dB of SQNR below which a layer departs */

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

typedef struct verdict {
    const oct_compare_side *a, *b;
    const oct_comparing *found;
    bool exact;    /* both compute the same, so every bit counts */
    double enough; /* otherwise: dB of SQNR below which a layer departs */
    /* Layers of b; -1: none. */
    int64_t first; /* that departs */
    int64_t worst; /* by SQNR, of those that differ at all */
    int64_t drop;  /* whose SQNR is furthest below that of the layer before */
    double drop_db;
    int64_t departing; /* layers */
} verdict;

/* The number in the data of a sample that is compared. */
static int64_t number_of(const comparison *c, int64_t sample)
{
    return c->golden ? sample : oct_sample_subset_number(&c->subset_a, sample);
}

enum { NAMED = 8 };

/* Layers that differ in nothing are as good as this. */
static const double same_db = 150;

static double sqnr_of(const oct_layer_comparison *layer)
{
    return oct_error_sqnr(&layer->sums);
}

static bool departs(const verdict *v, int64_t layer)
{
    const oct_layer_comparison *l = &v->found->layers[layer];
    if (!l->pair) return false;
    if (v->exact) return !l->same_format || l->different > 0;
    return !(sqnr_of(l) >= v->enough);
}

/* Figures that are no number are below all. */
static double rank_of(const oct_layer_comparison *layer)
{
    const double db = sqnr_of(layer);
    return isnan(db) ? -same_db : fmax(fmin(db, same_db), -same_db);
}

static void find_places(verdict *v)
{
    double before = same_db;
    for (int64_t i = 0; i < v->b->source.count; i++) {
        const oct_layer_comparison *l = &v->found->layers[i];
        if (!l->pair) continue;
        const double db = rank_of(l);
        if (departs(v, i) && v->departing++ == 0) v->first = i;
        if (l->different > 0 && (v->worst < 0 || db < rank_of(&v->found->layers[v->worst])))
            v->worst = i;
        /* What the rounding of the input costs is no drop. */
        if (before < same_db && before - db > v->drop_db) {
            v->drop = i;
            v->drop_db = before - db;
        }
        before = db;
    }
}

/* Layers of `source` that have no partner. */
static oct_status name_missing(const oct_layer_source *source, const int64_t *partner,
                               oct_text *names, int64_t *count)
{
    *count = 0;
    for (int64_t i = 0; i < source->count; i++) {
        if (partner[i] >= 0 || source->layers[i].passes) continue;
        if (*count < NAMED)
            OCT_TRY(oct_text_add(names, "%s%s", *count ? ", " : "", source->layers[i].name));
        (*count)++;
    }
    if (*count > NAMED) OCT_TRY(oct_text_add(names, ", ..."));
    return OCT_OK;
}

/* OCT_DATA naming the layers that one side lacks. */
static oct_status check_layers(const oct_compare_side *a, const oct_compare_side *b,
                               const oct_layer_pairs *pairs)
{
    oct_text names_a = {0}, names_b = {0};
    int64_t only_a = 0, only_b = 0;
    oct_status status = name_missing(&a->source, pairs->b_of, &names_a, &only_a);
    if (status == OCT_OK) status = name_missing(&b->source, pairs->a_of, &names_b, &only_b);
    if (status == OCT_OK && only_a + only_b > 0)
        status = oct_fail(
            OCT_DATA,
            "the networks differ; what only %s has: %s; what only %s has: %s (of this "
            "name and size); --common compares the other layers",
            a->path, only_a ? names_a.data : "nothing", b->path, only_b ? names_b.data : "nothing");
    oct_text_free(&names_a);
    oct_text_free(&names_b);
    return status;
}

/* For people. */

static const oct_layer_info *info_of(const verdict *v, int64_t layer)
{
    return &v->b->source.layers[layer];
}

/* Models know the type of a layer better than programs. */
static const char *type_of(const verdict *v, int64_t layer)
{
    const int64_t a = v->found->pairs.a_of[layer];
    const bool better = a >= 0 && v->a->root && !v->b->root;
    return better ? v->a->source.layers[a].type : info_of(v, layer)->type;
}

/* "image 17, row 3, column 0, channel 5: 130 in a, 131 in b" */
static const char *place_text(const verdict *v, int64_t layer, int64_t image, char text[256])
{
    const oct_layer_comparison *l = &v->found->layers[layer];
    const oct_value *value = &info_of(v, layer)->value;
    const int64_t i = l->first.index, pixel = i / value->c;
    char where[128];
    if (value->h == 1 && value->w == 1)
        snprintf(where, sizeof where, "number %lld", (long long)i);
    else
        snprintf(where, sizeof where, "row %lld, column %lld, channel %lld",
                 (long long)(pixel / value->w), (long long)(pixel % value->w),
                 (long long)(i % value->c));
    oct_snprintf(text, 256, "image %lld, %s: %s%.9g in a, %.9g in b", (long long)image, where,
                 l->same_format && value->dtype != OCT_F32 && value->dtype != OCT_S32 ? "code "
                                                                                      : "",
                 l->first.a, l->first.b);
    return text;
}

static oct_status print_row(const verdict *v, int64_t layer, int width)
{
    const oct_layer_comparison *l = &v->found->layers[layer];
    char plane[96], db[32] = "same", share[32];
    const oct_layer_info *info = info_of(v, layer);
    const oct_value *value = &info->value;
    if (!l->pair) return oct_print("  %-*s  %-12s only in b\n", width, info->name, info->type);
    const double sqnr = sqnr_of(l);
    if (l->different > 0) oct_snprintf(db, sizeof db, "%.1f", sqnr);
    if (l->different > 0 && isinf(sqnr)) snprintf(db, sizeof db, "bits");
    oct_snprintf(share, sizeof share, "%.2f %%",
                 l->numbers ? 100.0 * (double)l->different / (double)l->numbers : 0.0);
    snprintf(plane, sizeof plane, "%lld", (long long)value->c);
    if (value->h != 1 || value->w != 1)
        snprintf(plane, sizeof plane, "%lldx%lldx%lld", (long long)value->h, (long long)value->w,
                 (long long)value->c);
    return oct_print("%c %-*s  %-12s %-12s %9.6f %9s %12.5g %10s%s%s%s%s\n",
                     departs(v, layer) ? '!' : ' ', width, info->name, type_of(v, layer), plane,
                     oct_error_cosine(&l->sums), db, l->max_error, share,
                     layer == v->first ? "  first" : "", layer == v->worst ? "  worst" : "",
                     layer == v->drop ? "  largest drop" : "",
                     v->exact && !l->same_format ? "  other scale" : "");
}

static oct_status print_conclusion(const verdict *v, const comparison *c)
{
    char place[256];
    if (v->first < 0 && v->exact) return oct_print("every layer is the same, bit for bit\n");
    if (v->first < 0)
        OCT_TRY(oct_print("no layer is below %g dB\n", v->enough));
    else if (v->found->layers[v->first].different > 0)
        OCT_TRY(oct_print(
            "first to depart: %s, %s\n", info_of(v, v->first)->name,
            place_text(v, v->first, number_of(c, v->found->layers[v->first].first.sample), place)));
    if (v->worst >= 0)
        OCT_TRY(oct_print("worst: %s, %.1f dB\n", info_of(v, v->worst)->name,
                          sqnr_of(&v->found->layers[v->worst])));
    if (v->drop >= 0)
        OCT_TRY(oct_print("largest drop: %s, %.1f dB below the layer before\n",
                          info_of(v, v->drop)->name, v->drop_db));
    return OCT_OK;
}

static oct_status print_table(const verdict *v, const comparison *c)
{
    char count[32];
    int width = 5;
    for (int64_t i = 0; i < v->b->source.count; i++) {
        const int length = (int)strlen(info_of(v, i)->name);
        width = length > width ? length : width;
    }
    const oct_compare_side *const sides[] = {v->a, v->b};
    for (int i = 0; i < 2; i++)
        OCT_TRY(oct_print("%c  %s (%s, %s)\n", 'a' + i, oct_compare_side_file(sides[i]),
                          oct_compare_side_phase(sides[i]), oct_compare_side_arithmetic(sides[i])));
    OCT_TRY(oct_print("%s images; a layer departs ", oct_text_count(v->found->samples, count)));
    OCT_TRY(v->exact ? oct_print("where a bit differs\n")
                     : oct_print("below %g dB of SQNR\n", v->enough));
    OCT_TRY(oct_print("  %-*s  %-12s %-12s %9s %9s %12s %10s\n", width, "layer", "type", "output",
                      "cosine", "SQNR dB", "max error", "differ"));
    for (int64_t i = 0; i < v->b->source.count; i++)
        OCT_TRY(print_row(v, i, width));
    return print_conclusion(v, c);
}

/* For programs. */

static json_t *side_json(const oct_compare_side *s)
{
    return json_pack("{s:s, s:s, s:s}", "file", oct_compare_side_file(s), "phase",
                     oct_compare_side_phase(s), "arithmetic", oct_compare_side_arithmetic(s));
}

static json_t *name_json(const verdict *v, int64_t layer)
{
    return layer < 0 ? json_null() : json_string(info_of(v, layer)->name);
}

static json_t *layer_json(const verdict *v, int64_t layer, int64_t image)
{
    const oct_layer_comparison *l = &v->found->layers[layer];
    const oct_value *value = &info_of(v, layer)->value;
    json_t *object = json_pack("{s:s, s:s, s:[I, I, I], s:b}", "path", info_of(v, layer)->name,
                               "type", type_of(v, layer), "shape", (json_int_t)value->h,
                               (json_int_t)value->w, (json_int_t)value->c, "in_both", l->pair);
    if (object && l->pair)
        json_object_update_new(
            object,
            json_pack("{s:b, s:b, s:I, s:I, s:o, s:o, s:o, s:o}", "departs", departs(v, layer),
                      "same_format", l->same_format, "numbers", (json_int_t)l->numbers, "different",
                      (json_int_t)l->different, "cosine",
                      oct_json_number(oct_error_cosine(&l->sums)), "sqnr_db",
                      oct_json_number(sqnr_of(l)), "max_error", oct_json_number(l->max_error),
                      "first",
                      l->different == 0
                          ? json_null()
                          : json_pack("{s:I, s:I, s:o, s:o}", "image", (json_int_t)image, "index",
                                      (json_int_t)l->first.index, "a", oct_json_number(l->first.a),
                                      "b", oct_json_number(l->first.b))));
    return object;
}

static oct_status print_json(const verdict *v, const comparison *c)
{
    json_t *layers = json_array();
    for (int64_t i = 0; i < v->b->source.count; i++)
        json_array_append_new(layers,
                              layer_json(v, i, number_of(c, v->found->layers[i].first.sample)));
    return oct_print_json(json_pack(
        "{s:i, s:o, s:o, s:I, s:b, s:o, s:b, s:o, s:o, s:o, s:o}", "schema_version", 1, "a",
        side_json(v->a), "b", side_json(v->b), "images", (json_int_t)v->found->samples,
        "bit_for_bit", v->exact, "sqnr_db_wanted", v->exact ? json_null() : json_real(v->enough),
        "equal", v->first < 0, "first_to_depart", name_json(v, v->first), "worst",
        name_json(v, v->worst), "largest_drop", name_json(v, v->drop), "layers", layers));
}

/* OCT_NO with the place where they depart; OCT_OK when they do not. */
static oct_status answer(const verdict *v, const comparison *c)
{
    char place[256];
    if (v->first < 0) return OCT_OK;
    const oct_layer_comparison *l = &v->found->layers[v->first];
    if (l->different > 0)
        place_text(v, v->first, number_of(c, l->first.sample), place);
    else
        snprintf(place, sizeof place, "its scale or zero point is another one");
    return oct_fail(OCT_NO, "%s and %s depart in %lld of %lld layers, first in %s (%s)", v->a->path,
                    v->b->path, (long long)v->departing, (long long)v->b->source.count,
                    info_of(v, v->first)->name, place);
}

/* The comparison. */

static oct_status open_sides(comparison *c)
{
    const oct_args *args = c->args;
    const char *data = args->option[DATA].text;
    const char *sqnr = args->option[SQNR].text;
    if (sqnr)
        OCT_CHECK(oct_parse_f64(sqnr, &c->sqnr), OCT_USAGE,
                  "command line: --sqnr '%s': must be a number of dB, such as 20", sqnr);
    OCT_TRY(oct_compare_side_open(&c->a, args->word[0], data));
    OCT_TRY(oct_compare_side_open(&c->b, args->word[1], data));
    OCT_CHECK(!args->option[UNQUANTIZED].given || c->a.kind != OCT_FILE_MODEL, OCT_USAGE,
              "command line: --unquantized: %s is an int8 model, which has no weights but codes; "
              "name a checkpoint or a run folder first",
              c->a.path);
    return OCT_OK;
}

/* Data that are not there are no failure where golden inputs are. */
static oct_status load_data(comparison *c)
{
    const oct_model *a = &c->a.model, *b = &c->b.model;
    const bool models = c->a.kind == OCT_FILE_MODEL && c->b.kind == OCT_FILE_MODEL;
    const oct_model *golden = !models || c->args->option[DATA].given ? NULL
                              : a->certificate.golden_count > 0      ? a
                              : b->certificate.golden_count > 0      ? b
                                                                     : NULL;
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
    const int64_t wanted = oct_option_count(c->args, SAMPLES, STANDARD_SAMPLES);
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

static oct_status compare_layers(comparison *c)
{
    oct_meter meter;
    const int64_t numel = c->data.h * c->data.w * c->data.c;
    OCT_TRY(oct_comparing_begin(&c->found, &c->a.source, &c->b.source));
    if (!c->args->option[COMMON].given) OCT_TRY(check_layers(&c->a, &c->b, &c->found.pairs));
    oct_meter_begin(&meter, "compare", "images", c->samples);
    for (int64_t i = 0; i < c->samples; i++) {
        if (!c->golden) {
            OCT_TRY(oct_sample_subset_read(&c->subset_a, i, c->input_a));
            OCT_TRY(oct_sample_subset_read(&c->subset_b, i, c->input_b));
        }
        for (int64_t k = 0; c->golden && k < numel; k++)
            c->input_a[k] = c->input_b[k] = c->golden->golden_input[i * numel + k];
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
    OCT_TRY(compare_layers(c));
    const bool given = c->args->option[SQNR].given;
    verdict v = {.a = &c->a,
                 .b = &c->b,
                 .found = &c->found,
                 .exact = !given && strcmp(oct_compare_side_arithmetic(&c->a),
                                           oct_compare_side_arithmetic(&c->b)) == 0,
                 .enough = given ? c->sqnr : CLOSE,
                 .first = -1,
                 .worst = -1,
                 .drop = -1};
    find_places(&v);
    OCT_TRY(c->args->json ? print_json(&v, c) : print_table(&v, c));
    return answer(&v, c);
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
