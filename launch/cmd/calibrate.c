/* octet calibrate makes an int8 model of float weights without training, and shows what that costs each layer. */
#include "core/base/log.h"
#include "io/recipe/sensitivity_file.h"
#include "launch/cmd/command.h"
#include "launch/cmd/recipe_args.h"
#include "launch/session/build.h"
#include "launch/evaluate/evaluate.h"
#include "launch/session/job.h"
#include "launch/deploy/layer_stats.h"
#include "launch/train/training.h"
#include "quant/convert/convert.h"

#include <math.h>

enum { BATCHES, SQNR, RANKS };
enum { STANDARD_BATCHES = 2 };

/* dB that the output of an int8 model should have against float: a hundredth of its power in error is 20. */
#define STANDARD_SQNR 30.0

/* What calibration has found out of a layer. */
typedef struct layer_verdict {
    const char *path, *type; /* borrowed from the document */
    double sqnr;             /* of its output, int8 against float; NaN: not measured */
    double weights, output;  /* shares of its quantizers in the network's error; NaN: none */
    bool clips; /* values outside of its codes cost more than rounding, so more bits do not help */
    bool wants_qat, wants_16, wants_range;
} layer_verdict;

/* The run that makes the model, and what is measured of it. */
typedef struct calibration {
    oct_session *session;
    const oct_args *args;
    oct_recipe recipe;
    double wanted_db; /* SQNR of the output */
    oct_dataset train, test;
    oct_init init;
    oct_checkpoint checkpoint;
    oct_module *start, *model; /* float, and prepared with its scales frozen */
    oct_program program;
    oct_sensitivity table;
    json_t *result;        /* of the run */
    double float_accuracy; /* percent; -1: rows have no classes */
    json_t *document;      /* as layers.json, of float's start */
    /* Filled by judge_layers: */
    layer_verdict *layers;
    size_t count;
    double output_db;   /* of the last layer that was measured; NaN: none was */
    double expected_db; /* with what the layers want */
} calibration;

