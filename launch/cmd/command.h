/* Commands of the octet program. Adding one: launch/cmd/<name>.c and a line in command_list.def.
 *
 * Streams: results on stdout, everything else on stderr (core/base/log.h). A command returns a
 * status; main prints the record once whatever the rank count, and turns the code into the exit
 * status. Nothing else exits or prints errors. This header includes what every command needs:
 * memory, printing, JSON.
 */
#pragma once

#include "core/base/mem.h"
#include "io/recipe/recipe.h"
#include "launch/base/args.h"
#include "launch/base/meter.h"
#include "launch/base/output.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

typedef struct oct_command {
    const char *name, *usage, *summary, *help; /* help: some paragraphs with examples */
    const oct_option *options;                 /* ends with name NULL; may be NULL */
    size_t min_words, max_words;
    bool parallel; /* may run under mpirun; others refuse more than one rank */
    /* Reads the recipe that the command follows, which the caller frees, also after a failure; NULL: a first word that ends
     * in .yaml or .yml may name one. */
    oct_status (*recipe)(oct_recipe *recipe, const oct_args *args);
    oct_status (*run)(const oct_args *args);
} oct_command;

#define OCT_COMMAND(id, file) extern const oct_command oct_command_##file;
#include "launch/cmd/command_list.def"
#undef OCT_COMMAND

extern const oct_option oct_common_options[]; /* of every command; ends with name NULL */

const oct_command *oct_command_find(const char *name);
size_t oct_command_count(void);
const oct_command *oct_command_at(size_t i);

/* Parses argv after the command's name; OCT_USAGE with every problem. Sets all but argc and argv. */
oct_status oct_args_parse(oct_args *args, const oct_command *command, int argc, char **argv);

/* Puts the files in place of words such as zoo:resnet20, two at most. */
oct_status oct_zoo_paths(oct_args *args);

/* Prints the result of a run, or what an entry of the zoo has of it, as a table. */
void oct_print_result(const json_t *result);

/* Prints what `octet help` does (NULL), or `octet help COMMAND`. */
void oct_print_help(const oct_command *command);
