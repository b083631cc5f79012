/* Every text is made from the list that it describes, so help cannot lag behind. */
#include "launch/cmd/help_text.h"

#include "octet_version.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *what;
} topics[] = {
    {"recipe", "every key of a recipe: type, range, default"},
    {"models", "the models by name"},
    {"data", "the data set formats"},
    {"targets", "what int8 models run on"},
};

static oct_status add_exit_codes(oct_text *out)
{
    OCT_TRY(oct_text_add(out, "\nExit status\n"));
#define X(name, exit, meaning)                                                                     \
    if (OCT_##name != OCT_PEER) OCT_TRY(oct_text_add(out, "  %-3d %s\n", exit, meaning));
    OCT_STATUS_LIST(X)
#undef X
    return oct_text_add(
        out, "A reader that closes the pipe early, as in octet ... | head, is no error.\n");
}

oct_status oct_help_overview(oct_text *out)
{
    OCT_TRY(oct_text_add(out,
                         "octet %s: quantization-aware training over MPI; what you train is what "
                         "you deploy\n\nUsage: octet COMMAND ...\n\nCommands\n",
                         OCT_VERSION));
    for (size_t i = 0; i < oct_command_count(); i++)
        OCT_TRY(
            oct_text_add(out, "  %-11s %s\n", oct_command_at(i)->name, oct_command_at(i)->summary));
    OCT_TRY(oct_text_add(out, "\nMore: octet help COMMAND, and\n"));
    for (size_t i = 0; i < OCT_COUNT(topics); i++)
        OCT_TRY(oct_text_add(out, "  octet help %-8s %s\n", topics[i].name, topics[i].what));
    OCT_TRY(oct_text_add(
        out, "\nFirst steps\n"
             "  octet recipes                            the shipped recipes\n"
             "  octet recipes fashion-mnist > my.yaml    one of them, to edit\n"
             "  octet check my.yaml                      checks it before anything starts\n"
             "  octet train my.yaml --ranks 2\n"));
    return add_exit_codes(out);
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
