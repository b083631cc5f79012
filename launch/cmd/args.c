/* One pass over argv parses the command line and collects every problem.
 *
 * Options may be anywhere, as --name value, --name=value or -x value; "--" ends them. The options of
 * every command are a table like any other, so help and parser read the same rows. */
#include "launch/cmd/command.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const oct_command *const commands[] = {
#define OCT_COMMAND(id, file) &oct_command_##file,
#include "launch/cmd/command_list.def"
#undef OCT_COMMAND
};

enum { JSON, QUIET, VERBOSE, PROGRESS, ALLOW_PLUGINS, ALLOW_LARGE, DEADLINE };

const oct_option oct_common_options[] = {
    [JSON] = {"--json", 0, OCT_OPT_FLAG, NULL, "results as JSON on stdout", 0, 0},
    [QUIET] = {"--quiet", 'q', OCT_OPT_FLAG, NULL, "print errors only", 0, 0},
    [VERBOSE] = {"--verbose", 'v', OCT_OPT_FLAG, NULL, "print more", 0, 0},
    [PROGRESS] = {"--progress", 0, OCT_OPT_TEXT, "bar|lines|none",
                  "progress as one drawn line, as lines, or not (default: bar in a terminal)", 0,
                  0},
    [ALLOW_PLUGINS] = {"--allow-plugins", 0, OCT_OPT_FLAG, NULL,
                       "run the plug-ins that a checkpoint or model names: they are code", 0, 0},
    [ALLOW_LARGE] = {"--allow-large", 0, OCT_OPT_FLAG, NULL,
                     "run an int8 model however much memory and time it takes", 0, 0},
    [DEADLINE] = {"--deadline", 0, OCT_OPT_COUNT, "S",
                  "seconds that a rank waits for another before that is called lost (300)", 1,
                  86400},
    {0},
};

enum { OPTIONS_MAX = OCT_COUNT(((oct_args *)0)->option) };

size_t oct_command_count(void)
{
    return OCT_COUNT(commands);
}

const oct_command *oct_command_at(size_t i)
{
    return commands[i];
}

const oct_command *oct_command_find(const char *name)
{
    for (size_t i = 0; i < OCT_COUNT(commands); i++)
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    return NULL;
}

static size_t table_length(const oct_option *table)
{
    size_t n = 0;
    while (table && table[n].name)
        n++;
    return n;
}

typedef struct parser {
    const oct_command *command;
    oct_args *args;
    int argc, next;
    char **argv;
    struct value {
        bool given;
        const char *text;
        int64_t count;
    } common[OCT_COUNT(oct_common_options)];
} parser;

/* All problems are one record of OCT_USAGE. */
#define PROBLEM(...) ((void)oct_fail_add(OCT_USAGE, "command line: " __VA_ARGS__))

static const oct_option *match(const oct_option *table, const char *word, size_t length, size_t *i)
{
    for (*i = 0; *i < table_length(table); (*i)++) {
        const oct_option *o = &table[*i];
        bool is_long = strlen(o->name) == length && memcmp(o->name, word, length) == 0;
        bool is_short = o->letter && length == 2 && word[1] == o->letter;
        if (is_long || is_short) return o;
    }
    return NULL;
}

static void unknown_option(const parser *p, const char *word, size_t length)
{
    const char *names[OPTIONS_MAX + OCT_COUNT(oct_common_options)];
    size_t n = 0;
    for (const oct_option *o = p->command->options; o && o->name; o++)
        names[n++] = o->name;
    for (const oct_option *o = oct_common_options; o->name; o++)
        names[n++] = o->name;
    char name[64];
    size_t kept = length < sizeof(name) - 1 ? length : sizeof(name) - 1;
    memcpy(name, word, kept);
    name[kept] = '\0';
    char hint[OCT_HINT_BYTES], otherwise[64];
    snprintf(otherwise, sizeof otherwise, "see octet help %s", p->command->name);
    PROBLEM("unknown option '%s' of octet %s; %s", name, p->command->name,
            oct_did_you_mean(hint, name, names, n, otherwise));
}

