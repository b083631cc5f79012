/* Setters: which of them decides, what they refuse, and which names they miss. */
#include "quant/module/qconfig.h"

#include "tests/support/check_status.h"

#include <stdio.h>

static oct_qconfig eight, sixteen;

static void set_up(void)
{
    eight = sixteen = oct_qconfig_default();
    sixteen.bits = 16;
}

TestSuite(qconfig, .init = set_up, .timeout = 20);

static oct_qconfig ask(const oct_qconfig_setter *setters, size_t count, const char *path,
                       const char *type, bool last)
{
    oct_qconfig_site place = {.path = path, .type = type, .before_dequant = last};
    return oct_qconfig_of(setters, count, &place);
}

Test(qconfig, by_default_is_pytorchs_with_8_bits)
{
    cr_assert(!eight.none && eight.bits == 8 && eight.averaging == 0.01f);
    cr_assert_str_eq(eight.observer->name, "moving_average");
    cr_assert_str_eq(eight.fake_quant->name, "affine");
    cr_assert(!eight.current_scales && !eight.fixed_scale && !eight.float_output);
    MUST(oct_qconfig_check(&eight, NULL));
}

Test(qconfig, without_setters_a_module_stays_float)
{
    cr_assert(ask(NULL, 0, "conv", "conv2d", false).none);
    oct_qconfig_setter setters[] = {oct_setter_by_name("other", &eight)};
    cr_assert(ask(setters, 1, "conv", "conv2d", false).none);
    cr_assert(!ask(setters, 1, "other", "conv2d", false).none);
}

Test(qconfig, of_the_first_setter_that_fits_wins)
{
    oct_qconfig current = eight;
    current.current_scales = true;
    oct_qconfig_setter setters[] = {
        oct_setter_by_name("layer1.*", NULL),
        oct_setter_by_type("linear", &sixteen),
        oct_setter_float_output(),
        oct_setter_by_name("layer?.conv", &current),
        oct_setter_default(&eight),
    };
    size_t n = OCT_COUNT(setters);
    cr_assert(ask(setters, n, "layer1.conv", "conv2d", false).none, "the name comes first");
    cr_assert(ask(setters, n, "layer2.conv", "conv2d", false).current_scales);
    cr_assert(!ask(setters, n, "layer10.conv", "conv2d", false).current_scales);
    cr_assert_eq(ask(setters, n, "head", "linear", false).bits, 16);
    cr_assert(!ask(setters, n, "head", "linear", true).float_output,
              "a template replaces what setters after it said");
    oct_qconfig last = ask(setters, n, "layer2.conv", "conv2d", true);
    cr_assert(last.float_output && last.current_scales && last.bits == 8);
    cr_assert(!ask(setters, n, "layer3", "conv2d", false).float_output);
}

Test(qconfig, patterns_fit_paths_and_all_below_a_name)
{
    static const struct {
        const char *pattern, *path;
        bool fits;
    } cases[] = {
        {"a", "a", true},
        {"a", "a.b.c", true},
        {"a", "ab", false},
        {"a.b", "a.b", true},
        {"a.b", "a", false},
        {"", "a", false},
        {"*", "a.b", true},
        {"a*", "a.b", true},
        {"a.*", "a", false},
        {"*.conv?", "x.y.conv1", true},
        {"*.conv?", "x.conv12", false},
        {"a*b*c", "axbxbc", true},
        {"a*b*c", "axbxb", false},
        {"??", "ab", true},
        {"??", "a", false},
        {"*a", "ba.a", true},
        {"**", "", true},
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        oct_qconfig_setter setter = oct_setter_by_name(cases[i].pattern, &eight);
        cr_assert_eq(!ask(&setter, 1, cases[i].path, "", false).none, cases[i].fits, "'%s' on '%s'",
                     cases[i].pattern, cases[i].path);
    }
}

static oct_sensitivity_row rows[] = {
    {.path = "a", .tensor = "activation", .sqnr = 1},
    {.path = "b", .tensor = "weight", .sqnr = 2},
    {.path = "b", .tensor = "activation", .sqnr = 3},
    {.path = "c", .tensor = "activation", .sqnr = 4},
    {.path = "d", .tensor = "activation", .sqnr = 5},
};
static const oct_sensitivity table = {.rows = rows, .count = OCT_COUNT(rows)};

