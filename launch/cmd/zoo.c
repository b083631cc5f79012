/* octet zoo lists networks that anybody can make again, shows one, or trains one and compares its bytes with those of the
 * list, launch/zoo/zoo.json. Beside the list are int8 models, which commands take as zoo:NAME. */
#include "io/file/file.h"
#include "launch/cmd/command.h"
#include "launch/cmd/recipe_args.h"
#include "launch/evaluate/evaluate.h"
#include "launch/runfolder/run_folder.h"
#include "launch/train/training.h"

#include <math.h>

enum { NAMES_MAX = 64 };
#define FREE_KEYS " data.path, output, threads, checkpoint.every, checkpoint.keep, log.every"

static const char *text_of(const json_t *entry, const char *key)
{
    const char *text = json_string_value(json_object_get(entry, key));
    return text ? text : "-";
}

static bool is_same(const json_t *a, const json_t *b, const char *key)
{
    return strcmp(text_of(a, key), text_of(b, key)) == 0;
}

/* Reads the list, and finds the entry of a name, borrowed; NULL: none. */
static oct_status read_list(json_t **list, const char *name, json_t **entry)
{
    char folder[OCT_SHARED_PATH], path[OCT_SHARED_PATH + 80], hint[OCT_HINT_BYTES];
    const char *names[NAMES_MAX];
    size_t i, count = 0;
    json_t *each;
    snprintf(path, sizeof path, "%s/zoo.json", oct_shared_folder("zoo", folder));
    *list = json_load_file(path, 0, NULL);
    OCT_CHECK(*list, OCT_DATA, "%s: the list of the zoo is missing or damaged", path);
    json_array_foreach(*list, i, each)
    {
        snprintf(path, sizeof path, "%s/%.64s.int8.h5", folder, text_of(each, "name"));
        if (oct_file_exists(path)) json_object_set_new(each, "model", json_string(path));
        if (count < NAMES_MAX) names[count++] = text_of(each, "name");
        if (name && strcmp(text_of(each, "name"), name) == 0) *entry = each;
    }
    OCT_CHECK_ARGS(!name || *entry, "the zoo has no '%s'; %s", name,
                   oct_did_you_mean(hint, name, names, count, "octet zoo lists its networks"));
    return OCT_OK;
}

oct_status oct_zoo_paths(oct_args *args)
{
    static char path[2][OCT_SHARED_PATH];
    size_t found = 0;
    for (size_t i = 0; i < args->num_words && found < OCT_COUNT(path); i++) {
        json_auto_t *list = NULL;
        json_t *entry = NULL;
        if (strncmp(args->word[i], "zoo:", 4) != 0) continue;
        OCT_TRY(read_list(&list, args->word[i] + 4, &entry));
        OCT_CHECK(json_object_get(entry, "model"), OCT_DATA,
                  "%s: its int8 model does not come with Octet; octet zoo make %s trains it",
                  args->word[i], text_of(entry, "name"));
        snprintf(path[found], sizeof path[found], "%s", text_of(entry, "model"));
        args->word[i] = path[found++];
    }
    return OCT_OK;
}

static void print_list(const json_t *list)
{
    static const char *const keys[][2] = {{"float_metrics", "float_accuracy"},
                                          {"qat_metrics", "qat_accuracy"},
                                          {"metrics", "int8_accuracy"}};
    size_t i;
    json_t *entry;
    oct_print("%-20s %-9s %-9s %-9s %-18s %-8s %-12s %s\n", "NAME", "FLOAT", "QAT", "INT8",
              "MEASURED", "SIZE", "CHECKPOINT", "INT8 MODEL");
    json_array_foreach(list, i, entry)
    {
        const oct_metric *metric = oct_metric_find("top1"); /* or the first of what was asked for */
        oct_print("%-20s", text_of(entry, "name"));
        for (size_t m = 0; m < OCT_COUNT(keys); m++) {
            const json_t *value = json_object_get(entry, keys[m][1]);
            void *first = json_object_iter(json_object_get(entry, keys[m][0]));
            if (first) metric = oct_metric_find(json_object_iter_key(first));
            if (first) value = json_object_iter_value(first);
            const double figure = json_is_number(value) ? json_number_value(value) : (double)NAN;
            oct_print(" %-9s", oct_figure_text(metric, figure).text);
        }
        oct_print(" %-18s %-8s %.12s %.12s\n", metric->title,
                  oct_text_size(json_integer_value(json_object_get(entry, "int8_bytes"))).text,
                  text_of(entry, "checkpoint_sha256"), text_of(entry, "model_sha256"));
    }
    oct_print(
        "\nThe last two: how the SHA-256 of each begins. octet zoo NAME shows one, octet zoo "
        "make NAME\ntrains it again and compares; commands take its int8 model as zoo:NAME.\n");
}

