#include "launch/report/page.h"

#include "core/base/mem.h"
#include "io/file/file.h"
#include "launch/base/output.h"
#include "launch/report/page_run.h"

#include <string.h>

/* Lines of the files in page/, ended by NULL; CMake makes them. */
extern const char *const oct_page_template[], *const oct_page_style[], *const oct_page_script[];

/* A place in the template, and the text for it. */
typedef struct slot {
    const char *name; /* in the template: @name@ */
    oct_text text;
} slot;

enum { STYLE, SCRIPT, STYLE_HASH, SCRIPT_HASH, FACTS, PLAIN, SLOTS };

bool oct_page_is_name(const char *path)
{
    return strlen(path) > 5 && oct_ends_with(path, ".html");
}

static oct_status add_lines(oct_text *out, const char *const *lines)
{
    for (; *lines; lines++)
        OCT_TRY(oct_text_add(out, "%s", *lines));
    return OCT_OK;
}

/* SHA-256 in base64, as a Content-Security-Policy wants it. */
static oct_status add_hash(oct_text *out, const oct_text *text)
{
    uint8_t digest[32];
    OCT_OWNED(oct_free) char *base64 = NULL;
    oct_sha256(text->data, text->length, digest);
    OCT_TRY(oct_base64(digest, sizeof digest, &base64));
    return oct_text_add(out, "%s", base64);
}

/* Copies JSON: '<' is escaped, since "</script>" and "<!--" mean something to a browser; an escaped control
 * character becomes '?', as it does everywhere. */
static oct_status add_escaped(oct_text *out, const char *json)
{
    while (*json) {
        const size_t plain = strcspn(json, "<\\");
        OCT_TRY(oct_text_add(out, "%.*s", (int)plain, json));
        json += plain;
        if (!*json) break;
        const bool control = *json == '\\' && strchr("bfru", json[1]);
        if (*json == '<' || control)
            OCT_TRY(oct_text_add(out, "%s", control ? "?" : "\\u003c"));
        else
            OCT_TRY(oct_text_add(out, "%.2s", json));
        json += *json == '<' ? 1 : json[1] == 'u' ? 6 : 2;
    }
    return OCT_OK;
}

/* Adds a line of the template, with the text of its slot in place of each @name@. */
static oct_status fill_line(oct_text *page, const char *line, const slot *slots)
{
    const char *begin, *end; /* of "@name@" */
    while ((begin = strchr(line, '@')) && (end = strchr(begin + 1, '@'))) {
        const size_t length = (size_t)(end - begin - 1);
        OCT_TRY(oct_text_add(page, "%.*s", (int)(begin - line), line));
        for (int i = 0; i < SLOTS; i++)
            if (strlen(slots[i].name) == length && memcmp(slots[i].name, begin + 1, length) == 0 &&
                slots[i].text.data)
                OCT_TRY(oct_text_add(page, "%s", slots[i].text.data));
        line = end + 1;
    }
    return oct_text_add(page, "%s", line);
}

oct_status oct_page_write(oct_text *page, const json_t *facts, const char *plain)
{
    slot slots[SLOTS] = {
        [STYLE] = {.name = "style"},           [SCRIPT] = {.name = "script"},
        [STYLE_HASH] = {.name = "style_hash"}, [SCRIPT_HASH] = {.name = "script_hash"},
        [FACTS] = {.name = "facts"},           [PLAIN] = {.name = "plain"}};
    oct_text json = {0};
    oct_status status = add_lines(&slots[STYLE].text, oct_page_style);
    OCT_TRY_OUT(status);
    OCT_TRY_OUT(add_lines(&slots[SCRIPT].text, oct_page_script));
    OCT_TRY_OUT(add_hash(&slots[STYLE_HASH].text, &slots[STYLE].text));
    OCT_TRY_OUT(add_hash(&slots[SCRIPT_HASH].text, &slots[SCRIPT].text));
    OCT_TRY_OUT(oct_json_text(&json, facts, JSON_COMPACT));
    oct_text_clean(json.data);
    OCT_TRY_OUT(add_escaped(&slots[FACTS].text, json.data));
    OCT_TRY_OUT(oct_text_add(&slots[PLAIN].text, "%s", plain));
    for (const char *const *line = oct_page_template; *line; line++)
        OCT_TRY_OUT(fill_line(page, *line, slots));
out:
    oct_text_free(&json);
    for (int i = 0; i < SLOTS; i++)
        oct_text_free(&slots[i].text);
    return status;
}

/* The report of a run. */

static const oct_page_limits most = {
    .layers = 200, .steps = 400, .rows = 60, .images = 24, .text = (size_t)96 << 10};

/* The main figures as HTML, for a reader without scripts: numbers alone. */
static oct_status add_plain_figures(oct_text *out, const oct_page_run *run)
{
    static const char *const figures[][2] = {{"float_accuracy", "float accuracy, %"},
                                             {"qat_accuracy", "QAT accuracy, %"},
                                             {"int8_accuracy", "int8 accuracy, %"},
                                             {"logits_differ", "logits that differ"}};
    OCT_TRY(oct_text_add(out, "<ul>"));
    for (size_t i = 0; i < OCT_COUNT(figures); i++) {
        const json_t *value = json_object_get(run->result, figures[i][0]);
        if (json_is_number(value))
            OCT_TRY(
                oct_text_add(out, "<li>%s: %.6g</li>", figures[i][1], json_number_value(value)));
    }
    return oct_text_add(out, "</ul>");
}

/* Writes the page of some runs: facts for its script, and the main figures as HTML for browsers that run no script. */
static oct_status write_page(oct_text *page, const oct_page_run *runs, int count,
                             const oct_page_limits *limits)
{
    json_t *array = json_array();
    json_auto_t *facts = json_pack("{s:o}", "runs", array);
    OCT_OWNED(oct_text_free) oct_text plain = {0};
    for (int i = 0; i < count; i++) {
        json_t *run = json_object();
        json_array_append_new(array, run);
        OCT_TRY(oct_page_facts(run, &runs[i], limits));
        OCT_TRY(add_plain_figures(&plain, &runs[i]));
    }
    return oct_page_write(page, facts, plain.data);
}

/* Writes the page with the usual limits, which are halved as long as it is larger than OCT_PAGE_BYTES. */
static oct_status write_within_limit(oct_text *page, const oct_page_run *runs, int count)
{
    oct_page_limits limits = most;
    for (;;) {
        OCT_TRY(write_page(page, runs, count, &limits));
        if (page->length <= OCT_PAGE_BYTES) return OCT_OK;
        OCT_CHECK(limits.layers > 0, OCT_DEFECT, "the report is larger than %zu bytes",
                  OCT_PAGE_BYTES);
        oct_text_free(page);
        limits = (oct_page_limits){limits.layers / 2, limits.steps / 2, limits.rows / 2 + 1,
                                   limits.images / 2, limits.text / 2};
    }
}

oct_status oct_page_text(oct_text *out, const char *first, const char *second, bool large)
{
    oct_page_run runs[2] = {0};
    oct_status status = oct_page_run_open(&runs[0], first, false, large);
    if (status == OCT_OK && second) status = oct_page_run_open(&runs[1], second, false, large);
    if (status == OCT_OK) status = write_within_limit(out, runs, second ? 2 : 1);
    if (status != OCT_OK) oct_text_free(out);
    oct_page_run_close(&runs[0]);
    oct_page_run_close(&runs[1]);
    return status;
}
