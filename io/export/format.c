/* This file holds the table of export formats, made from its list. */
#include "io/export/format.h"

#include "core/base/mem.h"

static const void *const listed[] = {
#define OCT_EXPORT_FORMAT(name) &oct_export_format_##name,
#include "io/export/format_list.def"
#undef OCT_EXPORT_FORMAT
};
const oct_registry oct_export_format_table = OCT_REGISTRY("a format", listed);

const oct_export_format *oct_export_format_find(const char *name)
{
    return oct_registry_find(&oct_export_format_table, name);
}

void oct_exported_free(oct_exported *exported)
{
    oct_free(&exported->bytes);
    oct_free(&exported->beside);
    oct_text_free(&exported->operators);
    oct_text_free(&exported->notices);
}