static double number_or_nan(const json_t *value)
{
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* The power of an error, of a signal of power 1. */
static double noise_of(double db)
{
    return pow(10, -db / 10);
}

/* The share of a layer's quantizer (of activations or weights) in the error power of all; NaN: it has none. */
static double share_of(const calibration *c, const char *path, bool activation, double all)
{
    for (size_t i = 0; i < c->table.count; i++) {
        const oct_sensitivity_row *row = &c->table.rows[i];
        if (oct_sensitivity_is_activation(row) == activation && strcmp(row->path, path) == 0)
            return all > 0 ? noise_of(row->sqnr) / all : 0;
    }
    return (double)NAN;
}

/* Whether clipping costs a layer more than rounding: compares the error power of the float values beyond the range of
 * the codes, by their histogram, with scale^2 / 12, that of rounding. */
static bool loses_by_clipping(const json_t *output)
{
    const json_t *histogram = json_object_get(output, "histogram");
    const json_t *counts = json_object_get(histogram, "counts");
    const double scale = number_or_nan(json_object_get(output, "scale"));
    const double zero = number_or_nan(json_object_get(output, "zero_point"));
    const double low = (number_or_nan(json_object_get(output, "qmin")) - zero) * scale;
    const double high = (number_or_nan(json_object_get(output, "qmax")) - zero) * scale;
    const double from = number_or_nan(json_object_get(histogram, "from"));
    const double bin =
        (number_or_nan(json_object_get(histogram, "to")) - from) / (double)json_array_size(counts);
    double clipped = 0, all = 0;
    for (size_t i = 0; i < json_array_size(counts); i++) {
        const double n = json_number_value(json_array_get(counts, i));
        const double x = from + ((double)i + 0.5) * bin;
        const double over = fmax(fmax(low - x, x - high), 0);
        clipped += n * over * over;
        all += n;
    }
    return clipped > all * scale * scale / 12; /* false where there are no codes */
}

/* Finds the largest share in the error whose remedy is not marked yet; *mark: that remedy. NULL: there is none. */
static double *find_largest_share(calibration *c, bool **mark)
{
    const bool wide = oct_target_at(c->recipe.quant_target)->wide_codes;
    double *most = NULL;
    for (size_t i = 0; i < c->count; i++) {
        layer_verdict *l = &c->layers[i];
        const bool marked_weights = l->wants_qat && l->weights >= 0;
        if (!marked_weights && l->weights > 0 && (!most || l->weights > *most)) {
            most = &l->weights;
            *mark = &l->wants_qat;
        }
        bool *wants = l->clips ? &l->wants_range : wide ? &l->wants_16 : &l->wants_qat;
        if (!*wants && l->output > 0 && (!most || l->output > *most)) {
            most = &l->output;
            *mark = wants;
        }
    }
    return most;
}

/* Lists the layers, and marks the fewest quantizers, the largest first, without whose error the output has the SQNR
 * that is wanted: errors are taken to add up, as independent ones do, to the one that was measured. */
static oct_status judge_layers(calibration *c)
{
    const json_t *layers = json_object_get(c->document, "layers");
    double all = 0;
    for (size_t i = 0; i < c->table.count; i++)
        all += noise_of(c->table.rows[i].sqnr);
    c->count = json_array_size(layers);
    c->output_db = (double)NAN;
    OCT_TRY(oct_alloc(&c->layers, c->count, sizeof *c->layers));
    for (size_t i = 0; i < c->count; i++) {
        const json_t *layer = json_array_get(layers, i), *output = json_object_get(layer, "output");
        const char *path = json_string_value(json_object_get(layer, "path"));
        c->layers[i] = (layer_verdict){
            .path = path,
            .type = json_string_value(json_object_get(layer, "type")),
            .sqnr = number_or_nan(json_object_get(output, "sqnr_db")),
            .weights = share_of(c, path, false, all),
            .output = share_of(c, path, true, all),
            .clips = loses_by_clipping(output),
        };
        if (!isnan(c->layers[i].sqnr)) c->output_db = c->layers[i].sqnr;
    }
    c->expected_db = c->output_db;
    if (!(c->output_db < c->wanted_db)) return OCT_OK;
    const double noise = noise_of(c->output_db), enough = noise_of(c->wanted_db);
    double rest = 1;
    while (rest * noise > enough) {
        bool *mark = NULL;
        const double *share = find_largest_share(c, &mark);
        if (!share) break;
        *mark = true;
        rest = fmax(rest - *share, 1e-9);
    }
    c->expected_db = -10 * log10(rest * noise);
    return OCT_OK;
}

static void print_accuracy(const char *name, double accuracy)
{
    if (accuracy >= 0) /* without classes there is none */
        oct_print("%-20s %.2f %%\n", name, accuracy);
}

static void print_number(double value, int width)
{
    isnan(value) ? oct_print(" %*s", width, "-") : oct_print(" %*.1f", width, value);
}

static void print_conclusion(const calibration *c)
{
    const bool cuts =
        strcmp(c->recipe.quant_observer, "min_max") != 0; /* values that it has seen */
    size_t qat = 0, range = 0;
    if (isnan(c->output_db)) return;
    oct_print("\n%-20s %.1f dB, int8 against float\n", "output", c->output_db);
    if (c->output_db >= c->wanted_db) {
        oct_print("%-20s nothing: %g dB were asked for\n", "wanted", c->wanted_db);
        return;
    }
    for (size_t i = 0; i < c->count; i++) {
        qat += c->layers[i].wants_qat;
        range += c->layers[i].wants_range;
    }
    if (qat > 0)
        oct_print("%-20s %zu layer%s: octet train, with the same init\n", "want QAT", qat,
                  qat == 1 ? "" : "s");
    if (range > 0)
        oct_print("%-20s %zu layer%s, whose largest values are clipped: %s\n", "want a wider range",
                  range, range == 1 ? "" : "s",
                  cuts ? "quant.observer=min_max cuts nothing" : "raise calibrate.batches");
    size_t wide = 0;
    for (size_t i = 0; i < c->count; i++)
        if (c->layers[i].wants_16)
            oct_print("%s%s", wide++ ? "," : "want 16 bits         quant.int16_layers=[",
                      c->layers[i].path);
    if (wide > 0) oct_print("]\n");
    oct_print("%-20s about %.1f dB where they add no error\n", "output then", c->expected_db);
}

static void print_text(const calibration *c)
{
    int width = 5;
    const json_t *result = c->result;
    print_accuracy("float accuracy", c->float_accuracy);
    print_accuracy("int8 accuracy", number_or_nan(json_object_get(result, "int8_accuracy")));
    oct_print("%-20s %s of %s (%s images, evaluation with codes against int8 model)\n",
              "logits that differ",
              oct_text_count(json_integer_value(json_object_get(result, "logits_differ"))).text,
              oct_text_count(json_integer_value(json_object_get(result, "logits"))).text,
              oct_text_count(json_integer_value(json_object_get(result, "images"))).text);
    oct_print("%-20s %s\n", "int8 model", json_string_value(json_object_get(result, "model")));
    for (size_t i = 0; i < c->count; i++) {
        const int length = (int)strlen(c->layers[i].path);
        width = length > width ? length : width;
    }
    oct_print("\n%-*s  %-14s %8s %10s %10s  %s\n", width, "layer", "type", "SQNR dB", "weights %",
              "output %", "wants");
    for (size_t i = 0; i < c->count; i++) {
        const layer_verdict *l = &c->layers[i];
        oct_print("%-*s  %-14s", width, l->path, l->type);
        print_number(l->sqnr, 8);
        print_number(100 * l->weights, 10);
        print_number(100 * l->output, 10);
        const char *wants = l->wants_range ? "a wider range" : l->wants_16 ? "16 bits" : "";
        oct_print("%s%s%s\n", l->wants_qat ? "  QAT" : "",
                  !*wants        ? ""
                  : l->wants_qat ? ", "
                                 : "  ",
                  wants);
    }
    print_conclusion(c);
}

static void print_json(const calibration *c)
{
    json_t *layers = json_array(), *all = json_copy(c->result);
    for (size_t i = 0; i < c->count; i++) {
        const layer_verdict *l = &c->layers[i];
        json_array_append_new(
            layers, json_pack("{s:s, s:s, s:o, s:o, s:o, s:b, s:b, s:b}", "path", l->path, "type",
                              l->type, "sqnr_db", oct_json_number(l->sqnr), "weights_share",
                              oct_json_number(l->weights), "output_share",
                              oct_json_number(l->output), "wants_qat", l->wants_qat,
                              "wants_16_bits", l->wants_16, "wants_wider_range", l->wants_range));
    }
    json_object_set_new(all, "kind", json_string("calibration"));
    json_object_set_new(all, "float_accuracy",
                        c->float_accuracy < 0 ? json_null() : json_real(c->float_accuracy));
    json_object_set_new(all, "output_sqnr_db", oct_json_number(c->output_db));
    json_object_set_new(all, "sqnr_db_wanted", json_real(c->wanted_db));
    json_object_set_new(all, "sqnr_db_then", oct_json_number(c->expected_db));
    json_object_set_new(all, "layers", layers);
    oct_print_json(all);
}

/* Builds the float model that the run has started from, and the int8 one that it has made. */
static oct_status build_models(calibration *c)
{
    const oct_dataset *d = &c->test;
    bool prepared;
    OCT_TRY(oct_build_model(&c->start, &c->recipe, &c->train));
    OCT_TRY(c->init.checkpoint.bytes
                ? oct_checkpoint_load(&c->init.checkpoint, c->start, NULL)
                : oct_init_weights(&c->init, c->start, &c->recipe, &c->train, NULL));
    OCT_TRY(oct_build_from_checkpoint(&c->model, &c->checkpoint, &c->recipe, d, &prepared));
    return oct_convert(&c->program, c->model, OCT_EXAMPLE(OCT_SHAPE(1, d->h, d->w, d->c)),
                       oct_target_at(c->recipe.quant_target), NULL);
}

/* Opens what the run has read and written: its data, the weights that it started from, and its last checkpoint. */
static oct_status reopen_run(calibration *c)
{
    oct_session *session = c->session;
    const bool first = session->group->rank == 0;
    oct_job_threads(session, c->recipe.threads);
    OCT_TRY(oct_job_data(session, &c->recipe, OCT_TRAIN, &c->train));
    OCT_TRY(oct_job_data(session, &c->recipe, OCT_TEST, &c->test));
    OCT_TRY(oct_onnx_model_share(session, &c->recipe));
    OCT_TRY(oct_init_share(session, &c->recipe, &c->init));
    OCT_TRY(
        oct_session_agree(session, first ? oct_job_open_checkpoint(&c->checkpoint, c->recipe.output,
                                                                   OCT_FILE_RUN_FOLDER)
                                         : OCT_OK));
    OCT_TRY(oct_job_share(session, &c->checkpoint));
    return oct_session_agree(session, build_models(c));
}

/* Measures the error of each quantizer alone, then of all together in each layer, which frees the float model. */
static oct_status measure_calibration(calibration *c)
{
    const oct_collective *group = c->session->group;
    const oct_layer_stats stats = {.program = &c->program,
                                   .model = c->model,
                                   .reference = &c->checkpoint,
                                   .start = &c->start,
                                   .recipe = &c->recipe,
                                   .data = &c->test};
    oct_scores scores;
    OCT_TRY(oct_session_agree(
        c->session, oct_evaluate(NULL, c->start, group, &c->recipe, &c->test, &scores, NULL)));
    c->float_accuracy = oct_scores_accuracy(&scores);
    OCT_TRY(oct_evaluate_sensitivity(c->model, group, &c->recipe, &c->train,
                                     oct_option_count(c->args, BATCHES, STANDARD_BATCHES),
                                     &c->table));
    return oct_session_agree(c->session, oct_layer_stats_make(&stats, group, &c->document));
}

static oct_status calibrate_in_session(calibration *c)
{
    if (oct_calibrate_guesses(c->args))
        oct_log(OCT_LOG_WARN,
                "data.mean and data.std: are guesses, since an ONNX file does not say "
                "them; give those that the network was trained with");
    OCT_TRY(oct_run_recipe(c->session, c->args, &c->recipe, &c->result));
    oct_log_again(true); /* the run has said what there is to its data */
    oct_status status = reopen_run(c);
    oct_log_again(false);
    if (status == OCT_OK) status = measure_calibration(c);
    if (status != OCT_OK || c->session->group->rank != 0) return status;
    OCT_TRY(judge_layers(c));
    c->args->json ? print_json(c) : print_text(c);
    return OCT_OK;
}

static oct_status run_calibrate(const oct_args *args)
{
    oct_session session;
    const char *sqnr = args->option[SQNR].text;
    calibration c = {.session = &session, .args = args, .wanted_db = STANDARD_SQNR};
    oct_train_catch_signals();
    if (sqnr)
        OCT_CHECK_ARGS(oct_parse_f64(sqnr, &c.wanted_db) && c.wanted_db > 0 && c.wanted_db < 200,
                       "--sqnr '%s': must be a number of dB, such as 30", sqnr);
    OCT_TRY(oct_calibrate_recipe(&c.recipe, args));
    oct_status status = OCT_OK;
    OCT_CHECK_OUT(
        c.recipe.init[0] || c.recipe.model_onnx[0], OCT_USAGE,
        "init: is not given, so the network would have weights that nothing has trained; name "
        "what was trained, such as init=RUN-FOLDER or init=net.safetensors, or use model.onnx");
    OCT_CHECK_OUT(!c.recipe.init_observers, OCT_USAGE,
                  "init_observers: is true, but calibrate sets the ranges itself; leave it out");
    c.recipe.float_epochs = 0;
    c.recipe.qat_epochs = 0;
    OCT_TRY_OUT(oct_session_open(&session, args, c.recipe.ranks_deadline));
    status = oct_session_end(&session, calibrate_in_session(&c));
out:
    oct_free(&c.layers);
    json_decref(c.document);
    json_decref(c.result);
    oct_sensitivity_free(&c.table);
    oct_program_free(&c.program);
    oct_module_destroy(&c.model);
    oct_module_destroy(&c.start);
    oct_checkpoint_close(&c.checkpoint);
    oct_init_close(&c.init);
    oct_dataset_close(&c.train);
    oct_dataset_close(&c.test);
    oct_recipe_free(&c.recipe);
    return status;
}

static const oct_option options[] = {
    [BATCHES] =
        OCT_NUMBER(0, "--batches", "N", 1, 1000000,
                   "batches of training data on which each quantizer is judged alone (default 2)"),
    [SQNR] = OCT_TEXT(
        0, "--sqnr", "DB",
        "signal to noise that the output should have; below it, layers are named that want "
        "more (default 30)"),
    [RANKS] = OCT_OPTION_RANKS,
    {0},
};

const oct_command oct_command_calibrate = {
    .name = "calibrate",
    .usage = "octet calibrate RECIPE|NET.onnx [DATA] [key=value ...] [--ranks N]",
    .summary = "makes an int8 model of float weights without training, and judges each layer",
    .help =
        "Takes the weights that the recipe's init or model.onnx names, watches calibrate.batches\n"
        "batches of the training data, and writes the int8 model with its certificate into the\n"
        "folder that `output` names, as a training without epochs does; interrupted, the same\n"
        "command goes on. Of NET.onnx alone it makes the recipe that `octet import` begins; DATA\n"
        "is then a folder of pictures or another data set of `octet help formats`. Labels are\n"
        "not needed: a plain folder of pictures, a .npy or a .npz of samples alone will do,\n"
        "without the lines of accuracies.\n"
        "\n"
        "The keys of post-training quantization are quant.observer (min_max, moving_average,\n"
        "percentile, mse, histogram), calibrate.batches, quant.equalize, quant.rounding=gptq and\n"
        "quant.bias_correction.\n"
        "\n"
        "The report has for each layer the signal to noise of int8 against float in dB, and the\n"
        "shares of its weights and of its output in the error of the network's output, each\n"
        "quantizer measured alone. Where the output is below --sqnr dB, it names the fewest\n"
        "layers without whose error it would not be: 16 bits for outputs, a wider range where\n"
        "clipping costs more than rounding, QAT for weights.\n"
        "\n"
        "    octet calibrate my.yaml init=runs/a output=runs/a-int8\n"
        "    octet calibrate my.yaml init=net.safetensors quant.observer=mse --ranks 2\n"
        "    octet calibrate net.onnx pictures output=runs/net\n",
    .options = options,
    .min_words = 1,
    .max_words = OCT_ARGS_MAX,
    .parallel = true,
    .recipe = oct_calibrate_recipe,
    .run = run_calibrate,
};