static void print_entry(const json_t *entry)
{
    size_t i;
    json_t *change;
    oct_print("%-28s %s\n%-28s %s\n%-28s %s", "network", text_of(entry, "about"), "data",
              text_of(entry, "data"), "recipe", text_of(entry, "recipe"));
    json_array_foreach(json_object_get(entry, "changes"), i, change)
        oct_print(" %s", json_string_value(change));
    oct_print("\n%-28s %s\n%-28s %s\n", "made by octet", text_of(entry, "version"),
              "sha256 of the training data", text_of(entry, "data_sha256"));
    oct_print_result(entry);
}

/* Reads the recipe of an entry with its changes, and keys of the user that change no bit; the data must be there. */
static oct_status zoo_recipe(oct_recipe *recipe, const oct_args *args)
{
    char folder[OCT_SHARED_PATH], path[OCT_SHARED_PATH + 80], output[100], key[64];
    const char *word[OCT_ARGS_MAX] = {output};
    size_t i, count = 1;
    json_auto_t *list = NULL;
    json_t *entry = NULL, *change;
    OCT_CHECK_ARGS(args->num_words > 1 && strcmp(args->word[0], "make") == 0,
                   "NAME is missing; usage: octet zoo make NAME [key=value ...]");
    OCT_TRY(read_list(&list, args->word[1], &entry));
    snprintf(output, sizeof output, "output=runs/zoo/%.64s", args->word[1]);
    json_array_foreach(json_object_get(entry, "changes"), i, change) if (count < OCT_COUNT(word))
        word[count++] = json_string_value(change);
    for (i = 2; i < args->num_words && count < OCT_COUNT(word); i++) {
        snprintf(key, sizeof key, " %.*s,", (int)strcspn(args->word[i], "="), args->word[i]);
        OCT_CHECK_ARGS(strstr(FREE_KEYS ",", key),
                       "'%s': octet zoo make takes" FREE_KEYS
                       ", which change no bit; octet train takes all keys",
                       args->word[i]);
        word[strcmp(key, " output,") == 0 ? 0 : count++] = args->word[i];
    }
    snprintf(path, sizeof path, "%s/%s.yaml", oct_shared_folder("recipes", folder),
             text_of(entry, "recipe"));
    OCT_TRY(oct_recipe_of_words(recipe, path, word, count));
    const oct_dataset_format *format =
        oct_registry_at(&oct_dataset_id_table, (size_t)recipe->data_format);
    const char *data = recipe->data_path[0] ? recipe->data_path : format->default_path;
    if (data && oct_file_exists(data)) return OCT_OK;
    return oct_fail(OCT_DATA, "%s: there are no such data; write data.path=PATH\n%s\n(recipes: %s)",
                    data ? data : "data.path", text_of(entry, "data"), folder);
}

