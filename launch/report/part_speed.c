/* How fast the run was, and what memory it took. */
#include "launch/report/part.h"
#include "launch/report/plot.h"

#include <stdio.h>

static void draw(oct_page *r)
{
    oct_series series[OCT_PAGE_RUNS] = {0};
    oct_plot plot = {.title = "throughput", .unit = "images/s", .scale = OCT_SCALE_ZERO};
    const oct_plot_spans spans = oct_plot_spans_of(r->run[0].records);
    plot.spans = &spans;
    for (int i = 0; i < r->runs; i++) {
        char name[64];
        if (r->html.status == OCT_OK)
            r->html.status =
                oct_series_of(&series[i], oct_page_run_records(&r->run[i], "step"), "images_per_s");
        snprintf(name, sizeof name, r->runs > 1 ? "%s training" : "training%.0s",
                 oct_page_letter(i));
        oct_plot_curve *curve = oct_plot_add(&plot, &series[i], name);
        if (curve) curve->colour = i;
    }
    oct_html_put(&r->html, "<div class=\"plots\">\n");
    oct_plot_draw(&plot, &r->html);
    for (int i = 0; i < r->runs; i++)
        oct_series_free(&series[i]);
}

static void write_phases(oct_page *r, const oct_page_run *run)
{
    size_t i, rows = 0;
    const json_t *record;
    json_array_foreach(oct_page_run_records(run, "phase"), i, record)
    {
        const char *phase = json_string_value(json_object_get(record, "phase"));
        if (!phase || rows == r->limits.rows) continue;
        if (rows++ == 0)
            oct_page_table(r, "Phases",
                           "phase|steps#|images#|seconds#|of them waiting for samples#|"
                           "images/s#|peak memory of rank 0, bytes#");
        oct_html_put(&r->html, "<tr><th scope=\"row\">");
        oct_html_cut(&r->html, phase, 32);
        oct_html_put(&r->html, "</th>");
        oct_page_count_cell(r, oct_page_number(record, "steps"));
        oct_page_count_cell(r, oct_page_number(record, "images"));
        oct_page_cell(r, oct_page_number(record, "seconds"));
        oct_page_cell(r, oct_page_number(record, "data_seconds"));
        oct_page_cell(r, oct_page_number(record, "images_per_s"));
        oct_page_count_cell(r, oct_page_number(record, "memory_bytes"));
        oct_html_put(&r->html, "</tr>\n");
    }
    if (rows) oct_page_table_end(r);
    json_array_foreach(oct_page_run_records(run, "phase"), i, record)
    {
        const char *worse = json_string_value(json_object_get(record, "worse"));
        if (worse) oct_html_put(&r->html, "<p class=\"note\">");
        if (worse) oct_html_cut(&r->html, worse, 400);
        if (worse) oct_html_put(&r->html, "</p>\n");
    }
    if (!rows) oct_page_missing(r, "No phase has ended yet.");
}

static void write(oct_page *r)
{
    draw(r);
    oct_html_put(&r->html, "<div class=\"wide\">\n");
    oct_page_each(r, write_phases);
    oct_html_put(&r->html, "</div></div>\n");
}

const oct_page_part oct_page_part_speed = {
    .id = "speed",
    .title = "Throughput and memory",
    .write = write,
};
