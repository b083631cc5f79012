/* octet train takes the command line of a run, and prints its result as a table or as JSON. */
#include "launch/evaluate/evaluate.h"
#include "launch/cmd/command.h"
#include "launch/cmd/run_recipe.h"
#include "launch/base/output.h"
#include "launch/base/meter.h"
#include "launch/session/session.h"
#include "launch/cmd/shipped.h"
#include "launch/train/training.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static oct_status print_accuracy(const char *name, const json_t *value)
{
    if (!json_is_number(value)) return oct_print("%-28s not measured\n", name);
    return oct_print("%-28s %.2f %%\n", name, json_number_value(value));
}

/* Prints each metric of the float model, of QAT evaluation and of the int8 model. */
static oct_status print_metrics(const json_t *result)
{
    static const char *const of[][2] = {
        {"float", "float_metrics"}, {"QAT", "qat_metrics"}, {"int8", "metrics"}};
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(result, "metrics"), name, value)
    {
        const oct_metric *metric = oct_metric_find(name);
        for (size_t i = 0; metric && i < OCT_COUNT(of); i++) {
            char title[64], text[OCT_FIGURE_TEXT];
            value = json_object_get(json_object_get(result, of[i][1]), name);
            if (!value) continue; /* a run without a float phase */
            snprintf(title, sizeof(title), "%s %.40s", of[i][0], metric->title);
            const double figure = json_is_number(value) ? json_number_value(value) : (double)NAN;
            OCT_TRY(oct_print("%-28s %s\n", title, oct_figure_text(metric, figure, text)));
        }
    }
    return OCT_OK;
}

static oct_status print_rates(json_t *rates)
{
    const char *phase;
    json_t *rate;
    json_object_foreach(rates, phase, rate)
    {
        char name[64], text[32];
        snprintf(name, sizeof(name), "%s, images/s", phase);
        if (json_is_number(rate))
            OCT_TRY(oct_print("%-28s %s\n", name,
                              oct_text_count((int64_t)json_number_value(rate), text)));
    }
    return OCT_OK;
}

static oct_status print_table(const json_t *result)
{
    char differ[32], logits[32], images[32];
    if (json_is_number(json_object_get(result, "int8_accuracy"))) {
        OCT_TRY(print_accuracy("float accuracy", json_object_get(result, "float_accuracy")));
        OCT_TRY(print_accuracy("QAT accuracy", json_object_get(result, "qat_accuracy")));
        OCT_TRY(print_accuracy("int8 accuracy", json_object_get(result, "int8_accuracy")));
    }
    OCT_TRY(print_metrics(result));
    const json_t *best = json_object_get(result, "best");
    if (json_string_value(json_object_get(best, "metric")))
        OCT_TRY(oct_print("%-28s %s, after step %lld\n", "best evaluation",
                          json_string_value(json_object_get(best, "metric")),
                          (long long)json_integer_value(json_object_get(best, "step"))));
    OCT_TRY(oct_print(
        "%-28s %s of %s (%s images, QAT evaluation against int8 model)\n", "logits that differ",
        oct_text_count(json_integer_value(json_object_get(result, "logits_differ")), differ),
        oct_text_count(json_integer_value(json_object_get(result, "logits")), logits),
        oct_text_count(json_integer_value(json_object_get(result, "images")), images)));
    OCT_TRY(
        oct_print("%-28s %s\n%-28s %s\n", "float parameters",
                  oct_text_size(json_integer_value(json_object_get(result, "float_bytes"))).text,
                  "int8 parameters",
                  oct_text_size(json_integer_value(json_object_get(result, "int8_bytes"))).text));
    OCT_TRY(print_rates(json_object_get(result, "images_per_s")));
    OCT_TRY(oct_print("%-28s %s\n", "checkpoint",
                      json_string_value(json_object_get(result, "checkpoint"))));
    OCT_TRY(
        oct_print("%-28s %s\n", "int8 model", json_string_value(json_object_get(result, "model"))));
    return oct_print("%-28s %s\n", "sha256 of the int8 model",
                     json_string_value(json_object_get(result, "model_sha256")));
}

