/* The writer of pages and the curves on them. */
#include "launch/report/html.h"
#include "launch/report/plot.h"
#include "launch/report/terminal_plot.h"
#include "tests/support/check_status.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static void check_page_is(oct_html *html, const char *wanted)
{
    MUST(html->status);
    cr_assert_str_eq(html->text.data, wanted);
    oct_text_free(&html->text);
    check_nothing_held();
}

Test(html, escapes_every_string_and_nothing_of_the_format)
{
    oct_html html = {0};
    oct_html_put(&html, "<b title=\"%s\">%s</b>", "\" onload='x'", "<script>&amp;</script>");
    check_page_is(&html, "<b title=\"&quot; onload=&#39;x&#39;\">&lt;script&gt;&amp;amp;"
                         "&lt;/script&gt;</b>");
}

Test(html, writes_numbers_of_every_conversion)
{
    oct_html html = {0};
    oct_html_put(&html, "%d %ld %lld %zu %.2f %.3g 5%%", -1, -2L, 3LL, (size_t)4, 1.005, 12345.0);
    check_page_is(&html, "-1 -2 3 4 1.00 1.23e+04 5%");
}

Test(html, cuts_between_characters)
{
    oct_html html = {0};
    oct_html_cut(&html, "ä<ö>ü", 3);
    oct_html_cut(&html, "|", 3);
    check_page_is(&html, "ä&lt;ö…|");
}

Test(html, writes_numbers_for_people)
{
    oct_html html = {0};
    const double numbers[] = {0.012345, 12, 123456, 1e9, INFINITY, NAN};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        oct_html_number(&html, numbers[i]);
        oct_html_put(&html, " ");
    }
    check_page_is(&html, "0.01235 12 123456 1e+09 ∞ not a number ");
}

Test(html, writes_nothing_behind_the_first_failure)
{
    oct_html html = {0};
    oct_mem_fail_after(1);
    oct_html_put(&html, "%s", "one");
    oct_mem_fail_after(0);
    cr_assert_eq(html.status, OCT_RESOURCE);
    oct_html_put(&html, "two");
    cr_assert_eq(html.text.length, 0);
    check_nothing_held();
}

static void fill(oct_series *series, size_t count)
{
    for (size_t i = 0; i < count; i++)
        MUST(oct_series_add(series, (double)i, i == 4321 ? 7 : sin((double)i / 500)));
}

Test(html, thin_series_keep_their_peaks_and_their_order)
{
    oct_series s = {0};
    fill(&s, 10000);
    oct_series_thin(&s, 100);
    cr_assert_leq(s.count, 100);
    bool peak = false;
    for (size_t i = 0; i < s.count; i++) {
        peak = peak || (s.x[i] == 4321 && s.y[i] == 7);
        cr_assert(i == 0 || s.x[i] > s.x[i - 1], "%zu", i);
    }
    cr_assert(peak);
    oct_series_free(&s);
    fill(&s, 30);
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
    oct_html html = {0};
    oct_plot plot = {.title = "loss", .unit = "", .scale = OCT_SCALE_FREE};
    for (int i = 0; i < 6; i++)
        MUST(oct_series_add(&s, i, i == 2 ? (double)NAN : i == 4 ? (double)INFINITY : 1));
    oct_plot_add(&plot, &s, "training");
    oct_plot_draw(&plot, &html);
    MUST(html.status);
    cr_assert(!strstr(html.text.data, "nan,") && strstr(html.text.data, "<path"));
    const char *path = strstr(html.text.data, "<path");
    cr_assert(!memmem(path, strcspn(path, ">"), "nan", 3));
    oct_text_free(&html.text);
    oct_series_free(&s);
    oct_plot empty = {.title = "loss", .unit = ""};
    cr_assert_null(oct_plot_add(&empty, &s, "nothing"));
    oct_plot_draw(&empty, &html);
    cr_assert_null(html.text.data);
    check_nothing_held();
}
