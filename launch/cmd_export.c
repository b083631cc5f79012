/* octet export: other formats of an int8 model. None is there yet, and that is what it says. */
#include "launch/command.h"

enum { FORMAT };

static const oct_option options[] = {
    [FORMAT] = {"--format", 'f', OCT_OPT_TEXT, "F", "name of the format", 0, 0},
    {0},
};

static oct_status run(const oct_args *args)
{
    const char *format = args->option[FORMAT].given ? args->option[FORMAT].text : "";
    return oct_fail(
        OCT_USAGE,
        "command line: --format %s: this version exports no other format yet; %s is the "
        "int8 model itself: octet run executes it, octet inspect --json lists its layers "
        "with codes' scales and zero points",
        format, args->word[0]);
}

const oct_command oct_command_export = {
    .name = "export",
    .usage = "octet export MODEL --format F",
    .summary = "turns an int8 model into another format (none yet)",
    .help = "MODEL is an int8 model (*.int8.h5) that octet convert has made.",
    .options = options,
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
