/* octet train takes the command line of a run, and prints its result as a table or as JSON. */
#include "launch/evaluate/evaluate.h"
#include "launch/cmd/command.h"
#include "launch/cmd/recipe_args.h"
#include "launch/train/training.h"

#include <math.h>

/* The three models of a run: their names, and keys in its result. */
static const struct {
    const char *name, *accuracy, *metrics;
} models[] = {
    {"float", "float_accuracy", "float_metrics"},
    {"QAT", "qat_accuracy", "qat_metrics"},
    {"int8", "int8_accuracy", "metrics"},
};

static void print_metrics(const json_t *result)
{
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(result, "metrics"), name, value)
    {
        const oct_metric *metric = oct_metric_find(name);
        for (size_t i = 0; metric && i < OCT_COUNT(models); i++) {
            char title[64];
            value = json_object_get(json_object_get(result, models[i].metrics), name);
            if (!value) continue; /* a run without a float phase */
            snprintf(title, sizeof title, "%s %.40s", models[i].name, metric->title);
            const double figure = json_is_number(value) ? json_number_value(value) : (double)NAN;
            oct_print("%-28s %s\n", title, oct_figure_text(metric, figure).text);
        }
    }
}

static oct_short_text count_of(const json_t *result, const char *key)
{
    return oct_text_count(json_integer_value(json_object_get(result, key)));
}

void oct_print_result(const json_t *result)
{
    static const char *const last_rows[][2] = {{"checkpoint", "checkpoint"},
                                               {"sha256 of the checkpoint", "checkpoint_sha256"},
                                               {"int8 model", "model"},
                                               {"sha256 of the int8 model", "model_sha256"}};
    const char *phase;
    json_t *rate;
    const bool classes = json_is_number(json_object_get(result, "int8_accuracy"));
    for (size_t i = 0; classes && i < OCT_COUNT(models); i++) {
        const json_t *value = json_object_get(result, models[i].accuracy);
        oct_print("%s%-*s ", models[i].name, 28 - (int)strlen(models[i].name), " accuracy");
        json_is_number(value) ? oct_print("%.2f %%\n", json_number_value(value))
                              : oct_print("not measured\n");
    }
    print_metrics(result);
    const json_t *best = json_object_get(result, "best");
    if (json_string_value(json_object_get(best, "metric")))
        oct_print("%-28s %s, after step %lld\n", "best evaluation",
                  json_string_value(json_object_get(best, "metric")),
                  (long long)json_integer_value(json_object_get(best, "step")));
    oct_print("%-28s %s of %s (%s images, QAT evaluation against int8 model)\n",
              "logits that differ", count_of(result, "logits_differ").text,
              count_of(result, "logits").text, count_of(result, "images").text);
    oct_print("%-28s %s\n%-28s %s\n", "float parameters",
              oct_text_size(json_integer_value(json_object_get(result, "float_bytes"))).text,
              "int8 parameters",
              oct_text_size(json_integer_value(json_object_get(result, "int8_bytes"))).text);
    json_object_foreach(json_object_get(result, "images_per_s"), phase, rate)
    {
        char name[64];
        snprintf(name, sizeof(name), "%s, images/s", phase);
        if (json_is_number(rate))
            oct_print("%-28s %s\n", name, oct_text_count((int64_t)json_number_value(rate)).text);
    }
    for (size_t i = 0; i < OCT_COUNT(last_rows); i++) {
        const char *text = json_string_value(json_object_get(result, last_rows[i][1]));
        if (text) oct_print("%-28s %s\n", last_rows[i][0], text);
    }
}

static oct_status train(oct_session *session, const oct_args *args, oct_recipe *recipe)
{
    json_auto_t *result = NULL;
    OCT_TRY(oct_run_recipe(session, args, recipe, &result));
    if (result && args->json) oct_print_json(json_incref(result));
    if (result && !args->json) oct_print_result(result);
    return OCT_OK;
}

static oct_status run_train(const oct_args *args)
{
    OCT_OWNED(oct_recipe_free) oct_recipe recipe = {0};
    oct_session session;
    oct_train_catch_signals();
    OCT_TRY(oct_recipe_of_args(&recipe, args));
    OCT_TRY(oct_session_open(&session, args, recipe.ranks_deadline));
    return oct_session_end(&session, train(&session, args, &recipe));
}

static const oct_option options[] = {
    OCT_OPTION_RANKS,
    OCT_NUMBER(0, "--restart", "K", 0, 1000,
               "when a rank or host is lost, go on from the newest checkpoint with what is left, K "
               "times at most"),
    OCT_TEXT(
        0, "--hostfile", "FILE",
        "run on these hosts: lines such as node1 slots=16; without --ranks, a rank for each slot"),
    OCT_TEXT('H', "--hosts", "LIST", "the same in a word: node1:16,node2:16"),
    {0},
};

const oct_command oct_command_train = {
    .name = "train",
    .usage = "octet train RECIPE|DATA [key=value ...] [--ranks N]",
    .summary = "trains in float, calibrates, trains quantized, converts; resumes automatically",
    .help =
        "Takes the recipe through its phases and ends with an int8 model and its certificate.\n"
        "DATA (a folder of pictures, a .npz, .npy, .h5 or .csv file) in place of a recipe begins\n"
        "one: task, size and network follow from the data, are printed, and are in the run's\n"
        "recipe.yaml. Everything is written to the folder that the recipe's key `output` names.\n"
        "Interrupted? Repeat the command: it continues from the newest good checkpoint, on any\n"
        "number of ranks, and the result is byte-identical. A finished run prints its results\n"
        "again. model_check_result.txt in the folder says what prepare made of each module, and\n"
        "report.html shows the run: curves, layers, certificate (octet report draws two runs\n"
        "together).\n"
        "\n"
        "key=value changes a key of the recipe for this run; `octet help recipe` lists all keys.\n"
        "Ctrl-C, SIGTERM, SIGUSR1 and, without nohup, a closed terminal stop it after the\n"
        "current step, with a checkpoint and exit status 75. A rank that does not answer is\n"
        "named, and after ranks.deadline seconds the run ends. With --restart K a run that lost\n"
        "a rank, a host or mpirun goes on from the newest checkpoint, K times at most, on the\n"
        "hosts that still answer; any other end is final.\n"
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
