/* octet export is for other formats of an int8 model. There is none yet, and that is what it says. */
#include "launch/cmd/command.h"

enum { FORMAT };

static const oct_option options[] = {
    [FORMAT] = {"--format", 'f', OCT_OPT_TEXT, "F", "name of the format", 0, 0},
    {0},
};

static oct_status run(const oct_args *args)
{
    OCT_CHECK(args->option[FORMAT].given, OCT_USAGE,
              "command line: --format is missing; write octet export %s --format F", args->word[0]);
    return oct_fail(
        OCT_USAGE,
        "command line: --format %s: no other format can be written yet; octet run executes the "
        "int8 model as it is, octet inspect --json lists its layers, scales and zero points",
        args->option[FORMAT].text);
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
