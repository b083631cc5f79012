/* octet help: the overview, a command, or one of the lists. Never starts a rank. */
#include "io/dataset/dataset.h"
#include "io/recipe.h"
#include "launch/cmd/help_text.h"
#include "launch/model/model.h"
#include "launch/base/output.h"
#include "quant/target/target.h"

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

static oct_status help_data(oct_text *out)
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

static oct_status help_targets(oct_text *out)
{
    for (size_t i = 0; i < oct_registry_count(&oct_target_id_table); i++)
        OCT_TRY(oct_text_add(out, "%-12s %s\n", oct_target_at(i)->name, oct_target_at(i)->help));
    return oct_text_add(out, "\nThese are values of the recipe key quant.target.\n");
}

static oct_status make_help(const char *topic, oct_text *out)
{
    if (!topic) return oct_help_overview(out);
    if (strcmp(topic, "recipe") == 0) return oct_recipe_help(out);
    if (strcmp(topic, "models") == 0) return help_models(out);
    if (strcmp(topic, "data") == 0) return help_data(out);
    if (strcmp(topic, "targets") == 0) return help_targets(out);
    const oct_command *command = oct_command_find(topic);
    if (command) return oct_help_command(command, out);

    const char *names[64] = {"recipe", "models", "data", "targets"};
    size_t count = 4;
    for (size_t i = 0; i < oct_command_count() && count < OCT_COUNT(names); i++)
        names[count++] = oct_command_at(i)->name;
    char hint[OCT_HINT_BYTES];
    return oct_fail(OCT_USAGE, "command line: no help on '%s'; %s", topic,
                    oct_did_you_mean(hint, topic, names, count, "see octet help"));
}

static oct_status run(const oct_args *args)
{
    oct_text text = {0};
    oct_status status = make_help(args->num_words ? args->word[0] : NULL, &text);
    if (status == OCT_OK) status = oct_print("%s", text.data);
    oct_text_free(&text);
    return status;
}

const oct_command oct_command_help = {
    .name = "help",
    .usage = "octet help [COMMAND|recipe|models|data|targets]",
    .summary = "explains a command, the recipe keys, the models, the data sets",
    .help = "Without a word: the commands and the exit codes.",
    .max_words = 1,
    .run = run,
};
