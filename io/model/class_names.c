/* Names of classes as lines of a text. */
#include "io/model/class_names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool oct_is_plain_text(const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if ((c < ' ' && c != '\n' && c != '\t') || c == 0x7f) return false;
    }
    return true;
}

static oct_status add_name(oct_text *text, const oct_dataset *data, int64_t i)
{
    const char *name = data->class_names[i];
    OCT_CHECK(*name && oct_is_plain_text(name) && !strchr(name, '\n'), OCT_DATA,
              "class %" PRId64 ": its name '%s' is no line of plain text; rename it", i,
              oct_show(name, strlen(name)).text);
    OCT_CHECK(text->length + strlen(name) < OCT_CLASS_NAMES_BYTES_MAX, OCT_DATA,
              "the names of the classes have more than 1 MiB together; make them shorter");
    return oct_text_add(text, "%s\n", name);
}

oct_status oct_class_names_make(char **text, const oct_dataset *data)
{
    oct_text lines = {0};
    oct_status status = OCT_OK;
    *text = NULL;
    for (int64_t i = 0; data->class_names && i < data->classes && status == OCT_OK; i++)
        status = add_name(&lines, data, i);
    if (status == OCT_OK)
        *text = lines.data;
    else
        oct_text_free(&lines);
    return status;
}

bool oct_class_names_fit(const char *text, int64_t count)
{
    const char *last = text;
    int64_t lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')); last = ++at)
        lines++;
    return lines == count && *last == '\0' && oct_is_plain_text(text);
}

/* Finds line `number` of a text, counted from 0, and its length without the newline; NULL beyond the last. */
static const char *find_line(const char *text, int64_t number, size_t *bytes)
{
    while (text && number-- > 0) {
        text = strchr(text, '\n');
        if (text) text++;
    }
    if (!text || !*text) return NULL;
    *bytes = strcspn(text, "\n");
    return text;
}

oct_shown oct_class_name(const char *text, int64_t number)
{
    size_t bytes;
    oct_shown shown = {0};
    const char *line = find_line(text, number, &bytes);
    if (line) return oct_show(line, bytes);
    snprintf(shown.text, sizeof shown.text, "class %" PRId64, number);
    return shown;
}

oct_status oct_class_names_check(const char *text, const oct_dataset *data, const char *file)
{
    for (int64_t i = 0; text && data->class_names && i < data->classes; i++) {
        size_t bytes = 0;
        const char *name = data->class_names[i], *line = find_line(text, i, &bytes);
        OCT_CHECK(line && bytes == strlen(name) && memcmp(line, name, bytes) == 0, OCT_DATA,
                  "%s: its class %" PRId64 " is %s, but that of the data is %s; take the classes "
                  "that it was trained with",
                  file, i, line ? oct_show(line, bytes).text : "not there",
                  oct_show(name, strlen(name)).text);
    }
    return OCT_OK;
}
