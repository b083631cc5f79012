/* octet calibrate makes an int8 model of float weights without training, and shows what that costs each layer. */
#include "core/base/log.h"
#include "core/base/mem.h"
#include "io/recipe/sensitivity_file.h"
#include "launch/base/meter.h"
#include "launch/base/output.h"
#include "launch/cmd/command.h"
#include "launch/cmd/run_recipe.h"
#include "launch/cmd/shipped.h"
#include "launch/session/build.h"
#include "launch/evaluate/evaluate.h"
#include "launch/session/job.h"
#include "launch/deploy/layer_stats.h"
#include "launch/evaluate/sensitivity_run.h"
#include "quant/convert/convert.h"

#include <math.h>
#include <string.h>

enum { BATCHES, SQNR, RANKS };
enum { STANDARD_BATCHES = 2 };

/* dB that the output of an int8 model should have against float: a hundredth of its power in error is 20. */
#define STANDARD_SQNR 30.0

/* What calibration has found out of a layer. */
typedef struct layer_verdict {
    const char *path, *type; /* borrowed from the document */
    double sqnr;             /* of its output, int8 against float; NaN: not measured */
    double weights,
        output; /* shares of its quantizers in the error of the network; NaN: it has none */
    bool
        clips; /* what is outside of its codes costs more than rounding: more bits would not help */
    bool wants_qat, wants_16, wants_range;
} layer_verdict;

typedef struct report {
    double float_accuracy; /* percent; -1: rows have no classes */
    json_t *document;      /* as layers.json, of float's start; owned */
    json_t *result;        /* of the run; borrowed */
    const oct_sensitivity *table;
    double wanted;        /* dB of the output */
    bool wide;            /* the target has 16-bit codes */
    const char *observer; /* quant.observer */
    /* Filled by judge_layers: */
    layer_verdict *layers;
    size_t count;
    double sqnr;     /* of the last layer that was measured */
    double expected; /* with what is wanted, dB */
} report;

