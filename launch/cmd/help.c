/* octet help prints the overview, the help of a command, or one of the lists. Every text is made from
 * the list that it describes, so help cannot lag after. It never starts a rank. */
#include "io/dataset/dataset.h"
#include "launch/cmd/command.h"
#include "launch/model/model.h"
#include <octet/version.h>

static void print_models(void)
{
    for (size_t i = 0; i < oct_registry_count(&oct_model_table); i++) {
        const oct_model_spec *spec = oct_registry_at(&oct_model_table, i);
        oct_print("%-18s %s\n", spec->name, spec->help);
    }
    oct_print("\nThese are values of the recipe key model.name. A model of your own is a file in "
              "launch/model and a\nline in model_list.def, or comes with a plug-in (key plugins, "
              "octet/plugin.h).\n");
}

static void print_formats(void)
{
    for (size_t i = 0; i < oct_registry_count(&oct_dataset_id_table); i++) {
        const oct_dataset_format *format = oct_registry_at(&oct_dataset_id_table, i);
        oct_print("%-12s %s\n", format->name, format->files);
        oct_print("%-12s data.path: %s\n", "",
                  format->default_path ? format->default_path : "must be given");
    }
    oct_print(
        "\nFor the recipe keys data.format and data.path.\n"
        "\nAn IDX file is a header of 32-bit numbers, the high byte first, and then the data:\n"
        "  images   00 00 08 03, count, height, width; then the pixels row by row, a byte each\n"
        "  labels   00 00 08 01, count; then one byte each (0b, 0c in place of 08: 16, 32 bits)\n");
}

/* Prints the help on a key, a section of keys, or all of them (NULL); *found: there is some. */
static oct_status print_recipe_key(const char *key, bool *found)
{
    OCT_OWNED(oct_text_free) oct_text text = {0};
    OCT_TRY(oct_recipe_help(key, &text));
    *found = text.length > 0;
    if (*found) oct_print("%s", text.data);
    return OCT_OK;
}

static const struct topic {
    const char *name, *what;
    void (*print)(void); /* NULL: the keys of a recipe */
} topics[] = {
    {"recipe", "every key of a recipe: type, range, default", NULL},
    {"models", "the models by name", print_models},
    {"formats", "the data set formats", print_formats},
};

static void print_overview(void)
{
    oct_print("octet %s: quantization-aware training over MPI; what you train is what you deploy\n"
              "\nUsage: octet COMMAND ...\n\nCommands\n",
              OCT_VERSION);
    for (size_t i = 0; i < oct_command_count(); i++)
        oct_print("  %-12s %s\n", oct_command_at(i)->name, oct_command_at(i)->summary);
    oct_print("\nMore: octet help COMMAND, octet help KEY (such as qat.lr), and\n");
    for (size_t i = 0; i < OCT_COUNT(topics); i++)
        oct_print("  octet help %-8s %s\n", topics[i].name, topics[i].what);
    oct_print("\nFirst steps\n"
              "  octet recipes                            the shipped recipes\n"
              "  octet recipes fashion-mnist > my.yaml    one of them, to edit\n"
              "  octet check my.yaml                      checks it before anything starts\n"
              "  octet train my.yaml --ranks 2\n"
              "\nExit status\n");
#define X(name, exit, meaning)                                                                     \
    if (OCT_##name != OCT_PEER) oct_print("  %-3d %s\n", exit, meaning);
    OCT_STATUS_LIST(X)
#undef X
    oct_print("A reader that closes the pipe early, as in octet ... | head, is no error.\n");
}

static void print_options(const oct_option *options)
{
    for (const oct_option *o = options; o && o->name; o++) {
        char left[64];
        const int length =
            snprintf(left, sizeof left, "%s%s%.1s", o->name, o->letter ? ", -" : "", &o->letter);
        if (o->argument) snprintf(left + length, sizeof left - (size_t)length, " %s", o->argument);
        oct_print("  %-28s %s\n", left, o->help);
    }
}

void oct_print_help(const oct_command *command)
{
    if (!command) {
        print_overview();
        return;
    }
    size_t length = strlen(command->help);
    while (length > 0 && command->help[length - 1] == '\n')
        length--;
    oct_print("%s\n\nUsage: %s\n\n%.*s\n", command->summary, command->usage, (int)length,
              command->help);
    if (command->options) oct_print("\nOptions\n");
    print_options(command->options);
    oct_print("\nOptions of every command\n");
    print_options(oct_common_options);
}

static oct_status run_help(const oct_args *args)
{
    const char *word = args->num_words ? args->word[0] : NULL, *names[64];
    const oct_command *command = word ? oct_command_find(word) : NULL;
    size_t count = 0;
    bool found;
    for (size_t i = 0; i < OCT_COUNT(topics); i++) {
        names[count++] = topics[i].name;
        if (!word || strcmp(word, topics[i].name) != 0) continue;
        if (!topics[i].print) return print_recipe_key(NULL, &found);
        topics[i].print();
        return OCT_OK;
    }
    if (!word || command) {
        oct_print_help(command);
        return OCT_OK;
    }
    OCT_TRY(print_recipe_key(word, &found));
    if (found) return OCT_OK;
    for (size_t i = 0; i < oct_command_count() && count < OCT_COUNT(names); i++)
        names[count++] = oct_command_at(i)->name;
    char hint[OCT_HINT_BYTES], key_hint[OCT_RECIPE_HINT_BYTES];
    oct_recipe_suggest(word, key_hint);
    return oct_fail(
        OCT_USAGE, "command line: there is no help on '%s'; %s", word,
        oct_did_you_mean(hint, word, names, count,
                         *key_hint ? key_hint + strlen("; ")
                                   : "octet help lists the commands, octet help recipe the keys"));
}

const oct_command oct_command_help = {
    .name = "help",
    .usage = "octet help [COMMAND|KEY|recipe|models|formats]",
    .summary = "explains a command, the recipe keys, the models, the data sets",
    .help = "Without a word: the commands and the exit codes. A KEY is one of a recipe, such as\n"
            "qat.lr, or a section of keys, such as qat.",
    .max_words = 1,
    .run = run_help,
};