/* The layers that get 16 bits, as letters. */
static void check_sensitive(int64_t topk, double ratio, const char *want)
{
    oct_qconfig_setter setters[2] = {{0}, oct_setter_default(&eight)};
    char got[8] = "", *end = got;
    MUST(oct_setter_sensitive(&setters[0], &table, topk, ratio, 16, true));
    for (const char *name = "a\0b\0c\0d\0"; *name; name += 2) {
        oct_qconfig qconfig = ask(setters, 2, name, "conv2d", false);
        cr_assert_eq(qconfig.fixed_scale, qconfig.bits == 16);
        if (qconfig.bits == 16) *end++ = *name;
    }
    *end = '\0';
    cr_assert_str_eq(got, want, "topk %lld, ratio %g", (long long)topk, ratio);
}

Test(qconfig, of_the_most_sensitive_layers_has_16_bits)
{
    check_sensitive(1, 0, "a");
    check_sensitive(2, 0, "a"); /* the table is cut before rows of weights are left out */
    check_sensitive(3, 0, "ab");
    check_sensitive(5, 0, "abcd");
    check_sensitive(0, 0.01, "a"); /* rounded up */
    check_sensitive(0, 0.41, "ab");
    check_sensitive(0, 0.6, "ab");
    check_sensitive(0, 1, "abcd");
}

Test(qconfig, from_a_sensitivity_table_wants_topk_or_ratio)
{
    static const struct {
        int64_t topk;
        double ratio;
        const char *problem;
    } cases[] = {
        {0, 0,
         "neither topk nor ratio says how many rows of the sensitivity table to use; give one"},
        {1, 0.5,
         "topk 1 and ratio 0.5 both say how many rows of the sensitivity table count; give "
         "only one"},
        {6, 0, "topk is 6, but the sensitivity table has 5 rows; give 1 to 5"},
        {-1, 0, "topk is -1, but the sensitivity table has 5 rows; give 1 to 5"},
        {0, -0.5, "ratio is -0.5; give a number above 0 and at most 1"},
        {0, 1.5, "ratio is 1.5; give a number above 0 and at most 1"},
    };
    oct_qconfig_setter setter;
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        cr_assert_eq(
            oct_setter_sensitive(&setter, &table, cases[i].topk, cases[i].ratio, 16, false),
            OCT_USAGE);
        cr_assert_str_eq(oct_error_message(0), cases[i].problem);
    }
    cr_assert_eq(oct_setter_sensitive(&setter, &(oct_sensitivity){0}, 1, 0, 16, false), OCT_USAGE);
    check_said("the sensitivity table is empty");
}

static void check_refused(oct_qconfig qconfig, const oct_target *target, const char *problem)
{
    cr_assert_eq(oct_qconfig_check(&qconfig, target), OCT_PREPARE);
    check_said(problem);
}

Test(qconfig, that_cannot_be_is_refused_with_the_remedy)
{
    oct_qconfig bad = eight;
    bad.observer = NULL;
    check_refused(bad, NULL, "no observer; set one, or `none` to keep the module float");
    bad.none = true;
    MUST(oct_qconfig_check(&bad, NULL));
    bad = eight;
    bad.fake_quant = NULL;
    check_refused(bad, NULL, "no fake-quant");
    const float averaging[] = {0.0f, -1.0f, 1.5f};
    for (size_t i = 0; i < OCT_COUNT(averaging); i++) {
        bad = eight;
        bad.averaging = averaging[i];
        check_refused(bad, NULL, "give a number above 0 and at most 1");
    }
    bad = eight;
    bad.bits = 4;
    check_refused(bad, &oct_target_x86, "asks for activations of 4 bits; give 8 or 16");
    MUST(oct_qconfig_check(&sixteen, &oct_target_x86));
    check_refused(sixteen, &oct_target_pow2,
                  "asks for 16-bit activations, which target pow2 does not have; give 8 bits, or "
                  "prepare for a target that has them, such as x86");
}

Test(qconfig, of_a_setter_that_cannot_be_names_the_setter)
{
    oct_qconfig bad = eight;
    bad.bits = 12;
    oct_qconfig_setter setters[] = {oct_setter_by_name("a", NULL), oct_setter_float_output(),
                                    oct_setter_default(&eight), oct_setter_by_type("linear", &bad)};
    MUST(oct_setters_check(setters, 3, &oct_target_pow2));
    cr_assert_eq(oct_setters_check(setters, 4, &oct_target_x86), OCT_PREPARE);
    check_said("by type: the qconfig asks for activations of 12 bits");
    MUST(oct_setter_sensitive(&setters[3], &table, 1, 0, 16, false));
    MUST(oct_setters_check(setters, 4, &oct_target_x86));
    cr_assert_eq(oct_setters_check(setters, 4, &oct_target_pow2), OCT_PREPARE);
    check_said("sensitive: the qconfig asks for 16-bit activations");
}

