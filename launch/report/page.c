/* The frame of a report: header, contents, parts. */
#include "launch/report/page.h"

#include "core/base/mem.h"
#include "io/file/file.h"
#include "launch/report/part.h"
#include "launch/evaluate/evaluate.h"
#include "launch/session/progress.h"
#include "launch/runfolder/run_folder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const oct_page_part *const parts[] = {
#define OCT_PAGE_PART(name) &oct_page_part_##name,
#include "launch/report/part_list.def"
#undef OCT_PAGE_PART
};

static const oct_page_limits most = {
    .layers = 200, .steps = 400, .rows = 60, .images = 24, .text = (size_t)96 << 10};

/* The header: a tile for each figure that people look for first. */

static void tile(oct_html *h, const char *name, const char *value, const char *note)
{
    oct_html_put(h, "<div class=\"tile\"><dt>%s</dt><dd>%s</dd><dd class=\"note\">%s</dd></div>",
                 name, value, note);
}

static void percent_tile(oct_html *h, const char *name, double value, const char *note)
{
    char text[48];
    if (isnan(value)) return;
    oct_snprintf(text, sizeof text, "%.2f %%", value);
    tile(h, name, text, note);
}

static void proof_tile(oct_html *h, const json_t *result)
{
    char differ[32], logits[32], images[32], note[120];
    snprintf(note, sizeof note, "of %s (%s images, QAT against int8)",
             oct_text_count(json_integer_value(json_object_get(result, "logits")), logits),
             oct_text_count(json_integer_value(json_object_get(result, "images")), images));
    tile(h, "logits that differ",
         oct_text_count(json_integer_value(json_object_get(result, "logits_differ")), differ),
         note);
}

static void size_tile(oct_html *h, const json_t *result)
{
    double before = oct_page_number(result, "float_bytes"),
           after = oct_page_number(result, "int8_bytes");
    char value[48], note[96], bytes[32];
    if (!(before > 0) || !(after > 0)) return;
    snprintf(value, sizeof value, "%s bytes", oct_text_count((int64_t)after, bytes));
    oct_snprintf(note, sizeof note, "%.2f times smaller than float", before / after);
    tile(h, "int8 parameters", value, note);
}

static double seconds_of(const oct_page_run *run)
{
    double seconds = 0;
    size_t i;
    const json_t *record;
    json_array_foreach(oct_page_run_records(run, "phase"), i, record)
    {
        double more = oct_page_number(record, "seconds");
        if (more > 0) seconds += more;
    }
    return seconds;
}

static void accuracy_tiles(oct_html *h, const json_t *result)
{
    percent_tile(h, "float accuracy", oct_page_number(result, "float_accuracy"),
                 "before quantization");
    percent_tile(h, "QAT accuracy", oct_page_number(result, "qat_accuracy"), "as it was trained");
    percent_tile(h, "int8 accuracy", oct_page_number(result, "int8_accuracy"), "as it is deployed");
}

/* "71.20 %"; of a metric of a plug-in, which this process may not know, the number alone. */
static const char *figure(const char *name, const json_t *value, char text[OCT_FIGURE_TEXT])
{
    const oct_metric *metric = oct_metric_find(name);
    if (metric && json_is_number(value))
        return oct_figure_text(metric, json_number_value(value), text);
    if (json_is_number(value))
        oct_snprintf(text, OCT_FIGURE_TEXT, "%.5g", json_number_value(value));
    else
        snprintf(text, OCT_FIGURE_TEXT, "not defined");
    return text;
}

static void metric_tiles(oct_html *h, const json_t *result)
{
    enum { METRICS_MAX = 4 };
    const json_t *before = json_object_get(result, "float_metrics");
    const char *name;
    json_t *value;
    int shown = 0;
    json_object_foreach(json_object_get(result, "metrics"), name, value)
    {
        char title[64], text[OCT_FIGURE_TEXT], note[96];
        if (!json_is_number(value) || shown++ == METRICS_MAX) continue;
        const json_t *was = json_object_get(before, name);
        snprintf(note, sizeof note, "as it is deployed%s%s", was ? "; float " : "",
                 was ? figure(name, was, text) : "");
        snprintf(title, sizeof title, "int8 %.50s", name);
        tile(h, title, figure(name, value, text), note);
    }
}

static void result_tiles(oct_html *h, const oct_page_run *run)
{
    const json_t *result = run->result;
    char text[32], steps[32], note[64];
    snprintf(note, sizeof note, "%s steps, without evaluation",
             oct_text_count(json_integer_value(json_object_get(result, "step")), steps));
    if (oct_page_run_classifies(run)) accuracy_tiles(h, result);
    metric_tiles(h, result);
    proof_tile(h, result);
    size_tile(h, result);
    tile(h, "training took", oct_text_time(seconds_of(run), text), note);
}

/* A run that has no result yet says how far it is. */
static void progress_tiles(oct_html *h, const oct_page_run *run)
{
    const json_t *step = oct_page_run_record(run, "step"), *eval = oct_page_run_record(run, "eval");
    char text[64], note[64];
    const char *phase = json_string_value(json_object_get(step, "phase"));
    snprintf(text, sizeof text, "step %lld",
             (long long)json_integer_value(json_object_get(step, "step")));
    snprintf(note, sizeof note, "phase %.24s", phase ? phase : "not begun");
    tile(h, "not finished", text, note);
    if (oct_page_run_classifies(run))
        percent_tile(h, "newest test accuracy", oct_page_number(eval, "accuracy"),
                     "of the last evaluation");
}

