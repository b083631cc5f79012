/* A command line once it is parsed, which cmd/args.c does by the options of the command, is plain
 * data. */
#pragma once

#include "core/base/text.h"

#include <string.h>

typedef enum oct_option_kind { OCT_OPT_FLAG, OCT_OPT_TEXT, OCT_OPT_COUNT } oct_option_kind;

typedef struct oct_option {
    const char *name; /* "--ranks", long form; NULL ends the table */
    char letter;      /* 'o' for -o, or 0 */
    oct_option_kind kind;
    const char *argument, *help; /* "N", "how many ranks" */
    int64_t min, max;            /* of a count */
} oct_option;

/* Rows of a table of options. letter: 'o' for -o, or 0. */
#define OCT_SWITCH(letter, name, help)                                                             \
    {                                                                                              \
        name, letter, OCT_OPT_FLAG, NULL, help, 0, 0                                               \
    }
#define OCT_TEXT(letter, name, argument, help)                                                     \
    {                                                                                              \
        name, letter, OCT_OPT_TEXT, argument, help, 0, 0                                           \
    }
#define OCT_NUMBER(letter, name, argument, min, max, help)                                         \
    {                                                                                              \
        name, letter, OCT_OPT_COUNT, argument, help, min, max                                      \
    }
/* Options of several commands. */
#define OCT_OPTION_DATA                                                                            \
    OCT_TEXT(0, "--data", "FOLDER", "folder of the data set, if it is not where the run had it")
#define OCT_OPTION_RANKS                                                                           \
    OCT_NUMBER(0, "--ranks", "N", 1, 4096,                                                         \
               "run on N ranks, started with mpirun; the result is that of one rank")

enum { OCT_ARGS_MAX = 256 };

typedef struct oct_option_value {
    bool given;
    const char *text; /* NULL: not given */
    int64_t count;
} oct_option_value;

/* The words are in their order; each option of the command's table, in its order, says whether it was
 * given and its value. */
typedef struct oct_args {
    const char *word[OCT_ARGS_MAX];
    size_t num_words;
    oct_option_value option[32];
    bool json, quiet, verbose; /* --json, -q, -v: every command has them */
    const char *progress;      /* --progress bar|lines|none, or NULL */
    bool allow_plugins;        /* --allow-plugins: those that a checkpoint or model names */
    bool allow_large; /* --allow-large: int8 models beyond the limits of io/model/model.h */
    int64_t deadline; /* --deadline, seconds; 0: not given */
    int argc;         /* the whole command line */
    char **argv;
} oct_args;

/* Fails with OCT_USAGE and a sentence about the command line unless the condition holds. */
#define OCT_CHECK_ARGS(condition, ...) OCT_CHECK(condition, OCT_USAGE, "command line: " __VA_ARGS__)

/* Whether one of these words begins as a key does: "data.mean=". */
static inline bool oct_words_give(const char *const *words, size_t count, const char *key)
{
    for (size_t i = 0; i < count; i++)
        if (strncmp(words[i], key, strlen(key)) == 0) return true;
    return false;
}

/* The count of an option that may be left out. */
static inline int64_t oct_option_count(const oct_args *args, int option, int64_t standard)
{
    return args->option[option].given ? args->option[option].count : standard;
}
