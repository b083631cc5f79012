/* The files of a run folder that a report shows: whatever they hold, there is a page, and its facts are JSON
 * without markup. */
#include "core/base/log.h"
#include "core/base/mem.h"
#include "launch/report/page.h"
#include "tests/fuzz/fuzz.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

const char *const fuzz_name = "report";
static const char *const words[] = {"\"kind\"",
                                    "\"step\"",
                                    "\"phase\"",
                                    "\"eval\"",
                                    "\"metrics\"",
                                    "\"scales\"",
                                    "\"counts\"",
                                    "\"schema_version\":1",
                                    "\"layers\"",
                                    "\"samples\"",
                                    "\"sessions\"",
                                    "\"output\"",
                                    "\"histogram\"",
                                    "\"<x y='z'>\"",
                                    "<!--",
                                    "\\\"",
                                    "1e308",
                                    "-1e308",
                                    "1e-308",
                                    "0",
                                    "null",
                                    "[[",
                                    "]]",
                                    "{}",
                                    "\\u0000",
                                    "\\u202e",
                                    "\n",
                                    NULL};
const char *const *const fuzz_words = words;

/* The same bytes are read as records, a line each, and as each of the documents. */
void fuzz_seeds(void)
{
    static const char records[] =
        "{\"schema_version\":1,\"kind\":\"format\"}\n"
        "{\"kind\":\"step\",\"step\":1,\"phase\":\"float\",\"loss\":2.5,\"accuracy\":9,\"lr\":0.1}"
        "\n"
        "{\"kind\":\"eval\",\"step\":2,\"phase\":\"<x>\",\"accuracy\":9,\"metrics\":{\"<x>\":1}}\n"
        "{\"kind\":\"phase\",\"step\":2,\"phase\":\"qat\",\"seconds\":1.5}\n"
        "{\"kind\":\"scales\",\"step\":3,\"scales\":{\"<x>\":0.5}}\n"
        "{\"kind\":\"confusion\",\"step\":3,\"classes\":2,\"counts\":[[1,2],[3,4]],\"names\":["
        "\"<x>\",\"b\"]}\n"
        "{\"kind\":\"result\",\"step\":3,\"int8_accuracy\":90.5,\"logits\":9,\"images\":1}\n";
    static const char document[] =
        "{\"schema_version\":1,\"images\":3,\"reference\":\"unquantized\",\"layers\":[{\"path\":"
        "\"<x>\",\"type\":\"conv2d\",\"shape\":[1,2,3],\"output\":{\"bits\":8,\"scale\":0.1,"
        "\"zero_point\":3,\"qmin\":0,\"qmax\":255,\"min\":-1,\"max\":2,\"histogram\":{\"from\":-1,"
        "\"to\":3,\"counts\":[1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,"
        "8,"
        "9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1]}},\"weight\":null}],"
        "\"samples\":"
        "[{\"index\":1,\"label_name\":\"<x>\",\"predicted\":2,\"png\":\"iVBORw0KGgo=\"}],"
        "\"sessions\":[{\"version\":\"<x>\",\"data\":{\"train\":{\"<x>\":[1,\"<x>\"]}}}]}\n";
    fuzz_seed(records, strlen(records));
    fuzz_seed(document, strlen(document));
}

/* The facts are JSON up to the first '<', which ends their element. */
static bool is_harmless(const char *page)
{
    const char *facts = strstr(page, "id=\"facts\">") + strlen("id=\"facts\">");
    const size_t length = strcspn(facts, "<");
    json_t *json = json_loadb(facts, length, 0, NULL);
    const bool whole = json_is_array(json_object_get(json, "runs"));
    json_decref(json);
    return whole && strncmp(facts + length, "</script>\n<script>/* Draws", 26) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const files[] = {"metrics.jsonl", "layers.json", "worst.json", "run.json"};
    static const char recipe[] = "model: {name: cnn-small}\n";
    oct_text page = {0};
    oct_log_setup(OCT_LOG_ERROR, false);
    fuzz_file("recipe.yaml", recipe, strlen(recipe));
    for (size_t i = 0; i < OCT_COUNT(files); i++)
        fuzz_file(files[i], data, size);
    fuzz_call call = fuzz_begin(size);
    oct_status status = oct_page_text(&page, fuzz_folder(), NULL, false);
    fuzz_said(status, FUZZ_BIT(OCT_OK), NULL);
    FUZZ_REQUIRE(page.length <= OCT_PAGE_BYTES, "the page has %zu bytes", page.length);
    FUZZ_REQUIRE(is_harmless(page.data), "the page holds markup of a file");
    oct_text_free(&page);
    fuzz_end(&call, 1024, (size_t)16 << 20);
    return 0;
}