static void write_run(oct_page *r, int i)
{
    const oct_page_run *run = &r->run[i];
    oct_html *h = &r->html;
    oct_html_put(h, "<div class=\"run-head\">");
    if (r->runs > 1)
        oct_html_put(h, "<h2><span class=\"run r%d\">%s</span> %s</h2>", i, oct_page_letter(i),
                     oct_page_title(r, run));
    if (run->recipe_text.data) {
        oct_html_put(h, "<p class=\"sub\">model <b>");
        oct_html_cut(h, oct_recipe_model(&run->recipe), 80);
        oct_html_put(h, "</b>, seed %lld, target %s, run folder ", (long long)run->recipe.seed,
                     oct_registry_name(&oct_target_id_table, (size_t)run->recipe.quant_target));
        oct_html_cut(h, run->recipe.output, 120);
        oct_html_put(h, "</p>");
    }
    oct_html_put(h, "<dl class=\"tiles\">");
    if (run->result)
        result_tiles(h, run);
    else
        progress_tiles(h, run);
    oct_html_put(h, "</dl></div>\n");
    if (run->records) oct_page_say_why(r, run, OCT_RUN_FILE_RECORDS);
}

static bool is_wanted(const oct_page *r, const oct_page_part *part)
{
    return r->runs >= part->least_runs;
}

static void write_head(oct_page *r)
{
    oct_html *h = &r->html;
    oct_html_put(h, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                    "style-src 'unsafe-inline'; img-src data:\">\n"
                    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                    "<meta name=\"color-scheme\" content=\"light dark\">\n");
    oct_html_put(h, "<title>%s", oct_page_title(r, &r->run[0]));
    if (r->runs > 1) oct_html_put(h, " and %s", oct_page_title(r, &r->run[1]));
    oct_html_put(h, " · Octet</title>\n<style>\n");
    oct_html_style(h);
    oct_html_put(h, "</style>\n</head>\n<body>\n<header>\n<p class=\"brand\">Octet report</p>\n");
    oct_html_put(h, "<h1>%s", oct_page_title(r, &r->run[0]));
    if (r->runs > 1) oct_html_put(h, " and %s", oct_page_title(r, &r->run[1]));
    oct_html_put(h, "</h1>\n");
    for (int i = 0; i < r->runs; i++)
        write_run(r, i);
    oct_html_put(h, "<nav aria-label=\"contents\">");
    for (size_t i = 0; i < OCT_COUNT(parts); i++)
        if (is_wanted(r, parts[i]))
            oct_html_put(h, "<a href=\"#%s\">%s</a> ", parts[i]->id, parts[i]->title);
    oct_html_put(h, "</nav>\n</header>\n<main>\n");
}

static void write_all(oct_page *r)
{
    write_head(r);
    for (size_t i = 0; i < OCT_COUNT(parts); i++) {
        if (!is_wanted(r, parts[i])) continue;
        oct_html_put(&r->html, "<section id=\"%s\">\n<h2>%s</h2>\n", parts[i]->id, parts[i]->title);
        parts[i]->write(r);
        oct_html_put(&r->html, "</section>\n");
    }
    oct_html_put(&r->html, "</main>\n</body>\n</html>\n");
}

/* The limits alone keep common runs small; what is uncommon is halved until it fits. */
static oct_status write_small(oct_page *r)
{
    r->limits = most;
    for (;;) {
        oct_text_free(&r->html.text);
        write_all(r);
        OCT_TRY(r->html.status);
        if (r->html.text.length <= OCT_PAGE_BYTES) return OCT_OK;
        OCT_CHECK(r->limits.layers > 1, OCT_DEFECT, "the report is larger than %zu bytes",
                  OCT_PAGE_BYTES);
        r->limits.layers /= 2;
        r->limits.steps /= 2;
        r->limits.rows = r->limits.rows / 2 + 1;
        r->limits.images /= 2;
        r->limits.text /= 2;
    }
}

oct_status oct_page_text(oct_text *out, const char *first, const char *second)
{
    oct_page r = {.runs = second ? 2 : 1};
    oct_status status = oct_page_run_open(&r.run[0], first);
    if (status == OCT_OK && second) status = oct_page_run_open(&r.run[1], second);
    if (status == OCT_OK) status = write_small(&r);
    if (status == OCT_OK) {
        oct_text_clean(r.html.text.data);
        *out = r.html.text;
        r.html.text = (oct_text){0};
    }
    oct_text_free(&r.html.text);
    oct_page_run_close(&r.run[0]);
    oct_page_run_close(&r.run[1]);
    return status;
}

static bool holds(const char *path, const oct_text *text)
{
    void *bytes = NULL;
    size_t size = 0;
    if (!oct_file_exists(path)) return false;
    if (oct_file_read(path, OCT_PAGE_BYTES, &bytes, &size) != OCT_OK) {
        oct_fail_clear();
        return false;
    }
    bool same = size == text->length && memcmp(bytes, text->data, size) == 0;
    oct_free(&bytes);
    return same;
}

oct_status oct_page_own(const char *folder)
{
    char *path = NULL;
    oct_text text = {0};
    oct_status status = OCT_OK;
    OCT_TRY_OUT(oct_run_path(folder, "report.html", &path));
    OCT_TRY_OUT(oct_page_text(&text, folder, NULL));
    if (!holds(path, &text)) status = oct_file_write(path, text.data, text.length);
out:
    oct_text_free(&text);
    oct_free(&path);
    return status;
}
