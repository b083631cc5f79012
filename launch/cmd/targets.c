/* octet targets shows what each target of int8 models computes, from the tables that training itself uses. */
#include "core/base/text.h"
#include "launch/cmd/command.h"
#include "quant/target/target.h"

/* Prints a row of words after a label, in lines of at most 100 characters. */
static void print_words(const char *label, const char *words)
{
    enum { LEFT = 15, LINE = 100 };
    for (const char *rest = words; *rest;) {
        size_t length = strlen(rest);
        if (length > LINE - LEFT) {
            length = LINE - LEFT;
            while (length > 1 && rest[length] != ' ')
                length--;
        }
        oct_print("  %-12s %.*s\n", rest == words ? label : "", (int)length, rest);
        rest += length + (rest[length] == ' ');
    }
}

static oct_status print_names(const char *label, const char *const *names)
{
    OCT_OWNED(oct_text_free) oct_text row = {0};
    for (; names && *names; names++)
        OCT_TRY(oct_text_add(&row, "%s%s", row.length ? ", " : "", *names));
    if (row.length) print_words(label, row.data);
    return OCT_OK;
}

static oct_status print_target(const oct_target *target)
{
    char channels[32];
    snprintf(channels, sizeof channels, "%lld", (long long)target->max_channels);
    oct_print("%s: %s\n", target->name, target->help);
    print_words("codes", target->codes);
    print_words("rounding", target->rounding);
    print_words("refused", target->refused);
    OCT_TRY(print_names("no fusion", target->no_fusions));
    OCT_TRY(print_names("float stay", target->no_ops));
    OCT_TRY(print_names("one scale", target->one_scale));
    OCT_TRY(print_names("float result", target->float_outputs));
    OCT_TRY(print_names("per tensor", target->per_tensor));
    print_words("16 bits", target->wide_codes ? "yes" : "no");
    print_words("channels", channels);
    print_words("runs on", target->runs);
    print_words("shown by", target->proof);
    oct_print("\n");
    return OCT_OK;
}

static json_t *names_of(const char *const *names)
{
    json_t *array = json_array();
    for (; names && *names; names++)
        json_array_append_new(array, json_string(*names));
    return array;
}

static void print_json(const oct_target *only)
{
    json_t *array = json_array();
    for (size_t i = 0; i < oct_registry_count(&oct_target_id_table); i++) {
        const oct_target *t = oct_target_at(i);
        if (only && only != t) continue;
        json_array_append_new(
            array,
            json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:b, s:I, s:s, s:s}",
                      "name", t->name, "summary", t->help, "codes", t->codes, "rounding",
                      t->rounding, "refused", t->refused, "no_fusions", names_of(t->no_fusions),
                      "float_stay", names_of(t->no_ops), "one_scale", names_of(t->one_scale),
                      "float_result", names_of(t->float_outputs), "per_tensor",
                      names_of(t->per_tensor), "wide_codes", t->wide_codes, "channels",
                      (json_int_t)t->max_channels, "runs_on", t->runs, "shown_by", t->proof));
    }
    oct_print_json(array);
}

static oct_status run_targets(const oct_args *args)
{
    const oct_target *only = NULL;
    if (args->num_words) {
        only = oct_target_find(args->word[0]);
        if (!only) {
            oct_registry_report_missing(&oct_target_id_table, "command line", args->word[0],
                                        "octet targets lists them");
            return OCT_USAGE;
        }
    }
    if (args->json) {
        print_json(only);
        return OCT_OK;
    }
    for (size_t i = 0; i < oct_registry_count(&oct_target_id_table); i++)
        if (!only || only == oct_target_at(i)) OCT_TRY(print_target(oct_target_at(i)));
    oct_print("A target is a value of the recipe key quant.target. A model is trained for one: its "
              "rounding is\nlearned, and convert refuses another.\n");
    return OCT_OK;
}

const oct_command oct_command_targets = {
    .name = "targets",
    .usage = "octet targets [NAME]",
    .summary = "lists what int8 models run on: codes, rounding, what is refused, and what shows it",
    .help = "Without NAME: all of them. What it prints is what training computes with: it goes by\n"
            "the same tables.\n"
            "\n"
            "    octet targets onnxruntime\n",
    .max_words = 1,
    .run = run_targets,
};
