/* octet compare finds the layers in which two networks depart from each other. */
#include "core/base/int_math.h"
#include "core/base/log.h"
#include "launch/base/machine.h"
#include "launch/cmd/command.h"
#include "launch/cmd/subject.h"
#include "launch/evaluate/evaluate.h"
#include "quant/layers/layer_source.h"
#include "quant/program/step.h"

#include <math.h>
#include <omp.h>

enum { DATA, SAMPLES, SQNR, UNQUANTIZED, COMMON };
enum { STANDARD_SAMPLES = 32, STANDARD_DB = 20 };

/* One of the two networks. */
typedef struct compared_side {
    oct_subject subject;
    bool rounds; /* it computes with codes */
    oct_layer_source source;
    oct_sample_subset subset; /* of the data, as this network takes them */
    float *input;             /* a sample */
} compared_side;

/* Samples come from the data set, or, where it is not on this machine, from a model that holds golden inputs. */
typedef struct comparison {
    const oct_args *args;
    compared_side a, b;
    oct_dataset data;
    const oct_model *golden; /* or NULL */
    int64_t samples;
    oct_comparing found;
    /* The verdict. */
    bool exact;       /* both compute the same, so every bit counts */
    double enough_db; /* otherwise: SQNR below which a layer departs */
    /* Layers of b; -1: none. */
    int64_t first; /* that departs */
    int64_t worst; /* by SQNR, of those that differ at all */
    int64_t drop;  /* whose SQNR is furthest below that of the layer before */
    double drop_db;
    int64_t departing; /* layers */
} comparison;

/* "int8 model", or the phase of a checkpoint. */
static const char *phase_of(const compared_side *s)
{
    return s->subject.kind == OCT_FILE_MODEL ? "int8 model" : s->subject.checkpoint.info.phase;
}

/* "float", or the target whose codes it computes with. */
static const char *arithmetic_of(const compared_side *s)
{
    if (!s->rounds) return "float";
    const oct_subject *file = &s->subject;
    return file->root ? oct_graph_of(file->root)->target->name : file->model.program.target;
}

/* The number in the data of the first image whose outputs of the layer differ. */
static int64_t first_image(const comparison *c, int64_t layer)
{
    const int64_t sample = c->found.layers[layer].first.sample;
    return c->golden ? sample : oct_sample_subset_number(&c->a.subset, sample);
}

enum { NAMED = 8 };

/* Layers that differ in nothing are as good as this. */
static const double same_db = 150;

static double sqnr_of(const oct_layer_comparison *layer)
{
    return oct_error_sqnr(&layer->sums);
}

/* Whether a layer differs too much: by any bit where both networks compute the same, else by its SQNR. */
static bool departs(const comparison *c, int64_t layer)
{
    const oct_layer_comparison *l = &c->found.layers[layer];
    if (!l->pair) return false;
    if (c->exact) return !l->same_format || l->different > 0;
    return !(sqnr_of(l) >= c->enough_db);
}

/* SQNR of a layer, within bounds; what is no number is below all. */
static double bounded_db(const oct_layer_comparison *layer)
{
    const double db = sqnr_of(layer);
    return isnan(db) ? -same_db : fmax(fmin(db, same_db), -same_db);
}

/* Finds the first layer that departs, the one of the worst SQNR, and the largest drop of SQNR between two layers. */
static void find_departures(comparison *c)
{
    double before = same_db;
    for (int64_t i = 0; i < c->b.source.count; i++) {
        const oct_layer_comparison *l = &c->found.layers[i];
        if (!l->pair) continue;
        const double db = bounded_db(l);
        if (departs(c, i) && c->departing++ == 0) c->first = i;
        if (l->different > 0 && (c->worst < 0 || db < bounded_db(&c->found.layers[c->worst])))
            c->worst = i;
        /* The first layer that differs at all has the rounding of the input: that is no drop. */
        if (before < same_db && before - db > c->drop_db) {
            c->drop = i;
            c->drop_db = before - db;
        }
        before = db;
    }
}

