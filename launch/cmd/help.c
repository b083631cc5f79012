/* octet help prints the overview, the help of a command, or one of the lists. Every text is made from
 * the list that it describes, so help cannot lag after. It never starts a rank. */
#include "io/dataset/dataset.h"
#include "io/recipe/recipe.h"
#include "launch/base/output.h"
#include "launch/cmd/command.h"
#include "launch/model/model.h"
#include "octet_version.h"

#include <stdio.h>
#include <string.h>

static oct_status help_models(oct_text *out)
{
    for (size_t i = 0; i < oct_registry_count(&oct_model_table); i++) {
        const oct_model_spec *spec = oct_registry_at(&oct_model_table, i);
        OCT_TRY(oct_text_add(out, "%-18s %s\n", spec->name, spec->help));
    }
    return oct_text_add(
        out, "\nThese are values of the recipe key model.name. A model of your own is a file in "
             "launch/model and a\nline in model_list.def, or comes with a plug-in (key plugins, "
             "launch/plugin.h).\n");
}

static oct_status help_formats(oct_text *out)
{
    for (size_t i = 0; i < oct_registry_count(&oct_dataset_id_table); i++) {
        const oct_dataset_format *format = oct_registry_at(&oct_dataset_id_table, i);
        OCT_TRY(oct_text_add(out, "%-12s %s\n", format->name, format->files));
        OCT_TRY(oct_text_add(out, "%-12s data.path: %s\n", "",
                             format->default_path ? format->default_path : "must be given"));
    }
    return oct_text_add(
        out,
        "\nFor the recipe keys data.format and data.path.\n"
        "\nAn IDX file is a header of 32-bit numbers, the high byte first, and then the data:\n"
        "  images   00 00 08 03, count, height, width; then the pixels row by row, a byte each\n"
        "  labels   00 00 08 01, count; then one byte each (0b, 0c in place of 08: 16, 32 bits)\n");
}

static oct_status help_recipe(oct_text *out)
{
    return oct_recipe_help(NULL, out);
}

static const struct topic {
    const char *name, *what;
    oct_status (*make)(oct_text *out);
} topics[] = {
    {"recipe", "every key of a recipe: type, range, default", help_recipe},
    {"models", "the models by name", help_models},
    {"formats", "the data set formats", help_formats},
};

oct_status oct_help_overview(oct_text *out)
{
    OCT_TRY(oct_text_add(out,
                         "octet %s: quantization-aware training over MPI; what you train is what "
                         "you deploy\n\nUsage: octet COMMAND ...\n\nCommands\n",
                         OCT_VERSION));
    for (size_t i = 0; i < oct_command_count(); i++)
        OCT_TRY(
            oct_text_add(out, "  %-11s %s\n", oct_command_at(i)->name, oct_command_at(i)->summary));
    OCT_TRY(
        oct_text_add(out, "\nMore: octet help COMMAND, octet help KEY (such as qat.lr), and\n"));
    for (size_t i = 0; i < OCT_COUNT(topics); i++)
        OCT_TRY(oct_text_add(out, "  octet help %-8s %s\n", topics[i].name, topics[i].what));
    OCT_TRY(oct_text_add(
        out, "\nFirst steps\n"
             "  octet recipes                            the shipped recipes\n"
             "  octet recipes fashion-mnist > my.yaml    one of them, to edit\n"
             "  octet check my.yaml                      checks it before anything starts\n"
             "  octet train my.yaml --ranks 2\n"));
    OCT_TRY(oct_text_add(out, "\nExit status\n"));
#define X(name, exit, meaning)                                                                     \
    if (OCT_##name != OCT_PEER) OCT_TRY(oct_text_add(out, "  %-3d %s\n", exit, meaning));
    OCT_STATUS_LIST(X)
#undef X
    return oct_text_add(
        out, "A reader that closes the pipe early, as in octet ... | head, is no error.\n");
}

static oct_status add_options(const oct_option *options, oct_text *out)
{
    for (const oct_option *o = options; o && o->name; o++) {
        char left[64];
        int used = snprintf(left, sizeof(left), "%s", o->name);
        if (o->letter)
            used += snprintf(left + used, sizeof(left) - (size_t)used, ", -%c", o->letter);
        if (o->argument) snprintf(left + used, sizeof(left) - (size_t)used, " %s", o->argument);
        OCT_TRY(oct_text_add(out, "  %-28s %s\n", left, o->help));
    }
    return OCT_OK;
}

oct_status oct_help_command(const oct_command *command, oct_text *out)
{
    size_t length = strlen(command->help);
    while (length > 0 && command->help[length - 1] == '\n')
        length--;
    OCT_TRY(oct_text_add(out, "%s\n\nUsage: %s\n\n%.*s\n", command->summary, command->usage,
                         (int)length, command->help));
    if (command->options) OCT_TRY(oct_text_add(out, "\nOptions\n"));
    OCT_TRY(add_options(command->options, out));
    OCT_TRY(oct_text_add(out, "\nOptions of every command\n"));
    return add_options(oct_common_options, out);
}

static oct_status make_help(const char *word, oct_text *out)
{
    const char *names[64];
    size_t count = 0;
    if (!word) return oct_help_overview(out);
    for (size_t i = 0; i < OCT_COUNT(topics); i++) {
        if (strcmp(word, topics[i].name) == 0) return topics[i].make(out);
        names[count++] = topics[i].name;
    }
    const oct_command *command = oct_command_find(word);
    if (command) return oct_help_command(command, out);
    OCT_TRY(oct_recipe_help(word, out));
    if (out->length) return OCT_OK;
    for (size_t i = 0; i < oct_command_count() && count < OCT_COUNT(names); i++)
        names[count++] = oct_command_at(i)->name;
    char hint[OCT_HINT_BYTES], key[OCT_RECIPE_HINT_BYTES];
    oct_recipe_suggest(word, key);
    return oct_fail(
        OCT_USAGE, "command line: there is no help on '%s'; %s", word,
        oct_did_you_mean(hint, word, names, count,
                         *key ? key + 2
                              : "octet help lists the commands, octet help recipe the keys"));
}

static oct_status run_help(const oct_args *args)
{
    oct_text text = {0};
    oct_status status = make_help(args->num_words ? args->word[0] : NULL, &text);
    if (status == OCT_OK) status = oct_print("%s", text.data);
    oct_text_free(&text);
    return status;
}

const oct_command oct_command_help = {
    .name = "help",
    .usage = "octet help [COMMAND|KEY|recipe|models|formats]",
    .summary = "explains a command, the recipe keys, the models, the data sets",
    .help = "Without a word: the commands and the exit codes. A KEY is one of a recipe, such as "
            "qat.lr, or a\n"
            "section of keys, such as qat.",
    .max_words = 1,
    .run = run_help,
};
