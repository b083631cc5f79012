#include "launch/report/report.h"

#include "core/base/mem.h"
#include "io/file/file.h"
#include "launch/report/facts.h"
#include "launch/report/page.h"
#include "launch/runfolder/run_folder.h"

#include <string.h>

static const oct_page_limits most = {
    .layers = 200, .steps = 400, .rows = 60, .images = 24, .text = (size_t)96 << 10};

/* The main figures as HTML, for a reader without scripts: numbers alone. */
static oct_status write_plain(oct_text *out, const oct_page_run *run)
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

static oct_status write_page(oct_text *page, const oct_page_run *runs, int count,
                             const oct_page_limits *limits)
{
    json_t *array = json_array(), *facts = json_pack("{s:o}", "runs", array);
    oct_text plain = {0};
    oct_status status = OCT_OK;
    for (int i = 0; i < count; i++) {
        json_t *run = json_object();
        json_array_append_new(array, run);
        OCT_TRY_OUT(oct_page_facts(run, &runs[i], limits));
        OCT_TRY_OUT(write_plain(&plain, &runs[i]));
    }
    OCT_TRY_OUT(oct_page_write(page, facts, plain.data));
out:
    oct_text_free(&plain);
    json_decref(facts);
    return status;
}

/* The limits alone keep common runs small; what is uncommon is halved until it fits. */
static oct_status write_small(oct_text *page, const oct_page_run *runs, int count)
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

oct_status oct_page_text(oct_text *out, const char *first, const char *second)
{
    oct_page_run runs[2] = {0};
    oct_status status = oct_page_run_open(&runs[0], first);
    if (status == OCT_OK && second) status = oct_page_run_open(&runs[1], second);
    if (status == OCT_OK) status = write_small(out, runs, second ? 2 : 1);
    if (status != OCT_OK) oct_text_free(out);
    oct_page_run_close(&runs[0]);
    oct_page_run_close(&runs[1]);
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
