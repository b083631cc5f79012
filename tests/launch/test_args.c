/* The command line: options in every form, and every mistake named in one go; and a result that cannot be printed. */
#include "launch/cmd/command.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static oct_status never(const oct_args *args)
{
    (void)args;
    return OCT_OK;
}

enum { OUTPUT, COUNT, FLAG };

static const oct_option options[] = {
    [OUTPUT] = OCT_TEXT('o', "--output", "FILE", "where"),
    [COUNT] = OCT_NUMBER(0, "--count", "N", 1, 10, "how many"),
    [FLAG] = OCT_SWITCH(0, "--fast", "quick"),
    {0},
};

static const oct_command command = {
    .name = "test",
    .usage = "octet test FILE [MORE]",
    .options = options,
    .min_words = 1,
    .max_words = 2,
    .run = never,
};

static oct_args args;

#define PARSE(...)                                                                                 \
    oct_args_parse(&args, &command, (int)OCT_COUNT(((const char *[]){__VA_ARGS__})),               \
                   (char **)(uintptr_t)(const char *[]){__VA_ARGS__})

static void refused(oct_status status, const char *sentence)
{
    cr_assert_eq(status, OCT_USAGE, "accepted, wanted: %s", sentence);
    cr_assert_eq(oct_error_count(), 1u, "%zu problems, wanted one: %s", oct_error_count(),
                 sentence);
    cr_assert_str_eq(oct_error_message(0), sentence);
}

Test(args, takes_words_and_options_in_any_order)
{
    cr_assert_eq(PARSE("a", "--output", "x", "b", "--count=7", "--fast", "-q"), OCT_OK);
    cr_assert_eq(args.num_words, 2u);
    cr_assert_str_eq(args.word[0], "a");
    cr_assert_str_eq(args.word[1], "b");
    cr_assert(args.option[OUTPUT].given && args.option[COUNT].given && args.option[FLAG].given);
    cr_assert_str_eq(args.option[OUTPUT].text, "x");
    cr_assert_eq(args.option[COUNT].count, 7);
    cr_assert(args.quiet && !args.verbose && !args.json && args.progress == NULL);
}

Test(args, takes_short_options_and_equal_signs_in_values)
{
    cr_assert_eq(PARSE("-o", "x", "a=b=c"), OCT_OK);
    cr_assert_str_eq(args.option[OUTPUT].text, "x");
    cr_assert_str_eq(args.word[0], "a=b=c");
    cr_assert_eq(PARSE("--output=k=v", "a"), OCT_OK);
    cr_assert_str_eq(args.option[OUTPUT].text, "k=v");
}

Test(args, two_dashes_end_the_options_and_one_dash_is_a_word)
{
    cr_assert_eq(PARSE("-", "--", "--fast"), OCT_OK);
    cr_assert_eq(args.num_words, 2u);
    cr_assert_str_eq(args.word[0], "-");
    cr_assert_str_eq(args.word[1], "--fast");
    cr_assert_not(args.option[FLAG].given);
}

Test(args, options_left_out_are_not_given)
{
    cr_assert_eq(PARSE("a"), OCT_OK);
    cr_assert_not(args.option[OUTPUT].given || args.option[COUNT].given || args.option[FLAG].given);
}

Test(args, names_the_nearest_of_an_unknown_option)
{
    refused(PARSE("a", "--cuont=3"),
            "command line: unknown option '--cuont' of octet test; did you mean '--count'?");
    refused(PARSE("a", "--zebra"),
            "command line: unknown option '--zebra' of octet test; see octet help test");
    refused(PARSE("a", "--jsno"),
            "command line: unknown option '--jsno' of octet test; did you mean '--json'?");
    refused(PARSE("a", "-x"),
            "command line: unknown option '-x' of octet test; see octet help test");
}

Test(args, refuses_counts_that_are_none)
{
    static const char *const wrong[] = {"3x",  "0.5", "nan", "1e3",
                                        "0x3", " 3",  "ten", "99999999999999999999"};
    for (size_t i = 0; i < OCT_COUNT(wrong); i++) {
        char sentence[200];
        snprintf(sentence, sizeof(sentence),
                 "command line: --count %s: not a whole number; write --count N", wrong[i]);
        refused(PARSE("a", "--count", wrong[i]), sentence);
    }
}