Test(qconfig, names_that_fit_nothing_are_said_with_the_nearest)
{
    static const char *const paths[] = {"layer1.conv1", "layer1.conv2", "head", "c"};
    static const char *const types[] = {"nothing"};
    oct_qconfig_setter setters[] = {
        oct_setter_by_name("layer1.conv3", &eight), oct_setter_by_name("layer1", &eight),
        oct_setter_by_name("tail.*", &eight),       {0},
        oct_setter_by_type("nothing", &eight),      oct_setter_default(&eight),
    };
    MUST(oct_setter_sensitive(&setters[3], &table, 2, 0, 16, false));
    oct_fail_clear();
    cr_assert_eq(
        oct_setters_check_words(setters, OCT_COUNT(setters), paths, OCT_COUNT(paths), types, 1),
        OCT_PREPARE);
    cr_assert_eq(oct_error_count(), 3);
    cr_assert_str_eq(oct_error_message(0),
                     "by name 'layer1.conv3': no module that can be quantized has "
                     "this path; did you mean 'layer1.conv1'?");
    cr_assert_str_eq(oct_error_message(1),
                     "by name 'tail.*': no module that can be quantized has this "
                     "path; `octet check` without it lists them");
    cr_assert_str_eq(oct_error_message(2),
                     "sensitive 'a': no module that can be quantized has this "
                     "path; `octet check` without it lists them");
    oct_fail_clear();
    MUST(oct_setters_check_words(setters + 4, 2, paths, OCT_COUNT(paths), types, 1));
}

static const oct_fake_quant_kind mine = {.name = "mine", .scale = NULL},
                                 also_mine = {.name = "mine"};
static const oct_observer my_observer = {.name = "my_observer"}, my_other = {.name = "my_observer"},
                          old_name = {.name = "min_max"};

Test(qconfig, parts_of_plug_ins_are_found_by_name_and_taken_once)
{
    size_t kinds = oct_registry_count(&oct_fake_quant_kind_table),
           observers = oct_registry_count(&oct_observer_table);
    cr_assert_null(oct_fake_quant_kind_find("mine"));
    MUST(oct_registry_add(&oct_fake_quant_kind_table, &mine));
    MUST(oct_registry_add(&oct_fake_quant_kind_table, &mine));
    cr_assert_eq(oct_fake_quant_kind_find("mine"), &mine);
    cr_assert_eq(oct_registry_count(&oct_fake_quant_kind_table), kinds + 1);
    cr_assert_eq(oct_registry_at(&oct_fake_quant_kind_table, kinds), &mine);
    cr_assert_eq(oct_registry_add(&oct_fake_quant_kind_table, &also_mine), OCT_USAGE);
    check_said("there is a fake-quant 'mine' already; give yours another name");
    MUST(oct_registry_add(&oct_observer_table, &my_observer));
    MUST(oct_registry_add(&oct_observer_table, &my_observer));
    cr_assert_eq(oct_observer_find("my_observer"), &my_observer);
    cr_assert_eq(oct_registry_count(&oct_observer_table), observers + 1);
    cr_assert_eq(oct_registry_add(&oct_observer_table, &my_other), OCT_USAGE);
    cr_assert_eq(oct_registry_add(&oct_observer_table, &old_name), OCT_USAGE);
    check_said("there is an observer 'min_max' already; give yours another name");
}

Test(qconfig, targets_say_what_they_fuse_and_run)
{
    cr_assert_eq(oct_target_find("x86"), &oct_target_x86);
    cr_assert_eq(oct_target_find("pow2"), &oct_target_pow2);
    cr_assert_null(oct_target_find("arm"));
    cr_assert(oct_target_fuses(&oct_target_x86, "conv_bn_add_relu"));
    cr_assert(!oct_target_fuses(&oct_target_pow2, "conv_bn_add_relu"));
    cr_assert(oct_target_fuses(&oct_target_pow2, "conv_bn_relu"));
    cr_assert(!oct_list_has(oct_target_pow2.no_ops, "softmax"));
    const oct_target weak = {.no_ops = (const char *const[]){"softmax", NULL}};
    cr_assert(oct_list_has(weak.no_ops, "softmax") && !oct_list_has(weak.no_ops, "add"));
}

