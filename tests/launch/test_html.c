/* The writer of pages, and curves in the terminal. */
#include "core/base/mem.h"
#include "launch/report/page_run.h"
#include "launch/report/page.h"
#include "launch/report/series.h"
#include "tests/support/check_status.h"
#include "tests/support/tmp.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* What the page holds between the marks. */
static void check_between(const oct_text *page, const char *begin, const char *end,
                          const char *wanted)
{
    const char *at = strstr(page->data, begin);
    cr_assert(at, "%s", page->data);
    at += strlen(begin);
    const size_t length = (size_t)(strstr(at, end) - at);
    cr_assert(length == strlen(wanted) && memcmp(at, wanted, length) == 0, "%.*s", (int)length, at);
}

/* Names that would end the script, begin a comment, steer a terminal or turn the direction of writing. */
Test(html, facts_stay_text_in_a_page)
{
    oct_text page = {0};
    json_t *facts = json_pack("{s:[s, s, s, s, f]}", "a", "</script><!--<script>", "\\u003c \"\\",
                              "\033[2J\r\n\t", "ü \xe2\x80\xae", 0.1);
    MUST(oct_page_write(&page, facts, "<ul></ul>"));
    check_between(&page, "id=\"facts\">", "<",
                  "{\"a\":[\"\\u003c/script>\\u003c!--\\u003cscript>\",\"\\\\u003c \\\"\\\\\","
                  "\"?[2J?\\n\\t\",\"ü ???\",0.1]}");
    check_between(&page, "see it.</p>\n", "\n</noscript>", "<ul></ul>");
    json_decref(facts);
    oct_text_free(&page);
    check_nothing_held();
}

Test(html, names_are_cut_between_characters)
{
    char many[499], cases[4][2][512];
    memset(many, 'a', sizeof many);
    snprintf(cases[0][0], 512, "%.499süb", many);
    snprintf(cases[0][1], 512, "%.499s…", many);
    snprintf(cases[1][0], 512, "%.498süb", many);
    snprintf(cases[1][1], 512, "%.498sü…", many);
    snprintf(cases[2][0], 512, "%.498sü", many);
    snprintf(cases[2][1], 512, "%.498sü", many);
    snprintf(cases[3][0], 512, "ab\377cd");
    snprintf(cases[3][1], 512, "ab?cd");
    for (size_t i = 0; i < 4; i++) {
        json_t *json = oct_page_name(cases[i][0]);
        cr_assert_str_eq(json_string_value(json), cases[i][1]);
        json_decref(json);
    }
}

/* The nth allocation fails: there is no report, or the whole one. */
Test(html, without_memory_there_is_no_report)
{
    oct_tmp run;
    oct_text whole = {0}, page = {0};
    oct_status status = OCT_RESOURCE;
    oct_tmp_create(&run);
    oct_tmp_write_text(&run, "recipe.yaml", "model: {name: cnn-small}\n");
    oct_tmp_write_text(&run, "metrics.jsonl",
                       "{\"schema_version\":1,\"kind\":\"format\"}\n"
                       "{\"kind\":\"step\",\"step\":1,\"phase\":\"float\",\"loss\":2.5}\n");
    MUST(oct_page_text(&whole, run.path, NULL, false));
    cr_assert(strstr(whole.data, "\"loss\":{\"step\":[1.0],\"value\":[2.5]}"), "%s", whole.data);
    for (int64_t nth = 1; status != OCT_OK; nth += nth / 8 + 1) {
        oct_mem_fail_after(nth);
        status = oct_page_text(&page, run.path, NULL, false);
        oct_mem_fail_after(0);
        cr_assert(status == OCT_OK || oct_fail_code() == OCT_RESOURCE, "%s", oct_error_message(0));
        oct_fail_clear();
        if (status == OCT_OK) cr_assert_str_eq(page.data, whole.data, "%lld", (long long)nth);
    }
    oct_text_free(&whole);
    oct_text_free(&page);
    oct_tmp_remove(&run);
    check_nothing_held();
}

static void fill_series(oct_series *series, size_t count)
{
    for (size_t i = 0; i < count; i++)
        MUST(oct_series_add(series, (double)i, i == 4321 ? 7 : sin((double)i / 500)));
}

Test(html, thin_series_keep_their_peaks_and_their_order)
{
    oct_series s = {0};
    fill_series(&s, 10000);
    oct_series_thin(&s, 100);
    cr_assert_leq(s.count, 100);
    bool peak = false;
    for (size_t i = 0; i < s.count; i++) {
        peak = peak || (s.x[i] == 4321 && s.y[i] == 7);
        cr_assert(i == 0 || s.x[i] > s.x[i - 1], "%zu", i);
    }
    cr_assert(peak);
    oct_series_free(&s);
    fill_series(&s, 30);
    oct_series_thin(&s, 100);
    cr_assert_eq(s.count, 30);
    oct_series_free(&s);
    check_nothing_held();
}