Test(args, refuses_counts_out_of_range)
{
    refused(PARSE("a", "--count", "0"), "command line: --count 0: out of range; allowed: 1 to 10");
    refused(PARSE("a", "--count", "11"),
            "command line: --count 11: out of range; allowed: 1 to 10");
    refused(PARSE("a", "--count", "-1"),
            "command line: --count -1: out of range; allowed: 1 to 10");
}

Test(args, refuses_missing_and_empty_values)
{
    refused(PARSE("a", "--output"),
            "command line: --output: the value is missing; write --output FILE");
    refused(PARSE("a", "--output="),
            "command line: --output: the value is missing; write --output FILE");
    refused(PARSE("a", "-o", ""),
            "command line: --output: the value is missing; write --output FILE");
    refused(PARSE("a", "--fast=yes"), "command line: --fast takes no value, got 'yes'");
    refused(PARSE("a", ""), "command line: an argument is empty; leave it out");
}

Test(args, refuses_an_option_given_twice)
{
    refused(PARSE("a", "-o", "x", "--output", "y"),
            "command line: --output is given twice; leave one out");
    cr_assert_eq(PARSE("a", "--fast", "--fast"), OCT_OK, "a flag may be repeated");
}

Test(args, refuses_too_few_and_too_many_words)
{
    refused(PARSE("--fast"), "command line: FILE is missing; usage: octet test FILE [MORE]");
    refused(PARSE("a", "b", "c"),
            "command line: unexpected argument 'c'; usage: octet test FILE [MORE]");
}

Test(args, refuses_contradictions_and_unknown_progress)
{
    refused(PARSE("a", "-q", "-v"), "command line: --quiet and --verbose cannot be used together");
    refused(PARSE("a", "--progress", "dots"),
            "command line: --progress dots: use bar, lines or none");
    cr_assert_eq(PARSE("a", "--progress", "lines"), OCT_OK);
    cr_assert_str_eq(args.progress, "lines");
}

Test(args, reports_all_mistakes_at_once)
{
    cr_assert_eq(PARSE("a", "--zebra", "--count", "x", "--output="), OCT_USAGE);
    cr_assert_eq(oct_error_count(), 3u);
}

Test(args, an_earlier_failure_is_forgotten)
{
    cr_assert_eq(PARSE("a", "--zebra"), OCT_USAGE);
    cr_assert_eq(PARSE("a"), OCT_OK);
}

Test(args, every_command_is_in_order)
{
    for (size_t i = 0; i < oct_command_count(); i++) {
        const oct_command *c = oct_command_at(i);
        cr_assert(c->name && c->usage && c->summary && c->help && c->run, "command %zu", i);
        cr_assert_eq(oct_command_find(c->name), c);
        cr_assert_leq(c->min_words, c->max_words, "%s", c->name);
        cr_assert_eq(strncmp(c->usage, "octet ", 6), 0, "%s", c->name);
        for (const oct_option *o = c->options; o && o->name; o++) {
            cr_assert(strncmp(o->name, "--", 2) == 0 && o->help, "%s %s", c->name, o->name);
            cr_assert_eq(o->kind == OCT_OPT_FLAG, o->argument == NULL, "%s %s", c->name, o->name);
        }
    }
    cr_assert_null(oct_command_find("tarin"));
}

Test(output, a_document_that_cannot_be_written_is_a_failure)
{
    json_t *outer = json_array(), *inner = json_array();
    cr_assert(json_array_append(outer, inner) == 0 && json_array_append(inner, outer) == 0);
    /* Of a ring jansson writes nothing, and sets no errno. */
    oct_print_json(json_incref(outer));
    cr_assert_eq(oct_print_flush(), OCT_RESOURCE);
    json_array_clear(inner);
    json_decref(inner);
    json_decref(outer);
}