static void parse_option(parser *p, const char *word)
{
    const char *equals = word[1] == '-' ? strchr(word, '=') : NULL;
    size_t length = equals ? (size_t)(equals - word) : strlen(word), i = 0, common = 0;
    const oct_option *o = match(p->command->options, word, length, &i);
    bool own = o != NULL;
    if (!own) o = match(oct_common_options, word, length, &common);
    if (!o) {
        unknown_option(p, word, length);
        return;
    }

    bool *given = own ? &p->args->option[i].given : &p->common[common].given;
    const char **text = own ? &p->args->option[i].text : &p->common[common].text;
    const char *value = equals ? equals + 1 : NULL;
    if (o->kind == OCT_OPT_FLAG) {
        if (value) PROBLEM("%s takes no value, got '%s'", o->name, value);
    } else if (!value && p->next < p->argc) {
        value = p->argv[p->next++];
    }
    if (*given && o->kind != OCT_OPT_FLAG) {
        PROBLEM("%s is given twice; leave one out", o->name);
        return;
    }
    *given = true;
    if (o->kind == OCT_OPT_FLAG) return;
    if (!value || value[0] == '\0') {
        PROBLEM("%s: the value is missing; write %s %s", o->name, o->name, o->argument);
        return;
    }
    *text = value;
    if (o->kind != OCT_OPT_COUNT) return;
    int64_t *count = own ? &p->args->option[i].count : &p->common[common].count;
    if (!oct_parse_i64(value, count))
        PROBLEM("%s %s: not a whole number; write %s %s", o->name, value, o->name, o->argument);
    else if (*count < o->min || *count > o->max)
        PROBLEM("%s %s: out of range; allowed: %" PRId64 " to %" PRId64, o->name, value, o->min,
                o->max);
}

/* Names the missing word as the usage does: "octet check RECIPE|MODEL ...". A word in small letters is no name
 * but the word itself. */
static void missing_word(const oct_command *c, size_t given)
{
    const char *usage = c->usage + strlen("octet ") + strlen(c->name) + 1;
    for (; given > 0; given--)
        usage += strcspn(usage, " ") + 1;
    int first = (int)strcspn(usage, "| "), length = (int)strcspn(usage, " ");
    if (usage[0] >= 'a' && usage[0] <= 'z')
        PROBLEM("an argument is missing; usage: %s", c->usage);
    else if (first < length)
        PROBLEM("%.*s or %.*s is missing; usage: %s", first, usage, length - first - 1,
                usage + first + 1, c->usage);
    else
        PROBLEM("%.*s is missing; usage: %s", length, usage, c->usage);
}

oct_status oct_args_parse(oct_args *args, const oct_command *command, int argc, char **argv)
{
    OCT_ASSERT(table_length(command->options) <= OPTIONS_MAX);
    *args = (oct_args){0};
    parser p = {.command = command, .args = args, .argc = argc, .argv = argv};
    oct_fail_clear();
    bool options = true;
    while (p.next < p.argc) {
        const char *word = argv[p.next++];
        if (options && strcmp(word, "--") == 0)
            options = false;
        else if (options && word[0] == '-' && word[1] != '\0')
            parse_option(&p, word);
        else if (word[0] == '\0')
            PROBLEM("an argument is empty; leave it out");
        else if (args->num_words == OCT_ARGS_MAX)
            PROBLEM("more than %d arguments", OCT_ARGS_MAX);
        else
            args->word[args->num_words++] = word;
    }
    if (oct_fail_count() == 0 && args->num_words < command->min_words)
        missing_word(command, args->num_words);
    else if (oct_fail_count() == 0 && args->num_words > command->max_words)
        PROBLEM("unexpected argument '%s'; usage: %s", args->word[command->max_words],
                command->usage);
    args->json = p.common[JSON].given;
    args->quiet = p.common[QUIET].given;
    args->verbose = p.common[VERBOSE].given;
    args->progress = p.common[PROGRESS].text;
    args->allow_plugins = p.common[ALLOW_PLUGINS].given;
    args->allow_large = p.common[ALLOW_LARGE].given;
    args->deadline = p.common[DEADLINE].count;
    if (args->quiet && args->verbose) PROBLEM("--quiet and --verbose cannot be used together");
    const char *how = args->progress;
    if (how && strcmp(how, "bar") != 0 && strcmp(how, "lines") != 0 && strcmp(how, "none") != 0)
        PROBLEM("--progress %s: use bar, lines or none", how);
    return oct_fail_count() == 0 ? OCT_OK : OCT_USAGE;
}