static double known(const json_t *value)
{
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static double noise_of(double db)
{
    return pow(10, -db / 10);
}

/* The share of a layer's quantizer in the error of all; NaN: it has none of this kind. */
static double share_of(const report *r, const char *path, bool activation, double all)
{
    for (size_t i = 0; i < r->table->count; i++) {
        const oct_sensitivity_row *row = &r->table->rows[i];
        if (oct_sensitivity_is_activation(row) == activation && strcmp(row->path, path) == 0)
            return all > 0 ? noise_of(row->sqnr) / all : 0;
    }
    return (double)NAN;
}

/* Compares the power of what is outside of the codes, by the histogram of the layer's float values, with that of
 * rounding, scale^2 / 12 each. */
static bool loses_by_clipping(const json_t *output)
{
    const json_t *histogram = json_object_get(output, "histogram");
    const json_t *counts = json_object_get(histogram, "counts");
    const double scale = known(json_object_get(output, "scale"));
    const double zero = known(json_object_get(output, "zero_point"));
    const double low = (known(json_object_get(output, "qmin")) - zero) * scale;
    const double high = (known(json_object_get(output, "qmax")) - zero) * scale;
    const double from = known(json_object_get(histogram, "from"));
    const double bin =
        (known(json_object_get(histogram, "to")) - from) / (double)json_array_size(counts);
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

static oct_status list_layers(report *r)
{
    const json_t *layers = json_object_get(r->document, "layers");
    double all = 0;
    for (size_t i = 0; i < r->table->count; i++)
        all += noise_of(r->table->rows[i].sqnr);
    r->count = json_array_size(layers);
    r->sqnr = (double)NAN;
    OCT_TRY(oct_alloc(&r->layers, r->count, sizeof *r->layers));
    for (size_t i = 0; i < r->count; i++) {
        const json_t *layer = json_array_get(layers, i);
        const char *path = json_string_value(json_object_get(layer, "path"));
        r->layers[i] = (layer_verdict){
            .path = path,
            .type = json_string_value(json_object_get(layer, "type")),
            .sqnr = known(json_object_get(json_object_get(layer, "output"), "sqnr_db")),
            .weights = share_of(r, path, false, all),
            .output = share_of(r, path, true, all),
            .clips = loses_by_clipping(json_object_get(layer, "output")),
        };
        if (!isnan(r->layers[i].sqnr)) r->sqnr = r->layers[i].sqnr;
    }
    return OCT_OK;
}

/* The largest share that is not marked yet; NULL: there is none. */
static double *largest(report *r, bool **mark)
{
    double *most = NULL;
    for (size_t i = 0; i < r->count; i++) {
        layer_verdict *l = &r->layers[i];
        const bool marked_weights = l->wants_qat && l->weights >= 0;
        if (!marked_weights && l->weights > 0 && (!most || l->weights > *most)) {
            most = &l->weights;
            *mark = &l->wants_qat;
        }
        bool *wants = l->clips ? &l->wants_range : r->wide ? &l->wants_16 : &l->wants_qat;
        if (!*wants && l->output > 0 && (!most || l->output > *most)) {
            most = &l->output;
            *mark = wants;
        }
    }
    return most;
}

/* Marks the fewest quantizers, the largest first, without whose error the output has what is wanted: errors are taken
 * to add up, as independent ones do, to the one that was measured. */
static oct_status judge_layers(report *r)
{
    OCT_TRY(list_layers(r));
    r->expected = r->sqnr;
    if (!(r->sqnr < r->wanted)) return OCT_OK;
    const double noise = noise_of(r->sqnr), enough = noise_of(r->wanted);
    double rest = 1;
    while (rest * noise > enough) {
        bool *mark = NULL;
        const double *share = largest(r, &mark);
        if (!share) break;
        *mark = true;
        rest = fmax(rest - *share, 1e-9);
    }
    r->expected = -10 * log10(rest * noise);
    return OCT_OK;
}

/* For people. */

static oct_status print_accuracy(const char *name, double accuracy)
{
    if (!(accuracy >= 0)) return OCT_OK; /* without classes there is none */
    return oct_print("%-20s %.2f %%\n", name, accuracy);
}

static oct_status print_number(double value, int digits, int width)
{
    if (isnan(value)) return oct_print(" %*s", width, "-");
    return oct_print(" %*.*f", width, digits, value);
}

static oct_status print_table(const report *r)
{
    int width = 5;
    for (size_t i = 0; i < r->count; i++) {
        const int length = (int)strlen(r->layers[i].path);
        width = length > width ? length : width;
    }
    OCT_TRY(oct_print("\n%-*s  %-14s %8s %10s %10s  %s\n", width, "layer", "type", "SQNR dB",
                      "weights %", "output %", "wants"));
    for (size_t i = 0; i < r->count; i++) {
        const layer_verdict *l = &r->layers[i];
        OCT_TRY(oct_print("%-*s  %-14s", width, l->path, l->type));
        OCT_TRY(print_number(l->sqnr, 1, 8));
        OCT_TRY(print_number(100 * l->weights, 1, 10));
        OCT_TRY(print_number(100 * l->output, 1, 10));
        OCT_TRY(oct_print("%s%s%s\n", l->wants_qat ? "  QAT" : "",
                          l->wants_qat && (l->wants_range || l->wants_16) ? ", "
                          : l->wants_range || l->wants_16                 ? "  "
                                                                          : "",
                          l->wants_range ? "a wider range"
                          : l->wants_16  ? "16 bits"
                                         : ""));
    }
    return OCT_OK;
}

static oct_status print_conclusion(const report *r)
{
    size_t qat = 0, range = 0;
    if (isnan(r->sqnr)) return OCT_OK;
    OCT_TRY(oct_print("\n%-20s %.1f dB, int8 against float\n", "output", r->sqnr));
    if (r->sqnr >= r->wanted)
        return oct_print("%-20s nothing: %g dB were asked for\n", "wanted", r->wanted);
    for (size_t i = 0; i < r->count; i++) {
        qat += r->layers[i].wants_qat;
        range += r->layers[i].wants_range;
    }
    if (qat > 0)
        OCT_TRY(oct_print("%-20s %zu layer%s: octet train, with the same init\n", "want QAT", qat,
                          qat == 1 ? "" : "s"));
    if (range > 0)
        OCT_TRY(oct_print("%-20s %zu layer%s, whose largest values are clipped: %s\n",
                          "want a wider range", range, range == 1 ? "" : "s",
                          strcmp(r->observer, "min_max") == 0 /* it cuts nothing that it has seen */
                              ? "raise calibrate.batches"
                              : "quant.observer=min_max cuts nothing"));
    size_t wide = 0;
    for (size_t i = 0; i < r->count; i++)
        if (r->layers[i].wants_16)
            OCT_TRY(oct_print("%s%s", wide++ ? "," : "want 16 bits         quant.int16_layers=[",
                              r->layers[i].path));
    if (wide > 0) OCT_TRY(oct_print("]\n"));
    return oct_print("%-20s about %.1f dB where they add no error\n", "output then", r->expected);
}

static oct_status print_text(const report *r)
{
    const json_t *result = r->result;
    char differ[32], logits[32], images[32];
    OCT_TRY(print_accuracy("float accuracy", r->float_accuracy));
    OCT_TRY(print_accuracy("int8 accuracy", known(json_object_get(result, "int8_accuracy"))));
    OCT_TRY(oct_print(
        "%-20s %s of %s (%s images, evaluation with codes against int8 model)\n",
        "logits that differ",
        oct_text_count(json_integer_value(json_object_get(result, "logits_differ")), differ),
        oct_text_count(json_integer_value(json_object_get(result, "logits")), logits),
        oct_text_count(json_integer_value(json_object_get(result, "images")), images)));
    OCT_TRY(
        oct_print("%-20s %s\n", "int8 model", json_string_value(json_object_get(result, "model"))));
    OCT_TRY(print_table(r));
    return print_conclusion(r);
}

/* For programs. */

static oct_status print_json(const report *r)
{
    json_t *layers = json_array(), *all = json_copy(r->result);
    for (size_t i = 0; i < r->count; i++) {
        const layer_verdict *l = &r->layers[i];
        json_array_append_new(
            layers, json_pack("{s:s, s:s, s:o, s:o, s:o, s:b, s:b, s:b}", "path", l->path, "type",
                              l->type, "sqnr_db", oct_json_number(l->sqnr), "weights_share",
                              oct_json_number(l->weights), "output_share",
                              oct_json_number(l->output), "wants_qat", l->wants_qat,
                              "wants_16_bits", l->wants_16, "wants_wider_range", l->wants_range));
    }
    json_object_set_new(all, "kind", json_string("calibration"));
    json_object_set_new(all, "float_accuracy",
                        r->float_accuracy < 0 ? json_null() : json_real(r->float_accuracy));
    json_object_set_new(all, "output_sqnr_db", oct_json_number(r->sqnr));
    json_object_set_new(all, "sqnr_db_wanted", json_real(r->wanted));
    json_object_set_new(all, "sqnr_db_then", oct_json_number(r->expected));
    json_object_set_new(all, "layers", layers);
    return oct_print_json(all);
}

/* The run that makes the model, and what is measured of it. */

typedef struct calibration {
    oct_session *session;
    const oct_args *args;
    oct_recipe recipe;
    double sqnr; /* wanted of the output, dB */
    oct_dataset train, test;
    oct_init init;
    oct_checkpoint checkpoint;
    oct_module *start, *model; /* float, and prepared with its scales frozen */
    oct_program program;
    oct_sensitivity table;
    report report;
} calibration;

/* Builds the float model that the run has started from, and the int8 one that it has made. */
static oct_status build_models(calibration *c)
{
    const oct_dataset *d = &c->test;
    oct_text lines = {0};
    bool prepared;
    OCT_TRY(oct_build_model(&c->start, &c->recipe, &c->train));
    const oct_status status =
        c->init.checkpoint.bytes
            ? oct_checkpoint_load(&c->init.checkpoint, c->start, NULL)
            : oct_init_weights(&c->init, c->start, &c->recipe, &c->train, &lines);
    oct_text_free(&lines);
    OCT_TRY(status);
    OCT_TRY(oct_build_from_checkpoint(&c->model, &c->checkpoint, &c->recipe, d, &prepared));
    return oct_convert(&c->program, c->model, OCT_EXAMPLE(OCT_SHAPE(1, d->h, d->w, d->c)),
                       oct_target_at(c->recipe.quant_target), NULL);
}

/* Opens again what the run has read and written: its data, its start and its end. */
static oct_status open_all(calibration *c)
{
    oct_session *session = c->session;
    oct_status status = OCT_OK;
    oct_job_threads(session, c->recipe.threads);
    OCT_TRY(oct_job_data(session, &c->recipe, OCT_TRAIN, &c->train));
    OCT_TRY(oct_job_data(session, &c->recipe, OCT_TEST, &c->test));
    OCT_TRY(oct_onnx_model_share(session, &c->recipe));
    OCT_TRY(oct_init_share(session, &c->recipe, &c->init));
    if (session->group->rank == 0)
        status = oct_job_checkpoint(&c->checkpoint, c->recipe.output, OCT_FILE_RUN_FOLDER);
    OCT_TRY(oct_session_agree(session, status));
    OCT_TRY(oct_job_share(session, &c->checkpoint));
    return oct_session_agree(session, build_models(c));
}

/* Each quantizer alone, then all of them layer by layer; the latter takes the float model over. */
static oct_status measure_calibration(calibration *c)
{
    const oct_collective *group = c->session->group;
    const oct_sensitivity_run alone = {c->model, &c->recipe, &c->train,
                                       oct_option_count(c->args, BATCHES, STANDARD_BATCHES)};
    const oct_layer_stats stats = {.program = &c->program,
                                   .model = c->model,
                                   .reference = &c->checkpoint,
                                   .start = &c->start,
                                   .recipe = &c->recipe,
                                   .data = &c->test};
    oct_scores scores;
    OCT_TRY(oct_session_agree(c->session,
                              oct_evaluate(c->start, group, &c->recipe, &c->test, &scores, NULL)));
    c->report.float_accuracy = oct_scores_accuracy(&scores);
    OCT_TRY(oct_sensitivity_run_it(&alone, c->session, &c->table));
    return oct_session_agree(c->session, oct_layer_stats_make(&stats, group, &c->report.document));
}

static oct_status calibrate_in_session(calibration *c)
{
    json_t *result = NULL;
    if (oct_calibrate_guesses(c->args))
        oct_log(OCT_LOG_WARN,
                "data.mean and data.std: are guesses, since an ONNX file does not say "
                "them; give those that the network was trained with");
    OCT_TRY(oct_run_recipe(c->session, c->args, &c->recipe, &result));
    oct_log_again(true); /* the run has said what there is to its data */
    oct_status status = open_all(c);
    oct_log_again(false);
    if (status == OCT_OK) status = measure_calibration(c);
    if (status == OCT_OK && c->session->group->rank == 0) {
        report *r = &c->report;
        r->result = result;
        r->table = &c->table;
        r->wanted = c->sqnr;
        r->observer = c->recipe.quant_observer;
        r->wide = oct_target_at(c->recipe.quant_target)->wide_codes;
        status = judge_layers(r);
        if (status == OCT_OK) status = c->args->json ? print_json(r) : print_text(r);
    }
    json_decref(result);
    return status;
}

static oct_status run_calibrate(const oct_args *args)
{
    oct_session session;
    const char *sqnr = args->option[SQNR].text;
    calibration c = {.session = &session, .args = args, .sqnr = STANDARD_SQNR};
    oct_train_catch_signals();
    if (sqnr)
        OCT_CHECK(oct_parse_f64(sqnr, &c.sqnr) && c.sqnr > 0 && c.sqnr < 200, OCT_USAGE,
                  "command line: --sqnr '%s': must be a number of dB, such as 30", sqnr);
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
    oct_free(&c.report.layers);
    json_decref(c.report.document);
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
    [BATCHES] = {"--batches", 0, OCT_OPT_COUNT, "N",
                 "batches of training data on which each quantizer is judged alone (default 2)", 1,
                 1000000},
    [SQNR] = {"--sqnr", 0, OCT_OPT_TEXT, "DB",
              "signal to noise that the output should have; below it, layers are named that want "
              "more (default 30)",
              0, 0},
    [RANKS] = {"--ranks", 0, OCT_OPT_COUNT, "N",
               "run on N ranks, started with mpirun; the result is that of one rank", 1, 4096},
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
        "is then a folder of pictures or another data set of `octet help formats`. Labels are not\n"
        "needed: a plain folder of pictures, a .npy or a .npz of samples alone will do, without\n"
        "the lines of accuracies.\n"
        "\n"
        "The keys of post-training quantization are quant.observer (min_max, moving_average,\n"
        "percentile, mse, histogram), calibrate.batches, quant.equalize, quant.rounding=gptq and\n"
        "quant.bias_correction.\n"
        "\n"
        "The report has for each layer the signal to noise of int8 against float in dB, and the\n"
        "shares of its weights and of its output in the error of the network's output, each\n"
        "quantizer measured alone. Where the output is below --sqnr dB, it names the fewest "
        "layers\n"
        "without whose error it would not be: 16 bits for outputs, a wider range where clipping "
        "costs\n"
        "more than rounding, QAT for weights.\n"
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