/* On rank 0: prints what a run has made, as an entry, and compares both SHA-256 with those of the list. */
static oct_status compare_result(const oct_args *args, json_t *result)
{
    json_auto_t *list = NULL;
    json_t *entry = NULL;
    OCT_OWNED(oct_free) char *path = NULL;
    char hex[65];
    size_t size;
    OCT_TRY(read_list(&list, args->word[1], &entry));
    OCT_TRY(oct_file_sha256(text_of(result, "checkpoint"), &size, hex));
    OCT_TRY(oct_run_path(text_of(result, "output"), "run.json", &path));
    json_auto_t *run = json_load_file(path, 0, NULL);
    const json_t *sessions = json_object_get(run, "sessions");
    const json_t *last = json_array_get(sessions, json_array_size(sessions) - 1);
    const json_t *train = json_object_get(json_object_get(last, "data"), "train");
    json_auto_t *made = json_deep_copy(entry);
    json_object_update(made, result);
    json_object_set_new(made, "checkpoint_sha256", json_string(hex));
    json_object_set(made, "data_sha256", json_object_get(train, "contents"));
    json_object_set(made, "version", json_object_get(last, "version"));
    args->json ? oct_print_json(json_incref(made)) : print_entry(made);
    const bool same_checkpoint = is_same(entry, made, "checkpoint_sha256");
    OCT_CHECK(same_checkpoint && is_same(entry, made, "model_sha256"), OCT_MISMATCH,
              "zoo: %s: %s; %s\ncheckpoint  %s\nin the list %s\nint8 model  %s\nin the list %s",
              args->word[1],
              same_checkpoint ? "the checkpoint is that of the list, the int8 model is another"
                              : "the last checkpoint is another than that of the list",
              !is_same(entry, made, "data_sha256") ? "so are the training data"
              : !is_same(entry, made, "version")
                  ? "another version of octet made that, and a new one may change bits"
                  : "data and version are the same, so please report this",
              hex, text_of(entry, "checkpoint_sha256"), text_of(made, "model_sha256"),
              text_of(entry, "model_sha256"));
    if (!args->json) oct_print("%-28s the same bytes\n", "compared with the list");
    return OCT_OK;
}

static oct_status run_zoo(const oct_args *args)
{
    json_auto_t *list = NULL, *result = NULL;
    json_t *entry = NULL;
    if (args->num_words > 0 && strcmp(args->word[0], "make") == 0) {
        OCT_OWNED(oct_recipe_free) oct_recipe recipe = {0};
        oct_session session;
        oct_train_catch_signals();
        OCT_TRY(zoo_recipe(&recipe, args));
        OCT_TRY(oct_session_open(&session, args, recipe.ranks_deadline));
        oct_status status = oct_run_recipe(&session, args, &recipe, &result);
        if (status == OCT_OK)
            status = oct_session_agree(&session, result ? compare_result(args, result) : OCT_OK);
        return oct_session_end(&session, status);
    }
    OCT_CHECK_ARGS(args->num_words < 2, "unexpected argument '%s'; usage: %s", args->word[1],
                   oct_command_zoo.usage);
    OCT_TRY(read_list(&list, args->word[0], &entry));
    if (args->json)
        oct_print_json(json_incref(entry ? entry : list));
    else
        entry ? print_entry(entry) : print_list(list);
    return OCT_OK;
}

static const oct_option options[] = {OCT_OPTION_RANKS, {0}};

const oct_command oct_command_zoo = {
    .name = "zoo",
    .usage = "octet zoo [NAME]\n"
             "       octet zoo make NAME [key=value ...] [--ranks N]",
    .summary = "lists networks that anybody can make again, bit for bit, or makes one",
    .help =
        "Without NAME: networks, what was measured on their test data, and how the SHA-256 of\n"
        "their last checkpoints and int8 models begin. With NAME: all of one. make trains it\n"
        "again, on any number of ranks, and compares both SHA-256 with the list: exit status 0\n"
        "where both are the same, 1 with what differs and why it may. Its keys change no bit:\n"
        "data.path, output, threads, checkpoint.every, checkpoint.keep, log.every.\n"
        "\n"
        "Small int8 models come with Octet: what takes a model takes zoo:NAME, too.\n"
        "\n"
        "    octet zoo make fashion-mnist --ranks 2\n"
        "    octet zoo make cifar10-resnet20 data.path=cifar-10-batches-bin --ranks 2\n"
        "    octet run zoo:cifar10-resnet20 --input photo.png\n",
    .options = options,
    .max_words = OCT_ARGS_MAX,
    .parallel = true,
    .recipe = zoo_recipe,
    .run = run_zoo,
};
