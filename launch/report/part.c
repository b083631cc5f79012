/* Parts share these. */
#include "launch/report/part.h"

#include "launch/session/progress.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

const char *oct_page_title(const oct_page *r, const oct_page_run *run)
{
    const bool same =
        r->runs > 1 && strcmp(oct_page_run_name(&r->run[0]), oct_page_run_name(&r->run[1])) == 0;
    return same && run->recipe_text.data ? run->recipe.output : oct_page_run_name(run);
}

const char *oct_page_letter(int run)
{
    return run == 0 ? "A" : "B";
}

void oct_page_each(oct_page *r, void (*write)(oct_page *r, const oct_page_run *run))
{
    for (int i = 0; i < r->runs; i++) {
        if (r->runs > 1)
            oct_html_put(&r->html, "<h3><span class=\"run r%d\">%s</span> %s</h3>\n", i,
                         oct_page_letter(i), oct_page_title(r, &r->run[i]));
        write(r, &r->run[i]);
    }
}

void oct_page_missing(oct_page *r, const char *sentence)
{
    oct_html_put(&r->html, "<p class=\"missing\">%s</p>\n", sentence);
}

void oct_page_say_why(oct_page *r, const oct_page_run *run, oct_run_file file)
{
    if (run->why[file]) oct_page_missing(r, run->why[file]);
}

void oct_page_table(oct_page *r, const char *caption, const char *columns)
{
    oct_html *h = &r->html;
    oct_html_put(h,
                 "<div class=\"box\" tabindex=\"0\" role=\"region\" aria-label=\"%s\"><table>"
                 "<caption>%s</caption><thead><tr>",
                 caption, caption);
    while (*columns) {
        char title[64];
        size_t length = strcspn(columns, "|");
        bool number = length > 0 && columns[length - 1] == '#';
        size_t letters = length - number;
        OCT_ASSERT(letters < sizeof title);
        memcpy(title, columns, letters);
        title[letters] = '\0';
        oct_html_put(h,
                     number ? "<th class=\"n\" scope=\"col\">%s</th>" : "<th scope=\"col\">%s</th>",
                     title);
        columns += length + (columns[length] == '|');
    }
    oct_html_put(h, "</tr></thead><tbody>\n");
}

void oct_page_table_end(oct_page *r)
{
    oct_html_put(&r->html, "</tbody></table></div>\n");
}

void oct_page_cell(oct_page *r, double value)
{
    oct_html_put(&r->html, "<td class=\"n\">");
    if (isnan(value))
        oct_html_put(&r->html, "–");
    else
        oct_html_number(&r->html, value);
    oct_html_put(&r->html, "</td>");
}

void oct_page_count_cell(oct_page *r, double value)
{
    char text[32];
    bool is = isfinite(value) && fabs(value) < 9e18;
    oct_html_put(&r->html, "<td class=\"n\">%s</td>",
                 is ? oct_text_count((int64_t)value, text) : "–");
}

void oct_page_file(oct_page *r, const char *summary, const char *text)
{
    oct_html_put(&r->html, "<details><summary>%s</summary><pre class=\"box\" tabindex=\"0\">",
                 summary);
    oct_html_cut(&r->html, text, r->limits.text);
    oct_html_put(&r->html, "</pre></details>\n");
}

double oct_page_number(const json_t *record, const char *key)
{
    const json_t *value = json_object_get(record, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

void oct_page_json(oct_page *r, const json_t *value)
{
    oct_html *h = &r->html;
    size_t i;
    const json_t *item;
    switch (json_typeof(value)) {
    case JSON_STRING:
        oct_html_cut(h, json_string_value(value), 200);
        return;
    case JSON_INTEGER:
        oct_html_put(h, "%lld", (long long)json_integer_value(value));
        return;
    case JSON_REAL:
        oct_html_number(h, json_real_value(value));
        return;
    case JSON_TRUE:
    case JSON_FALSE:
        oct_html_put(h, "%s", json_is_true(value) ? "yes" : "no");
        return;
    case JSON_ARRAY:
        json_array_foreach(value, i, item)
        {
            if (i == r->limits.rows) {
                oct_html_put(h, " … (%zu in all)", json_array_size(value));
                return;
            }
            if (i) oct_html_put(h, " ");
            if (!json_is_array(item) && !json_is_object(item)) oct_page_json(r, item);
        }
        return;
    case JSON_OBJECT:
    case JSON_NULL:
        return;
    }
}