static oct_status train(oct_session *session, const oct_args *args, oct_recipe *recipe)
{
    json_t *result = NULL;
    OCT_TRY(oct_run_recipe(session, args, recipe, &result));
    if (!result) return OCT_OK;
    if (args->json) return oct_print_json(result);
    const oct_status status = print_table(result);
    json_decref(result);
    return status;
}

static oct_status run_train(const oct_args *args)
{
    oct_recipe recipe;
    oct_session session;
    oct_train_catch_signals();
    OCT_TRY(oct_recipe_of_args(&recipe, args));
    oct_status status = oct_session_open(&session, args, recipe.ranks_deadline);
    if (status == OCT_OK) status = oct_session_end(&session, train(&session, args, &recipe));
    oct_recipe_free(&recipe);
    return status;
}

static const oct_option options[] = {
    {"--ranks", 0, OCT_OPT_COUNT, "N",
     "run on N ranks, started with mpirun; the result is that of one rank", 1, 4096},
    {"--restart", 0, OCT_OPT_COUNT, "K",
     "when a rank or host is lost, go on from the newest checkpoint with what is left, K times at "
     "most",
     0, 1000},
    {"--hostfile", 0, OCT_OPT_TEXT, "FILE",
     "run on these hosts: lines such as node1 slots=16; without --ranks, a rank for each slot", 0,
     0},
    {"--hosts", 'H', OCT_OPT_TEXT, "LIST", "the same in a word: node1:16,node2:16", 0, 0},
    {0},
};

const oct_command oct_command_train = {
    .name = "train",
    .usage = "octet train RECIPE|DATA [key=value ...] [--ranks N]",
    .summary = "trains in float, calibrates, trains quantized, converts; resumes automatically",
    .help =
        "Takes the recipe through its phases and ends with an int8 model and its certificate.\n"
        "DATA (a folder of pictures, a .npz, .npy, .h5 or .csv file) in place of a recipe begins "
        "one:\n"
        "task, size and network follow from the data, are printed, and are in the run's "
        "recipe.yaml.\n"
        "Everything is written to the folder that the recipe's key `output` names.\n"
        "Interrupted? Repeat the command: it continues from the newest good checkpoint, on any\n"
        "number of ranks, and the result is byte-identical. A finished run prints its results "
        "again.\n"
        "model_check_result.txt in the folder says what prepare made of each module, and "
        "report.html\n"
        "shows the run: curves, layers, certificate (octet report draws two runs together).\n"
        "\n"
        "key=value changes a key of the recipe for this run; `octet help recipe` lists all keys.\n"
        "Ctrl-C, SIGTERM, SIGUSR1 and, without nohup, a closed terminal stop it after the current\n"
        "step, with a checkpoint and exit status 75. A rank that does not answer is named, and "
        "after\n"
        "ranks.deadline seconds the run ends. With --restart K a run that lost a rank, a host or\n"
        "mpirun goes on from the newest checkpoint, K times at most, on the hosts that still "
        "answer;\n"
        "any other end is final.\n"
        "\n"
        "    octet train photos/\n"
        "    octet recipes fashion-mnist > my.yaml\n"
        "    octet train my.yaml output=runs/a\n"
        "    octet train my.yaml output=runs/b --ranks 2\n"
        "    octet train my.yaml --hostfile hosts.txt --restart 3\n"
        "    octet train my.yaml output=runs/c init=runs/a float.epochs=0 quant.bits=16\n"
        "    mpirun -n 4 octet train my.yaml qat.epochs=3\n",
    .options = options,
    .min_words = 1,
    .max_words = OCT_ARGS_MAX,
    .parallel = true,
    .recipe = oct_recipe_of_args,
    .run = run_train,
};