/* Layers of `source` that have no partner. */
static oct_status list_unpaired_layers(const oct_layer_source *source, const int64_t *partner,
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
static oct_status check_layers(const comparison *c)
{
    const oct_layer_pairs *pairs = &c->found.pairs;
    OCT_OWNED(oct_text_free) oct_text names_a = {0}, names_b = {0};
    int64_t only_a = 0, only_b = 0;
    OCT_TRY(list_unpaired_layers(&c->a.source, pairs->b_of, &names_a, &only_a));
    OCT_TRY(list_unpaired_layers(&c->b.source, pairs->a_of, &names_b, &only_b));
    OCT_CHECK(only_a + only_b == 0, OCT_DATA,
              "the networks differ; what only %s has: %s; what only %s has: %s (of this name and "
              "size); --common compares the other layers",
              c->a.subject.path, only_a ? names_a.data : "nothing", c->b.subject.path,
              only_b ? names_b.data : "nothing");
    return OCT_OK;
}

static const oct_layer_info *layer_info(const comparison *c, int64_t layer)
{
    return &c->b.source.layers[layer];
}

/* Models know the type of a layer better than programs. */
static const char *layer_type(const comparison *c, int64_t layer)
{
    const int64_t a = c->found.pairs.a_of[layer];
    const bool better = a >= 0 && c->a.subject.root && !c->b.subject.root;
    return better ? c->a.source.layers[a].type : layer_info(c, layer)->type;
}

/* "image 17, row 3, column 0, channel 5: 130 in a, 131 in b" */
static const char *first_difference_text(const comparison *c, int64_t layer, char text[256])
{
    const oct_layer_comparison *l = &c->found.layers[layer];
    const oct_value *value = &layer_info(c, layer)->value;
    const int64_t i = l->first.index, pixel = i / value->c;
    char where[128];
    if (value->h == 1 && value->w == 1)
        snprintf(where, sizeof where, "number %lld", (long long)i);
    else
        snprintf(where, sizeof where, "row %lld, column %lld, channel %lld",
                 (long long)(pixel / value->w), (long long)(pixel % value->w),
                 (long long)(i % value->c));
    oct_snprintf(
        text, 256, "image %lld, %s: %s%.9g in a, %.9g in b", (long long)first_image(c, layer),
        where, l->same_format && value->dtype != OCT_F32 && value->dtype != OCT_S32 ? "code " : "",
        l->first.a, l->first.b);
    return text;
}

static void print_row(const comparison *c, int64_t layer, int width)
{
    const oct_layer_comparison *l = &c->found.layers[layer];
    char plane[96], db[32] = "same", share[32];
    const oct_layer_info *info = layer_info(c, layer);
    const oct_value *value = &info->value;
    if (!l->pair) {
        oct_print("  %-*s  %-12s only in b\n", width, info->name, info->type);
        return;
    }
    const double sqnr = sqnr_of(l);
    if (l->different > 0) oct_snprintf(db, sizeof db, "%.1f", sqnr);
    if (l->different > 0 && isinf(sqnr)) snprintf(db, sizeof db, "bits");
    oct_snprintf(share, sizeof share, "%.2f %%",
                 l->numbers ? 100.0 * (double)l->different / (double)l->numbers : 0.0);
    snprintf(plane, sizeof plane, "%lld", (long long)value->c);
    if (value->h != 1 || value->w != 1)
        snprintf(plane, sizeof plane, "%lldx%lldx%lld", (long long)value->h, (long long)value->w,
                 (long long)value->c);
    oct_print("%c %-*s  %-12s %-12s %9.6f %9s %12.5g %10s%s%s%s%s\n", departs(c, layer) ? '!' : ' ',
              width, info->name, layer_type(c, layer), plane, oct_error_cosine(&l->sums), db,
              l->max_error, share, layer == c->first ? "  first" : "",
              layer == c->worst ? "  worst" : "", layer == c->drop ? "  largest drop" : "",
              c->exact && !l->same_format ? "  other scale" : "");
}

static void print_conclusion(const comparison *c)
{
    char place[256];
    if (c->first < 0 && c->exact) {
        oct_print("every layer is the same, bit for bit\n");
        return;
    }
    if (c->first < 0)
        oct_print("no layer is below %g dB\n", c->enough_db);
    else if (c->found.layers[c->first].different > 0)
        oct_print("first to depart: %s, %s\n", layer_info(c, c->first)->name,
                  first_difference_text(c, c->first, place));
    if (c->worst >= 0)
        oct_print("worst: %s, %.1f dB\n", layer_info(c, c->worst)->name,
                  sqnr_of(&c->found.layers[c->worst]));
    if (c->drop >= 0)
        oct_print("largest drop: %s, %.1f dB below the layer before\n",
                  layer_info(c, c->drop)->name, c->drop_db);
}

static void print_table(const comparison *c)
{
    int width = 5;
    for (int64_t i = 0; i < c->b.source.count; i++) {
        const int length = (int)strlen(layer_info(c, i)->name);
        width = length > width ? length : width;
    }
    const compared_side *const sides[] = {&c->a, &c->b};
    for (int i = 0; i < 2; i++)
        oct_print("%c  %s (%s, %s)\n", 'a' + i, oct_subject_file(&sides[i]->subject),
                  phase_of(sides[i]), arithmetic_of(sides[i]));
    oct_print("%s images; a layer departs ", oct_text_count(c->found.samples).text);
    c->exact ? oct_print("where a bit differs\n")
             : oct_print("below %g dB of SQNR\n", c->enough_db);
    oct_print("  %-*s  %-12s %-12s %9s %9s %12s %10s\n", width, "layer", "type", "output", "cosine",
              "SQNR dB", "max error", "differ");
    for (int64_t i = 0; i < c->b.source.count; i++)
        print_row(c, i, width);
    print_conclusion(c);
}

static json_t *side_json(const compared_side *s)
{
    return json_pack("{s:o, s:s, s:s}", "file", oct_json_string(oct_subject_file(&s->subject)),
                     "phase", phase_of(s), "arithmetic", arithmetic_of(s));
}

static json_t *name_json(const comparison *c, int64_t layer)
{
    return layer < 0 ? json_null() : json_string(layer_info(c, layer)->name);
}

static json_t *layer_json(const comparison *c, int64_t layer)
{
    const oct_layer_comparison *l = &c->found.layers[layer];
    const oct_value *value = &layer_info(c, layer)->value;
    json_t *object = json_pack("{s:s, s:s, s:[I, I, I], s:b}", "path", layer_info(c, layer)->name,
                               "type", layer_type(c, layer), "shape", (json_int_t)value->h,
                               (json_int_t)value->w, (json_int_t)value->c, "in_both", l->pair);
    if (object && l->pair)
        json_object_update_new(
            object,
            json_pack(
                "{s:b, s:b, s:I, s:I, s:o, s:o, s:o, s:o}", "departs", departs(c, layer),
                "same_format", l->same_format, "numbers", (json_int_t)l->numbers, "different",
                (json_int_t)l->different, "cosine", oct_json_number(oct_error_cosine(&l->sums)),
                "sqnr_db", oct_json_number(sqnr_of(l)), "max_error", oct_json_number(l->max_error),
                "first",
                l->different == 0
                    ? json_null()
                    : json_pack("{s:I, s:I, s:o, s:o}", "image", (json_int_t)first_image(c, layer),
                                "index", (json_int_t)l->first.index, "a",
                                oct_json_number(l->first.a), "b", oct_json_number(l->first.b))));
    return object;
}

static void print_json(const comparison *c)
{
    json_t *layers = json_array();
    for (int64_t i = 0; i < c->b.source.count; i++)
        json_array_append_new(layers, layer_json(c, i));
    oct_print_json(json_pack(
        "{s:i, s:o, s:o, s:I, s:b, s:o, s:b, s:o, s:o, s:o, s:o}", "schema_version", 1, "a",
        side_json(&c->a), "b", side_json(&c->b), "images", (json_int_t)c->found.samples,
        "bit_for_bit", c->exact, "sqnr_db_wanted", c->exact ? json_null() : json_real(c->enough_db),
        "equal", c->first < 0, "first_to_depart", name_json(c, c->first), "worst",
        name_json(c, c->worst), "largest_drop", name_json(c, c->drop), "layers", layers));
}

/* OCT_MISMATCH with the place where they depart; OCT_OK when they do not. */
static oct_status report_departure(const comparison *c)
{
    char place[256];
    if (c->first < 0) return OCT_OK;
    const oct_layer_comparison *l = &c->found.layers[c->first];
    if (l->different > 0)
        first_difference_text(c, c->first, place);
    else
        snprintf(place, sizeof place, "its scale or zero point is another one");
    return oct_fail(OCT_MISMATCH, "%s and %s depart in %lld of %lld layers, first in %s (%s)",
                    c->a.subject.path, c->b.subject.path, (long long)c->departing,
                    (long long)c->b.source.count, layer_info(c, c->first)->name, place);
}

static oct_status open_side(compared_side *side, const char *path, const char *data_path)
{
    oct_subject *s = &side->subject;
    OCT_TRY(oct_subject_open(s, path, OCT_FILE_MODEL | OCT_FILE_CHECKPOINT | OCT_FILE_RUN_FOLDER,
                             "compare takes checkpoints, run folders and int8 models"));
    OCT_TRY(oct_subject_read_recipe(s, data_path));
    if (oct_subject_is_programs(s)) s->recipe.data_goal = OCT_GOAL_NONE; /* labels don't matter */
    return OCT_OK;
}

/* Builds the network of a checkpoint. A float model is prepared, so that its layers have the names of the quantized
 * ones, with its quantizers off; so are those of a prepared one that is `unquantized`. */
static oct_status build_checkpoint(compared_side *side, const oct_dataset *data, bool unquantized)
{
    oct_subject *s = &side->subject;
    oct_phase phase;
    bool prepared;
    OCT_TRY(oct_checkpoint_phase(&s->checkpoint, &phase));
    OCT_TRY(oct_build_from_checkpoint(&s->root, &s->checkpoint, &s->recipe, data, &prepared));
    if (!prepared) {
        oct_module_train(s->root, true);
        OCT_TRY(oct_prepare_model(&s->root, &s->recipe, data, NULL));
    }
    side->rounds = phase != OCT_PHASE_FLOAT && phase != OCT_PHASE_CALIBRATE && !unquantized;
    if (!side->rounds) OCT_TRY(oct_switch_quantizers_off(s->root));
    return oct_layer_source_of_model(&side->source, s->root,
                                     OCT_EXAMPLE(OCT_SHAPE(1, data->h, data->w, data->c)));
}

static oct_status build_side(compared_side *side, const oct_dataset *data, bool unquantized)
{
    const oct_subject *s = &side->subject;
    oct_status status;
    if (s->kind == OCT_FILE_MODEL) {
        side->rounds = true;
        OCT_TRY(oct_subject_check_images(s, data)); /* whose failure names the file */
        status = oct_layer_source_of_program(&side->source, &s->model.program);
    } else {
        status = build_checkpoint(side, data, unquantized);
    }
    return status == OCT_OK ? OCT_OK : oct_fail_prefix("%s", s->path);
}

static void close_side(compared_side *side)
{
    oct_layer_source_free(&side->source);
    oct_subject_close(&side->subject);
    oct_sample_subset_free(&side->subset);
    oct_free(&side->input);
}

/* Loads the test data; where they are missing, two int8 models are compared on the golden inputs of one of them. */
static oct_status load_data(comparison *c)
{
    const oct_model *a = &c->a.subject.model, *b = &c->b.subject.model;
    const bool models = c->a.subject.kind == OCT_FILE_MODEL && c->b.subject.kind == OCT_FILE_MODEL;
    const oct_model *golden = !models || c->args->option[DATA].given ? NULL
                              : a->certificate.golden_count > 0      ? a
                              : b->certificate.golden_count > 0      ? b
                                                                     : NULL;
    const oct_subject *named = c->a.subject.no_data ? &c->b.subject : &c->a.subject;
    const oct_status status = oct_subject_open_data(named, &c->data);
    if (status != OCT_DATA || !golden) return status;
    const oct_value *in = &golden->program.values[golden->program.inputs[0]];
    oct_log(OCT_LOG_WARN, "%s; comparing on the golden inputs of the model instead",
            oct_error_message(0));
    oct_fail_clear();
    c->golden = golden;
    c->data = (oct_dataset){.count = golden->certificate.golden_count,
                            .h = in->h,
                            .w = in->w,
                            .c = in->c,
                            .classes = golden->classes};
    return OCT_OK;
}

static oct_status choose_samples(comparison *c)
{
    const int64_t wanted = oct_option_count(c->args, SAMPLES, STANDARD_SAMPLES);
    const size_t numel = (size_t)(c->data.h * c->data.w * c->data.c);
    OCT_CHECK(c->data.count > 0, OCT_DATA, "data.path: there are no test images");
    c->samples = oct_min_i64(wanted, c->data.count);
    compared_side *const sides[] = {&c->a, &c->b};
    for (int i = 0; i < 2; i++) {
        const oct_subject *s = &sides[i]->subject;
        if (s->kind == OCT_FILE_MODEL)
            OCT_TRY(oct_model_check_work(&s->model, c->samples, s->large, s->path));
        OCT_TRY(oct_alloc(&sides[i]->input, numel, sizeof(float)));
        if (!c->golden)
            OCT_TRY(oct_sample_subset_create(&sides[i]->subset, &s->recipe, &c->data, wanted));
    }
    return OCT_OK;
}

static oct_status compare_layers(comparison *c)
{
    oct_meter meter;
    const int64_t numel = c->data.h * c->data.w * c->data.c;
    OCT_TRY(oct_comparing_begin(&c->found, &c->a.source, &c->b.source));
    if (!c->args->option[COMMON].given) OCT_TRY(check_layers(c));
    oct_meter_begin(&meter, "compare", "images", c->samples);
    for (int64_t i = 0; i < c->samples; i++) {
        if (!c->golden) {
            OCT_TRY(oct_sample_subset_read(&c->a.subset, i, c->a.input));
            OCT_TRY(oct_sample_subset_read(&c->b.subset, i, c->b.input));
        }
        for (int64_t k = 0; c->golden && k < numel; k++)
            c->a.input[k] = c->b.input[k] = c->golden->golden_input[i * numel + k];
        OCT_TRY(oct_comparing_add(&c->found, c->a.input, c->b.input));
        oct_meter_show(&meter, i + 1);
    }
    oct_meter_end(&meter);
    return OCT_OK;
}

static oct_status compare_sides(comparison *c)
{
    const oct_args *args = c->args;
    const char *data = args->option[DATA].text, *sqnr = args->option[SQNR].text;
    const bool unquantized = args->option[UNQUANTIZED].given;
    if (sqnr)
        OCT_CHECK_ARGS(oct_parse_f64(sqnr, &c->enough_db),
                       "--sqnr '%s': must be a number of dB, such as 20", sqnr);
    c->a.subject.large = c->b.subject.large = args->allow_large;
    OCT_TRY(open_side(&c->a, args->word[0], data));
    OCT_TRY(open_side(&c->b, args->word[1], data));
    OCT_CHECK_ARGS(!unquantized || c->a.subject.kind != OCT_FILE_MODEL,
                   "--unquantized: %s is an int8 model, which has no weights but codes; name a "
                   "checkpoint or a run folder first",
                   c->a.subject.path);
    OCT_TRY(load_data(c));
    OCT_TRY(choose_samples(c));
    OCT_TRY(build_side(&c->a, &c->data, unquantized));
    OCT_TRY(build_side(&c->b, &c->data, false));
    OCT_TRY(compare_layers(c));
    c->exact = !sqnr && strcmp(arithmetic_of(&c->a), arithmetic_of(&c->b)) == 0;
    find_departures(c);
    c->args->json ? print_json(c) : print_table(c);
    return report_departure(c);
}

static oct_status run_compare(const oct_args *args)
{
    comparison c = {.args = args, .enough_db = STANDARD_DB, .first = -1, .worst = -1, .drop = -1};
    omp_set_num_threads((int)oct_machine_cores());
    const oct_status status = compare_sides(&c);
    oct_comparing_end(&c.found);
    close_side(&c.a);
    close_side(&c.b);
    oct_dataset_close(&c.data);
    return status;
}

static const oct_option options[] = {
    [DATA] = OCT_OPTION_DATA,
    [SAMPLES] = OCT_NUMBER(0, "--samples", "N", 1, 1000000,
                           "test images to compare on, spread evenly over the data (default 32)"),
    [SQNR] =
        OCT_TEXT(0, "--sqnr", "DB", "a layer departs below this (default: bit for bit, or 20)"),
    [UNQUANTIZED] = OCT_SWITCH(0, "--unquantized",
                               "the first one with its quantizers off: what rounding alone costs"),
    [COMMON] = OCT_SWITCH(0, "--common", "networks may differ: compare the layers that both have"),
    {0},
};

const oct_command oct_command_compare = {
    .name = "compare",
    .usage = "octet compare A B [--data FOLDER] [--samples N] [--sqnr DB] [--unquantized] "
             "[--common]",
    .summary = "finds the layers in which two checkpoints or int8 models depart",
    .help =
        "A and B are checkpoints, run folders (their newest checkpoint) or int8 models. Both run\n"
        "on the same test images, and each layer's outputs are compared: cosine, signal to noise\n"
        "of B against A in dB, largest error, share of numbers that differ. What is fused is one\n"
        "layer, also in float.\n"
        "\n"
        "Where both compute the same (two of one target, or both in float), a layer departs as\n"
        "soon as a bit differs; otherwise (float against codes, two targets) where its SQNR is\n"
        "below 20 dB. Layers that depart are marked with '!'. Exit status 0: none does; 1: some\n"
        "do.\n"
        "\n"
        "    octet compare runs/a runs/a/model.int8.h5                  # the same bits\n"
        "    octet compare runs/a runs/a/model.int8.h5 --unquantized    # what rounding costs\n"
        "    octet compare runs/x86/model.int8.h5 runs/pow2/model.int8.h5\n",
    .options = options,
    .min_words = 2,
    .max_words = 2,
    .run = run_compare,
};