Test(qconfig, as_words_of_a_recipe)
{
    static const struct {
        const char *text, *path, *type;
        bool none, fixed;
        int bits;
    } cases[] = {
        {"head=float", "head.0", "linear", true, false, 0},
        {"type:linear=int16", "head", "linear", false, false, 16},
        {"type:linear=int16_fixed", "head", "linear", false, true, 16},
        {"*.conv?=int8_fixed", "a.conv1", "conv2d", false, true, 8},
        {"a=b=int8", "a=b", "conv2d", false, false, 8}, /* the last sign separates */
    };
    oct_qconfig standard = eight, template;
    standard.current_scales = true;
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        oct_setter_words words;
        char flaw[512];
        cr_assert(oct_setter_parse(&words, cases[i].text, flaw), "%s", flaw);
        oct_qconfig_setter setter = oct_setter_of_words(&words, &standard, &template);
        oct_qconfig q = ask(&setter, 1, cases[i].path, cases[i].type, false);
        cr_assert_eq(q.none, cases[i].none, "%s", cases[i].text);
        if (q.none) continue;
        cr_assert(q.bits == cases[i].bits && q.fixed_scale == cases[i].fixed && q.current_scales,
                  "%s", cases[i].text);
        cr_assert(ask(&setter, 1, "other", "add", false).none);
        cr_assert_eq(words.qconfig->bits, q.bits);
    }
}

Test(qconfig, words_that_mean_nothing_are_refused_with_the_nearest)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"head=int61", "there is no template 'int61'; did you mean 'int16'?"},
        {"head=", "there is no template ''; write float, int8"},
        {"head", "'head' is no setter; write PATH=TEMPLATE or type:NAME=TEMPLATE"},
        {"=int8", "'=int8' is no setter"},
        {"type:=int8", "'type:=int8' is no setter"},
    };
    oct_setter_words words;
    char flaw[512], longest[400];
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        cr_assert_not(oct_setter_parse(&words, cases[i].text, flaw), "%s", cases[i].text);
        cr_assert(strstr(flaw, cases[i].words), "%s", flaw);
    }
    memset(longest, 'a', sizeof longest);
    snprintf(longest + 300, sizeof longest - 300, "=int8");
    cr_assert_not(oct_setter_parse(&words, longest, flaw));
}

/* The highest setter that applies to a place decides, whether or not it changes anything. */
Test(qconfig, names_the_setter_that_decided)
{
    char text[OCT_SETTER_BYTES];
    oct_sensitivity_row row = {.path = "deep", .tensor = "activation"};
    const oct_sensitivity one = {&row, 1};
    oct_qconfig_setter sensitive;
    MUST(oct_setter_sensitive(&sensitive, &one, 1, 0, 16, false));
    oct_qconfig_setter setters[] = {oct_setter_float_output(), oct_setter_by_type("add", &eight),
                                    oct_setter_by_name("a", NULL), sensitive,
                                    oct_setter_default(&eight)};
    static const struct {
        const char *path, *type, *decider;
    } cases[] = {{"a", "add", "by type 'type:add'"},
                 {"a.b", "conv2d", "by name 'a'"},
                 {"deep", "conv2d", "sensitive"},
                 {"else", "conv2d", "default"}};
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        oct_qconfig_site place = {cases[i].path, cases[i].type, true};
        cr_assert_str_eq(
            oct_setter_text(oct_qconfig_decider(setters, OCT_COUNT(setters), &place), text),
            cases[i].decider);
    }
    oct_qconfig_site place = {"else", "conv2d", true};
    cr_assert_null(oct_qconfig_decider(setters, 4, &place));
}

Test(qconfig, types_that_the_model_lacks_are_named_with_the_nearest)
{
    static const char *const types[] = {"conv2d", "conv2d", "linear", "add"};
    oct_qconfig_setter setters[] = {oct_setter_by_type("linear", &eight),
                                    oct_setter_by_type("liner", &eight),
                                    oct_setter_by_type("softmax", NULL)};
    oct_fail_clear();
    MUST(oct_setters_check_words(setters, 1, NULL, 0, types, OCT_COUNT(types)));
    cr_assert_eq(oct_setters_check_words(setters, 3, NULL, 0, types, OCT_COUNT(types)),
                 OCT_PREPARE);
    cr_assert_eq(oct_error_count(), 2);
    cr_assert_str_eq(oct_error_message(0),
                     "by type 'type:liner': the model has no module or op of this "
                     "type; did you mean 'linear'?");
    cr_assert_str_eq(oct_error_message(1),
                     "by type 'type:softmax': the model has no module or op of "
                     "this type; it has conv2d, linear, add");
}
