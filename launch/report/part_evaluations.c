/* The evaluations as numbers. */
#include "launch/report/part.h"

#include <string.h>

enum { METRICS_MAX = 8 };

static void write_metrics(oct_page *r, const json_t *record)
{
    const char *name;
    json_t *value;
    size_t shown = 0;
    oct_html_put(&r->html, "<td>");
    json_object_foreach(json_object_get(record, "metrics"), name, value)
    {
        if (!json_is_number(value) || shown == METRICS_MAX) continue;
        oct_html_put(&r->html, shown++ ? ", " : "");
        oct_html_cut(&r->html, name, 32);
        oct_html_put(&r->html, " ");
        oct_html_number(&r->html, json_number_value(value));
    }
    oct_html_put(&r->html, shown ? "</td>" : "–</td>");
}

static void write_row(oct_page *r, const json_t *record)
{
    const char *phase = json_string_value(json_object_get(record, "phase"));
    oct_html_put(&r->html, "<tr>");
    oct_page_count_cell(r, oct_page_number(record, "step"));
    oct_html_put(&r->html, "<td>");
    oct_html_cut(&r->html, phase ? phase : "", 32);
    oct_html_put(&r->html, "</td>");
    oct_page_count_cell(r, oct_page_number(record, "epoch"));
    oct_page_count_cell(r, oct_page_number(record, "correct"));
    oct_page_count_cell(r, oct_page_number(record, "images"));
    oct_page_cell(r, oct_page_number(record, "accuracy"));
    write_metrics(r, record);
    oct_page_cell(r, oct_page_number(record, "images_per_s"));
    oct_html_put(&r->html, "</tr>\n");
}

/* Of many evaluations those stand here that lie evenly, the last among them. */
static void write_run(oct_page *r, const oct_page_run *run)
{
    const json_t *evaluations = oct_page_run_records(run, "eval");
    size_t all = json_array_size(evaluations), i;
    size_t every = (all + r->limits.rows - 1) / r->limits.rows;
    const json_t *record;
    if (!all) {
        oct_page_missing(r, "Nothing has been evaluated yet.");
        return;
    }
    oct_page_table(r, every > 1 ? "Evaluations (some of them)" : "Evaluations",
                   "step#|phase|epoch#|right#|images#|accuracy, %#|other metrics|images/s#");
    json_array_foreach(evaluations, i, record) if ((all - 1 - i) % every == 0) write_row(r, record);
    oct_page_table_end(r);
}

static void write(oct_page *r)
{
    oct_page_each(r, write_run);
}

const oct_page_part oct_page_part_evaluations = {
    .id = "evaluations",
    .title = "Evaluations",
    .write = write,
};