/* Ticks are round, rise, and the ends of the axis hold all values. */
Test(html, axes_hold_their_values_between_round_ticks)
{
    static const double ends[][2] = {{0, 1},       {0.3, 0.9},     {-5, 123},     {92.1, 92.4},
                                     {7, 7},       {0, 0},         {-1e-9, 1e-9}, {1e12, 3e15},
                                     {0.011, 950}, {1e-7, 2.5e-7}, {99.999, 100}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const double low = ends[i][0], high = ends[i][1];
        for (int logarithmic = 0; logarithmic < (low > 0 && high > low ? 2 : 1); logarithmic++) {
            oct_plot_axis a = logarithmic ? oct_plot_axis_logarithmic(low, high, 5)
                                          : oct_plot_axis_of(low, high, 5);
            char text[32];
            double slack = 1e-9 * fmax(fabs(low), fabs(high));
            cr_assert(a.low <= low + slack && a.high >= high - slack && a.low < a.high,
                      "%g to %g: %g to %g", low, high, a.low, a.high);
            cr_assert(a.count >= 2 && a.count <= OCT_TICKS_MAX, "%zu ticks", a.count);
            for (size_t t = 0; t < a.count; t++) {
                cr_assert(t == 0 || a.tick[t] > a.tick[t - 1]);
                cr_assert_leq(strlen(oct_plot_axis_text(&a, a.tick[t], text)), 9, "%s", text);
            }
            cr_assert_float_eq(oct_plot_axis_place(&a, a.low), 0, 1e-9);
            cr_assert_float_eq(oct_plot_axis_place(&a, a.high), 1, 1e-9);
        }
    }
}

Test(html, phases_follow_each_other_though_steps_are_missing)
{
    json_t *records =
        json_loads("[{\"step\":5,\"phase\":\"float\"},{\"step\":9,\"phase\":\"float\"},"
                   "{\"phase\":\"x\"},{\"step\":\"y\",\"phase\":\"z\"},{\"step\":20,"
                   "\"phase\":\"a phase with a name that is far too long\"}]",
                   0, NULL);
    oct_plot_spans spans = oct_plot_spans_of(records);
    cr_assert_eq(spans.count, 2);
    cr_assert(spans.span[0].begin == 0 && spans.span[0].end == 9);
    cr_assert(spans.span[1].begin == 9 && spans.span[1].end == 20);
    json_decref(records);
}

/* A rising line on a drawing of 31 x 4 characters, in ASCII. */
Test(html, a_terminal_plot_is_a_drawing_with_axes)
{
    oct_series s = {0};
    oct_text text = {0};
    oct_plot plot = {.title = "loss", .unit = ""};
    const oct_terminal terminal = {.columns = 40, .rows = 4};
    MUST(oct_series_add(&s, 0, 0));
    MUST(oct_series_add(&s, 30, 5));
    oct_plot_add(&plot, &s, "training");
    MUST(oct_terminal_plot(&plot, &terminal, &text));
    cr_assert_str_eq(text.data, "loss\n"
                                "      5 +                              *\n"
                                "        |                    **********\n"
                                "        |          **********\n"
                                "      0 +**********\n"
                                "        +-------------------------------\n"
                                "         0         10        20       30  step\n"
                                "         * training\n");
    oct_text_free(&text);
    oct_series_free(&s);
    check_nothing_held();
}

Test(html, what_is_not_finite_is_left_out)
{
    oct_series s = {0};
    oct_text text = {0};
    oct_plot plot = {.title = "loss", .unit = "", .free_scale = true};
    const oct_terminal terminal = {.columns = 40, .rows = 4};
    for (int i = 0; i < 6; i++)
        MUST(oct_series_add(&s, i, i == 2 ? (double)NAN : i == 4 ? (double)INFINITY : 1));
    oct_plot_add(&plot, &s, "training");
    MUST(oct_terminal_plot(&plot, &terminal, &text));
    cr_assert(!strstr(text.data, "nan") && !strstr(text.data, "inf") && strstr(text.data, "*"));
    oct_text_free(&text);
    oct_series_free(&s);
    oct_plot empty = {.title = "loss", .unit = ""};
    cr_assert_null(oct_plot_add(&empty, &s, "nothing"));
    MUST(oct_terminal_plot(&empty, &terminal, &text));
    cr_assert_null(text.data);
    check_nothing_held();
}
