/* Commands of the octet program. Adding one: launch/cmd_<name>.c and a line in command_list.def.
 *
 * Streams: results on stdout, everything else on stderr (core/base/log.h). A command returns a
 * status; main prints the record once whatever the rank count, and turns the code into the exit
 * status. Nothing else exits or prints errors.
 */
#pragma once

#include "core/base/text.h"

typedef enum oct_option_kind { OCT_OPT_FLAG, OCT_OPT_TEXT, OCT_OPT_COUNT } oct_option_kind;

typedef struct oct_option {
    const char *name; /* "--ranks", long form; NULL ends the table */
    char letter;      /* 'o' for -o, or 0 */
    oct_option_kind kind;
    const char *argument, *help; /* "N", "how many ranks" */
    int64_t min, max;            /* of a count */
} oct_option;

enum { OCT_ARGS_MAX = 256 };

/* The parsed command line: positional words, and for each option of the command's table, in its
 * order, whether it was given and its value. */
typedef struct oct_args {
    const char *word[OCT_ARGS_MAX];
    size_t num_words;
    struct {
        bool given;
        const char *text;
        int64_t count;
    } option[32];
    bool json, quiet, verbose; /* --json, -q, -v: every command has them */
    const char *progress;      /* --progress bar|lines|none, or NULL */
    bool allow_plugins;        /* --allow-plugins: those that a checkpoint or model names */
    bool allow_large;          /* --allow-large: models beyond the limits of io/model_file.h */
    int64_t deadline;          /* --deadline, seconds; 0: not given */
    int argc;                  /* the whole command line */
    char **argv;
} oct_args;

typedef struct oct_command {
    const char *name, *usage, *summary, *help; /* help: some paragraphs with examples */
    const oct_option *options;                 /* ends with name NULL; may be NULL */
    size_t min_words, max_words;
    bool parallel; /* may run under mpirun; others refuse more than one rank */
    oct_status (*run)(const oct_args *args);
} oct_command;

#define OCT_COMMAND(id, file) extern const oct_command oct_command_##file;
#include "launch/cmd/command_list.def"
#undef OCT_COMMAND

extern const oct_option oct_common_options[]; /* of every command; ends with name NULL */

const oct_command *oct_command_find(const char *name);
size_t oct_command_count(void);
const oct_command *oct_command_at(size_t i);

/* Parses argv behind the command's name; OCT_USAGE with every problem. Sets all but argc and argv. */
oct_status oct_args_parse(oct_args *args, const oct_command *command, int argc,
                          char **argv) OCT_NODISCARD;
/* Index into args->option by name; the table must hold it. */
size_t oct_args_index(const oct_command *command, const char *name);
