/* Which classes are taken for which: a table of few classes, a picture of many. */
#include "launch/report/part.h"
#include "launch/session/progress.h"

#include <math.h>
#include <stdlib.h>

enum { CLASSES_MAX = 100, TABLE_MAX = 24, SHADES = 8, MISTAKES = 12 };

typedef struct confusion {
    size_t classes;
    const json_t *names;                    /* of the classes; NULL or too short: numbers */
    double count[CLASSES_MAX][CLASSES_MAX]; /* of label, prediction */
    double of_label[CLASSES_MAX];
} confusion;

/* False: the record is none that can be drawn. */
static bool read_counts(const json_t *record, confusion *c)
{
    const json_t *counts = json_object_get(record, "counts");
    c->classes = json_array_size(counts);
    c->names = json_object_get(record, "names");
    if (c->classes < 1 || c->classes > CLASSES_MAX) return false;
    for (size_t label = 0; label < c->classes; label++) {
        const json_t *row = json_array_get(counts, label);
        if (json_array_size(row) != c->classes) return false;
        for (size_t p = 0; p < c->classes; p++) {
            c->count[label][p] = json_number_value(json_array_get(row, p));
            if (!(c->count[label][p] >= 0)) return false;
            c->of_label[label] += c->count[label][p];
        }
    }
    return true;
}

static void write_name(oct_html *h, const confusion *c, size_t class)
{
    const char *name = json_string_value(json_array_get(c->names, class));
    if (name)
        oct_html_cut(h, name, 24);
    else
        oct_html_put(h, "%zu", class);
}

/* Shade 0 is nothing; the others go up with the square root of the share. */
static int shade_of(const confusion *c, size_t label, size_t predicted)
{
    double count = c->count[label][predicted];
    if (count <= 0 || c->of_label[label] <= 0) return 0;
    return 1 + (int)fmin(SHADES - 2, sqrt(count / c->of_label[label]) * (SHADES - 1));
}

static void write_table(oct_page *r, const confusion *c)
{
    oct_html *h = &r->html;
    oct_html_put(h, "<div class=\"box\" tabindex=\"0\" role=\"region\" aria-label=\"Confusion "
                    "matrix\"><table class=\"confusion\"><caption>Rows are true classes, columns "
                    "what the model says</caption><thead><tr><td></td>");
    for (size_t p = 0; p < c->classes; p++) {
        oct_html_put(h, "<th class=\"n\" scope=\"col\">");
        write_name(h, c, p);
        oct_html_put(h, "</th>");
    }
    oct_html_put(h, "<th class=\"n\" scope=\"col\">right, %%</th></tr></thead><tbody>\n");
    for (size_t label = 0; label < c->classes; label++) {
        oct_html_put(h, "<tr><th scope=\"row\">");
        write_name(h, c, label);
        oct_html_put(h, "</th>");
        for (size_t p = 0; p < c->classes; p++)
            oct_html_put(h, "<td class=\"n %s s%d\">%.0f</td>", p == label ? "hit" : "miss",
                         shade_of(c, label, p), c->count[label][p]);
        oct_page_cell(r, 100 * c->count[label][label] / c->of_label[label]);
        oct_html_put(h, "</tr>\n");
    }
    oct_html_put(h, "</tbody></table></div>\n");
}

static void draw_shade(oct_html *h, const confusion *c, int shade, bool right)
{
    bool any = false;
    for (size_t label = 0; label < c->classes; label++) {
        for (size_t p = 0; p < c->classes; p++) {
            if (shade_of(c, label, p) != shade || (p == label) != right) continue;
            if (!any) oct_html_put(h, "<path class=\"%s s%d\" d=\"", right ? "hit" : "miss", shade);
            any = true;
            oct_html_put(h, "M%zu %zuh1v1h-1z", p, label);
        }
    }
    if (any) oct_html_put(h, "\"/>");
}

static void write_picture(oct_page *r, const confusion *c)
{
    oct_html *h = &r->html;
    oct_html_put(
        h,
        "<figure class=\"matrix\"><figcaption>Rows are true classes, columns what the model "
        "says</figcaption><svg viewBox=\"0 0 %zu %zu\" role=\"img\"><title>Confusion "
        "matrix of %zu classes</title><rect class=\"span0\" width=\"%zu\" "
        "height=\"%zu\"/>",
        c->classes, c->classes, c->classes, c->classes, c->classes);
    for (int shade = 1; shade < SHADES; shade++) {
        draw_shade(h, c, shade, false);
        draw_shade(h, c, shade, true);
    }
    oct_html_put(h, "</svg></figure>\n");
}

typedef struct mistake {
    size_t label, predicted;
    double count;
} mistake;

/* The largest counts off the diagonal, the first ones of equal counts. */
static size_t find_mistakes(const confusion *c, mistake *most)
{
    size_t found = 0;
    for (size_t label = 0; label < c->classes; label++) {
        for (size_t p = 0; p < c->classes; p++) {
            mistake m = {label, p, c->count[label][p]};
            if (p == label || m.count <= 0) continue;
            if (found == MISTAKES && m.count <= most[MISTAKES - 1].count) continue;
            size_t at = found < MISTAKES ? found++ : MISTAKES - 1;
            for (; at > 0 && most[at - 1].count < m.count; at--)
                most[at] = most[at - 1];
            most[at] = m;
        }
    }
    return found;
}

static void write_mistakes(oct_page *r, const confusion *c)
{
    mistake most[MISTAKES];
    size_t found = find_mistakes(c, most);
    if (!found) return;
    oct_page_table(r, "Most frequent mistakes", "true class|taken for|how often#|of its class, %#");
    for (size_t i = 0; i < found; i++) {
        oct_html_put(&r->html, "<tr><td>");
        write_name(&r->html, c, most[i].label);
        oct_html_put(&r->html, "</td><td>");
        write_name(&r->html, c, most[i].predicted);
        oct_html_put(&r->html, "</td>");
        oct_page_count_cell(r, most[i].count);
        oct_page_cell(r, 100 * most[i].count / c->of_label[most[i].label]);
        oct_html_put(&r->html, "</tr>\n");
    }
    oct_page_table_end(r);
}

static void write_run(oct_page *r, const oct_page_run *run)
{
    static confusion c;
    const json_t *record = oct_page_run_record(run, "confusion");
    c = (confusion){0};
    if (!record) {
        oct_page_missing(r, "No confusion matrix has been recorded; runs that classify record one "
                            "at their end.");
        return;
    }
    if (!read_counts(record, &c)) {
        oct_page_missing(r, "metrics.jsonl: the confusion matrix is not one of 1 to 100 classes "
                            "with a count for each pair.");
        return;
    }
    if (c.classes <= TABLE_MAX)
        write_table(r, &c);
    else
        write_picture(r, &c);
    write_mistakes(r, &c);
}

static void write(oct_page *r)
{
    oct_page_each(r, write_run);
}

const oct_page_part oct_page_part_confusion = {
    .id = "confusion",
    .title = "Confusion matrix",
    .write = write,
};
