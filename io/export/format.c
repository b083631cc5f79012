/* This file holds the table of export formats, made from its list. */
#include "io/export/format.h"

#include "core/base/mem.h"

#include <stdio.h>
#include <string.h>

static const void *const listed[] = {
#define OCT_EXPORT_FORMAT(name) &oct_export_format_##name,
#include "io/export/format_list.def"
#undef OCT_EXPORT_FORMAT
};
const oct_registry oct_export_format_table = OCT_REGISTRY("a format", listed);

oct_port_name oct_export_port(const oct_export *job, bool output)
{
    oct_port_name name;
    const char *at = job->port_names ? job->port_names : "input\noutput\n";
    if (output) at = strchr(at, '\n') + 1;
    snprintf(name.text, sizeof name.text, "%.*s", (int)strcspn(at, "\n"), at);
    return name;
}

void oct_exported_free(oct_exported *exported)
{
    oct_free(&exported->bytes);
    oct_free(&exported->beside);
    oct_text_free(&exported->operators);
    oct_text_free(&exported->notices);
}
