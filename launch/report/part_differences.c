/* What two runs differ in: their recipes and their results. */
#include "launch/report/part.h"

#include <string.h>

static size_t key_length(const char *line)
{
    return strcspn(line, ":");
}

static void write_value(oct_page *r, const char *line)
{
    char value[256];
    const char *at = line + key_length(line) + 1;
    size_t length = strcspn(at, "\n");
    if (length >= sizeof value) length = sizeof value - 1;
    memcpy(value, at, length);
    value[length] = '\0';
    oct_html_put(&r->html, "<td>");
    oct_html_cut(&r->html, value[0] == ' ' ? value + 1 : value, 120);
    oct_html_put(&r->html, "</td>");
}

static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');
    return end ? end + 1 : line + strlen(line);
}

static void write_recipes(oct_page *r)
{
    size_t rows = 0;
    const char *a = r->run[0].recipe_text.data, *b = r->run[1].recipe_text.data;
    if (!a || !b) {
        for (int i = 0; i < 2; i++)
            oct_page_say_why(r, &r->run[i], OCT_RUN_FILE_RECIPE);
        return;
    }
    for (; *a && *b; a = next_line(a), b = next_line(b)) {
        char key[64];
        size_t length = (size_t)(next_line(a) - a), letters = key_length(a);
        if (length == (size_t)(next_line(b) - b) && memcmp(a, b, length) == 0) continue;
        if (letters >= sizeof key) letters = sizeof key - 1;
        memcpy(key, a, letters);
        key[letters] = '\0';
        if (rows++ == 0) oct_page_table(r, "Keys of the recipe that differ", "key|A|B");
        oct_html_put(&r->html, "<tr><th scope=\"row\">%s</th>", key);
        write_value(r, a);
        write_value(r, b);
        oct_html_put(&r->html, "</tr>\n");
    }
    if (rows)
        oct_page_table_end(r);
    else
        oct_html_put(&r->html, "<p>Both runs have the same recipe.</p>\n");
}

static void write_results(oct_page *r)
{
    static const struct {
        const char *key, *name;
    } rows[] = {
        {"float_accuracy", "float accuracy, %"},    {"qat_accuracy", "QAT accuracy, %"},
        {"int8_accuracy", "int8 accuracy, %"},      {"logits_differ", "logits that differ"},
        {"float_bytes", "float parameters, bytes"}, {"int8_bytes", "int8 parameters, bytes"}};
    if (!r->run[0].result || !r->run[1].result) {
        oct_page_missing(r, "Results are compared when both runs are finished.");
        return;
    }
    oct_page_table(r, "Results", "figure|A#|B#|B − A#");
    for (size_t i = 0; i < OCT_COUNT(rows); i++) {
        double a = oct_page_number(r->run[0].result, rows[i].key),
               b = oct_page_number(r->run[1].result, rows[i].key);
        oct_html_put(&r->html, "<tr><th scope=\"row\">%s</th>", rows[i].name);
        oct_page_cell(r, a);
        oct_page_cell(r, b);
        oct_page_cell(r, b - a);
        oct_html_put(&r->html, "</tr>\n");
    }
    oct_page_table_end(r);
}

static void write(oct_page *r)
{
    write_results(r);
    write_recipes(r);
}

const oct_page_part oct_page_part_differences = {
    .id = "differences",
    .title = "What differs",
    .write = write,
    .least_runs = 2,
};
