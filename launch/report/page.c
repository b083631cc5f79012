#include "launch/report/page.h"

#include "core/base/mem.h"
#include "io/file/file.h"
#include "launch/base/output.h"

#include <string.h>

/* Lines of the files in page/, ended by NULL; CMake makes them. */
extern const char *const oct_page_template[], *const oct_page_style[], *const oct_page_script[];

typedef struct slot {
    const char *name; /* in the template: @name@ */
    oct_text text;
} slot;

enum { STYLE, SCRIPT, STYLE_HASH, SCRIPT_HASH, FACTS, PLAIN, SLOTS };

bool oct_page_is_name(const char *path)
{
    const size_t length = strlen(path);
    return length > 5 && strcmp(path + length - 5, ".html") == 0;
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
    char *base64 = NULL;
    oct_sha256(text->data, text->length, digest);
    OCT_TRY(oct_base64(digest, sizeof digest, &base64));
    oct_status status = oct_text_add(out, "%s", base64);
    oct_free(&base64);
    return status;
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

static oct_status add_facts(oct_text *out, const json_t *facts)
{
    oct_text json = {0};
    oct_status status = oct_json_text(&json, facts, JSON_COMPACT);
    if (status == OCT_OK) {
        oct_text_clean(json.data);
        status = add_escaped(out, json.data);
    }
    oct_text_free(&json);
    return status;
}

static oct_status fill_line(oct_text *page, const char *line, const slot *slots)
{
    const char *at, *end;
    while ((at = strchr(line, '@')) && (end = strchr(at + 1, '@'))) {
        const size_t length = (size_t)(end - at - 1);
        OCT_TRY(oct_text_add(page, "%.*s", (int)(at - line), line));
        for (int i = 0; i < SLOTS; i++)
            if (strlen(slots[i].name) == length && memcmp(slots[i].name, at + 1, length) == 0 &&
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
    oct_status status = add_lines(&slots[STYLE].text, oct_page_style);
    OCT_TRY_OUT(status);
    OCT_TRY_OUT(add_lines(&slots[SCRIPT].text, oct_page_script));
    OCT_TRY_OUT(add_hash(&slots[STYLE_HASH].text, &slots[STYLE].text));
    OCT_TRY_OUT(add_hash(&slots[SCRIPT_HASH].text, &slots[SCRIPT].text));
    OCT_TRY_OUT(add_facts(&slots[FACTS].text, facts));
    OCT_TRY_OUT(oct_text_add(&slots[PLAIN].text, "%s", plain));
    for (const char *const *line = oct_page_template; *line; line++)
        OCT_TRY_OUT(fill_line(page, *line, slots));
out:
    for (int i = 0; i < SLOTS; i++)
        oct_text_free(&slots[i].text);
    return status;
}
