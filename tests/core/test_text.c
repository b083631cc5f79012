/* Strict numbers, near names, growing strings. */
#include "core/base/mem.h"
#include "core/base/text.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

Test(text, integers_are_decimal_and_whole)
{
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"0", 0},
                {"-1", -1},
                {"+7", 7},
                {"007", 7},
                {"9223372036854775807", INT64_MAX},
                {"-9223372036854775808", INT64_MIN}};
    static const char *const bad[] = {"",
                                      " 1",
                                      "1 ",
                                      "1x",
                                      "0x10",
                                      "1.0",
                                      "1e3",
                                      "-",
                                      "+",
                                      "--1",
                                      "nan",
                                      "1_0",
                                      "1,",
                                      "\n1",
                                      "true",
                                      "9223372036854775808",
                                      "-9223372036854775809"};
    for (size_t i = 0; i < OCT_COUNT(good); i++) {
        int64_t value = 99;
        cr_assert(oct_parse_i64(good[i].text, &value), "%s", good[i].text);
        cr_assert_eq(value, good[i].value);
    }
    for (size_t i = 0; i < OCT_COUNT(bad); i++) {
        int64_t value = 99;
        cr_assert_not(oct_parse_i64(bad[i], &value), "%s", bad[i]);
        cr_assert_eq(value, 99);
    }
}

Test(text, reals_are_decimal_and_finite)
{
    static const struct {
        const char *text;
        double value;
    } good[] = {{"0", 0},      {"-1.5", -1.5}, {"+.5", .5},   {"1.", 1},       {"2e-4", 2e-4},
                {"2E+4", 2e4}, {"0.1", 0.1},   {"1e-999", 0}, {"1e308", 1e308}};
    static const char *const bad[] = {"",    " 1",   "1 ",    "1x",     "0x10",     "0x1p3", "nan",
                                      "inf", "-inf", "1e999", "-1e999", ".",        "-",     "e5",
                                      "1e",  "1e+",  "1,5",   "1.5.2",  "infinity", "1f"};
    for (size_t i = 0; i < OCT_COUNT(good); i++) {
        double value = 99;
        cr_assert(oct_parse_f64(good[i].text, &value), "%s", good[i].text);
        cr_assert_eq(value, good[i].value);
    }
    for (size_t i = 0; i < OCT_COUNT(bad); i++) {
        double value = 99;
        cr_assert_not(oct_parse_f64(bad[i], &value), "%s", bad[i]);
        cr_assert_eq(value, 99);
    }
}

Test(text, truth_is_true_or_false)
{
    bool value = false;
    cr_assert(oct_parse_bool("true", &value));
    cr_assert(value);
    cr_assert(oct_parse_bool("false", &value));
    cr_assert_not(value);
    static const char *const bad[] = {"", "True", "yes", "1", "on", "truee", " true"};
    for (size_t i = 0; i < OCT_COUNT(bad); i++)
        cr_assert_not(oct_parse_bool(bad[i], &value));
}

static const char *const names[] = {"learning_rate", "momentum", "lr", "leaf", "batch"};

static const char *nearest(const char *word)
{
    return oct_nearest(word, names, OCT_COUNT(names));
}

Test(text, a_hint_names_what_is_near_or_where_to_look)
{
    char text[OCT_HINT_BYTES], longest[64], want[OCT_HINT_BYTES];
    const char *const known[] = {"relu", longest};
    memset(longest, 'x', 63);
    longest[63] = '\0';
    snprintf(want, sizeof want, "did you mean '%s'?", longest);
    cr_assert_str_eq(oct_did_you_mean(text, "rely", known, 2, "see there"), "did you mean 'relu'?");
    cr_assert_str_eq(oct_did_you_mean(text, longest, known, 2, "see there"), want);
    static const char *const losses[] = {"cross_entropy", "mse", "mae"};
    cr_assert_str_eq(oct_nearest("ce", losses, 3), "cross_entropy");
    cr_assert_str_eq(oct_nearest("l1", losses, 3), "mae");
    cr_assert_null(oct_nearest("acc", losses, 3), "no name of another list");
    cr_assert_str_eq(oct_did_you_mean(text, "zzz", known, 2, "see there"), "see there");
}

Test(text, near_names_are_found)
{
    cr_assert_str_eq(nearest("learning_rat"), "learning_rate");
    cr_assert_str_eq(nearest("learnign_rate"), "learning_rate");
    cr_assert_str_eq(nearest("learningrate"), "learning_rate");
    cr_assert_str_eq(nearest("momentun"), "momentum");
    cr_assert_str_eq(nearest("mometnum"), "momentum");
    cr_assert_str_eq(nearest("batch"), "batch");
    cr_assert_str_eq(nearest("bathc"), "batch");
    cr_assert_str_eq(nearest("lef"), "leaf");
}

