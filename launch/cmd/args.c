/* One pass over argv parses the command line and collects every problem.
 *
 * Options may be anywhere, as --name value, --name=value or -x value; "--" ends them. The options of
 * every command are a table like any other, so help and parser read the same rows. */
#include "launch/cmd/command.h"

static const oct_command *const commands[] = {
#define OCT_COMMAND(id, file) &oct_command_##file,
#include "launch/cmd/command_list.def"
#undef OCT_COMMAND
};

enum { JSON, QUIET, VERBOSE, PROGRESS, ALLOW_PLUGINS, ALLOW_LARGE, DEADLINE };

const oct_option oct_common_options[] = {
    [JSON] = OCT_SWITCH(0, "--json", "results as JSON on stdout"),
    [QUIET] = OCT_SWITCH('q', "--quiet", "print errors only"),
    [VERBOSE] = OCT_SWITCH('v', "--verbose", "print more"),
    [PROGRESS] =
        OCT_TEXT(0, "--progress", "bar|lines|none",
                 "progress as one drawn line, as lines, or not (default: bar in a terminal)"),
    [ALLOW_PLUGINS] = OCT_SWITCH(
        0, "--allow-plugins", "run the plug-ins that a checkpoint or model names: they are code"),
    [ALLOW_LARGE] =
        OCT_SWITCH(0, "--allow-large", "run an int8 model however much memory and time it takes"),
    [DEADLINE] =
        OCT_NUMBER(0, "--deadline", "S", 1, 86400,
                   "seconds that a rank waits for another before that is called lost (300)"),
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

typedef struct parser {
    const oct_command *command;
    oct_args *args;
    int argc, next;
    char **argv;
    oct_option_value common[OCT_COUNT(oct_common_options)];
} parser;

/* All problems are one record of OCT_USAGE. */
#define PROBLEM(...) ((void)oct_fail_add(OCT_USAGE, "command line: " __VA_ARGS__))

/* Finds the option that a word names, and where its value goes; NULL: none. */
static const oct_option *find_option(const oct_option *table, oct_option_value *values,
                                     const char *word, size_t length, oct_option_value **value)
{
    for (size_t i = 0; table && table[i].name; i++) {
        const oct_option *o = &table[i];
        const bool is_long = strlen(o->name) == length && memcmp(o->name, word, length) == 0;
        const bool is_short = o->letter && length == 2 && word[1] == o->letter;
        OCT_ASSERT(i < OPTIONS_MAX);
        *value = &values[i];
        if (is_long || is_short) return o;
    }
    return NULL;
}

static void report_unknown_option(const parser *p, const char *word, size_t length)
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
    const size_t length = equals ? (size_t)(equals - word) : strlen(word);
    oct_option_value *value;
    const oct_option *o = find_option(p->command->options, p->args->option, word, length, &value);
    if (!o) o = find_option(oct_common_options, p->common, word, length, &value);
    if (!o) {
        report_unknown_option(p, word, length);
        return;
    }
    const bool is_switch = o->kind == OCT_OPT_FLAG;
    const char *text = equals ? equals + 1 : NULL;
    if (is_switch && text) PROBLEM("%s takes no value, got '%s'", o->name, text);
    if (!is_switch && !text && p->next < p->argc) text = p->argv[p->next++];
    if (value->given && !is_switch) {
        PROBLEM("%s is given twice; leave one out", o->name);
        return;
    }
    value->given = true;
    if (is_switch) return;
    if (!text || text[0] == '\0') {
        PROBLEM("%s: the value is missing; write %s %s", o->name, o->name, o->argument);
        return;
    }
    value->text = text;
    if (o->kind != OCT_OPT_COUNT) return;
    if (!oct_parse_i64(text, &value->count))
        PROBLEM("%s %s: not a whole number; write %s %s", o->name, text, o->name, o->argument);
    else if (value->count < o->min || value->count > o->max)
        PROBLEM("%s %s: out of range; allowed: %" PRId64 " to %" PRId64, o->name, text, o->min,
                o->max);
}

/* Names the missing word as the usage does: "octet check RECIPE|MODEL ...". A word in small letters is no name
 * but the word itself. */
static void report_missing_word(const oct_command *c, size_t given)
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
    if (oct_error_count() == 0 && args->num_words < command->min_words)
        report_missing_word(command, args->num_words);
    else if (oct_error_count() == 0 && args->num_words > command->max_words)
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
    return oct_error_count() == 0 ? OCT_OK : OCT_USAGE;
}
