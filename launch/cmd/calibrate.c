/* octet calibrate makes an int8 model of float weights without training, and shows what that costs each layer. */
#include "core/base/log.h"
#include "core/base/mem.h"
#include "io/recipe/sensitivity_file.h"
#include "launch/base/output.h"
#include "launch/cmd/calibrate_report.h"
#include "launch/cmd/calibrate_source.h"
#include "launch/cmd/command.h"
#include "launch/cmd/run_recipe.h"
#include "launch/session/build.h"
#include "launch/evaluate/evaluate.h"
#include "launch/session/job.h"
#include "launch/deploy/layer_stats.h"
#include "launch/evaluate/sensitivity_run.h"
#include "quant/convert/convert.h"

enum { BATCHES, SQNR, RANKS };
enum { STANDARD_BATCHES = 2 };

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
    oct_calibrate_report report;
} calibration;

static oct_status read_sqnr(calibration *c)
{
    const char *text = c->args->option[SQNR].text;
    c->sqnr = OCT_CALIBRATE_SQNR;
    if (!c->args->option[SQNR].given) return OCT_OK;
    OCT_CHECK(oct_parse_f64(text, &c->sqnr) && c->sqnr > 0 && c->sqnr < 200, OCT_USAGE,
              "command line: --sqnr '%s': must be a number of dB, such as 30", text);
    return OCT_OK;
}

/* Without weights from elsewhere there would be nothing to calibrate. */
static oct_status check_recipe(oct_recipe *recipe)
{
    OCT_CHECK(
        recipe->init[0] || recipe->model_onnx[0], OCT_USAGE,
        "init: is not given, so the network would have weights that nothing has trained; name "
        "what was trained, such as init=RUN-FOLDER or init=net.safetensors, or use model.onnx");
    OCT_CHECK(!recipe->init_observers, OCT_USAGE,
              "init_observers: is true, but calibrate sets the ranges itself; leave it out");
    recipe->float_epochs = 0;
    recipe->qat_epochs = 0;
    return OCT_OK;
}

/* The float model that the run has started from. */
static oct_status build_start(calibration *c)
{
    oct_text lines = {0};
    OCT_TRY(oct_build_model(&c->start, &c->recipe, &c->train));
    if (c->init.checkpoint.bytes) return oct_checkpoint_load(&c->init.checkpoint, c->start, NULL);
    const oct_status status = oct_init_weights(&c->init, c->start, &c->recipe, &c->train, &lines);
    oct_text_free(&lines);
    return status;
}

static oct_status build_model(calibration *c)
{
    const oct_dataset *d = &c->test;
    bool prepared;
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
    status = build_start(c);
    if (status == OCT_OK) status = build_model(c);
    return oct_session_agree(session, status);
}

/* Each quantizer alone, then all of them layer by layer; the latter takes the float model over. */
static oct_status measure_calibration(calibration *c)
{
    const oct_collective *group = c->session->group;
    const oct_args *args = c->args;
    const int64_t batches =
        args->option[BATCHES].given ? args->option[BATCHES].count : STANDARD_BATCHES;
    const oct_sensitivity_run alone = {c->model, &c->recipe, &c->train, batches};
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

static oct_status deliver_calibration(calibration *c, json_t *result)
{
    c->report.result = result;
    c->report.table = &c->table;
    c->report.wanted = c->sqnr;
    c->report.observer = c->recipe.quant_observer;
    c->report.wide = oct_target_at(c->recipe.quant_target)->wide_codes;
    OCT_TRY(oct_calibrate_judge(&c->report));
    return c->args->json ? oct_calibrate_print_json(&c->report) : oct_calibrate_print(&c->report);
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
    if (status == OCT_OK && c->session->group->rank == 0) status = deliver_calibration(c, result);
    json_decref(result);
    return status;
}

static oct_status run_calibrate(const oct_args *args)
{
    oct_session session;
    calibration c = {.session = &session, .args = args};
    oct_train_catch_signals();
    OCT_TRY(read_sqnr(&c));
    OCT_TRY(oct_calibrate_recipe(&c.recipe, args));
    oct_status status = check_recipe(&c.recipe);
    if (status == OCT_OK) status = oct_session_open(&session, args, c.recipe.ranks_deadline);
    if (status == OCT_OK) status = oct_session_end(&session, calibrate_in_session(&c));
    oct_calibrate_report_free(&c.report);
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