Test(text, far_names_are_not)
{
    cr_assert_null(nearest("epochs"));
    cr_assert_null(nearest(""));
    cr_assert_null(nearest("xx"));
    cr_assert_null(oct_nearest("x", NULL, 0));
    char longest[200];
    memset(longest, 'l', sizeof longest - 1);
    longest[199] = '\0';
    cr_assert_null(nearest(longest));
}

Test(text, a_name_is_near_by_the_beginning_of_a_part)
{
    static const char *const recipes[] = {"cifar10-resnet20", "fashion-mnist", "segmentation"};
    static const char *const words[][2] = {
        {"fashion", "fashion-mnist"},   {"fashon", "fashion-mnist"},
        {"MNIST", "fashion-mnist"},     {"segm", "segmentation"},
        {"resnet", "cifar10-resnet20"}, {"cifar", "cifar10-resnet20"}};
    for (size_t i = 0; i < OCT_COUNT(words); i++)
        cr_assert_str_eq(oct_nearest(words[i][0], recipes, 3), words[i][1]);
    cr_assert_null(oct_nearest("fx", recipes, 3));
    cr_assert_null(oct_nearest("ashion", recipes + 2, 1));
}

Test(text, sizes_have_three_digits_and_a_unit)
{
    static const struct {
        int64_t bytes;
        const char *text;
    } sizes[] = {{0, "0 bytes"},
                 {999, "999 bytes"},
                 {1000, "1.00 kB"},
                 {9994, "9.99 kB"},
                 {9995, "10.0 kB"},
                 {99949, "99.9 kB"},
                 {99950, "100 kB"},
                 {999499, "999 kB"},
                 {999500, "1.00 MB"},
                 {1 << 30, "1.07 GB"},
                 {INT64_C(15) << 40, "16.5 TB"}};
    for (size_t i = 0; i < OCT_COUNT(sizes); i++)
        cr_assert_str_eq(oct_text_size(sizes[i].bytes).text, sizes[i].text);
}

Test(text, of_equally_near_names_the_first_is_taken)
{
    const char *const near[] = {"cota", "cotb"};
    cr_assert_eq(oct_nearest("cotc", near, 2), near[0]);
}

Test(text, strings_grow)
{
    oct_text text = {0};
    cr_assert_eq(oct_text_add(&text, "%s", ""), OCT_OK);
    cr_assert_str_eq(text.data, "");
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(oct_text_add(&text, "%03d,", i), OCT_OK);
    cr_assert_eq(text.length, 4000);
    cr_assert_eq(strlen(text.data), 4000);
    cr_assert(strncmp(text.data + 4 * 567, "567,", 4) == 0);
    oct_text_free(&text);
    cr_assert_null(text.data);
    cr_assert_eq(text.length, 0);
    oct_mem_fail_after(1);
    cr_assert_eq(oct_text_add(&text, "x"), OCT_RESOURCE);
    oct_text_free(&text);
    cr_assert_eq(oct_mem_live(), 0);
}

Test(text, seconds_go_forward)
{
    double before = oct_seconds(), after = oct_seconds();
    cr_assert_geq(after, before);
    cr_assert_lt(after - before, 10);
}

Test(text, what_is_shown_cannot_steer_a_terminal)
{
    static const struct {
        const char *text, *clean;
    } cases[] = {
        {"plain text\twith tab\n", "plain text\twith tab\n"},
        {"caf\xc3\xa9 \xe2\x86\x92 \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe2\x86\x92 \xf0\x9f\x98\x80"},
        {"\033[31mred\r\b\x7f", "?[31mred???"},
        {"\xc2\x9b"
         "31m",
         "??31m"}, /* CSI in two bytes */
        {"a\xe2\x80\xae"
         "b",
         "a???b"},                         /* right to left */
        {"\xff\xc3", "??"},                /* no UTF-8 */
        {"\xc0\x9b\xe0\x80\x9b", "?????"}, /* characters in too many bytes */
        {"\xed\xa0\x80\xf5\x80\x80\x80", "???????"},
        {"\xe2\x86", "??"}, /* cut short */
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        char text[64];
        snprintf(text, sizeof text, "%s", cases[i].text);
        oct_text_clean(text);
        cr_assert_str_eq(text, cases[i].clean);
    }
}
