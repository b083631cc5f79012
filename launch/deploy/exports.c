#include "launch/deploy/exports.h"

#include "core/base/mem.h"
#include "io/export/format.h"

#include <stdio.h>
#include <string.h>

enum { REASON_BYTES = 512 };

/* reason: "" where the format has a form for the program. */
static oct_status try_format(const oct_export_format *format, const oct_program *program,
                             char reason[REASON_BYTES])
{
    oct_model *model = NULL;
    oct_exported made = {0};
    OCT_TRY(oct_alloc(&model, 1, sizeof *model));
    model->program = *program; /* borrowed */
    const oct_export job = {.model = model,
                            .mean = model->mean,
                            .std = model->std,
                            .tries = true,
                            .name = "model",
                            .version = ""};
    const oct_status status = format->write_model(&job, &made);
    oct_exported_free(&made);
    oct_free(&model);
    if (status == OCT_RESOURCE) return status;
    snprintf(reason, REASON_BYTES, "%s", status == OCT_OK ? "" : oct_fail_text(0));
    oct_fail_clear();
    return OCT_OK;
}

static bool recipe_demands(const oct_recipe *recipe, const char *name)
{
    bool found = false;
    for (int i = 0; i < recipe->export_formats.count; i++)
        found = found || strcmp(recipe->export_formats.value[i], name) == 0;
    return found;
}

void oct_check_exports(const oct_recipe *recipe)
{
    int known = 0;
    for (size_t i = 0; i < oct_registry_count(&oct_export_format_table); i++) {
        const oct_export_format *format = oct_registry_at(&oct_export_format_table, i);
        known += format->write_model && recipe_demands(recipe, format->name);
    }
    if (known < recipe->export_formats.count)
        oct_fail_add(OCT_USAGE, "export.formats: names a format that there is not of int8 models, "
                                "or one twice; they are onnx, tflite, c and flat");
}

oct_status oct_exports_of(const oct_recipe *recipe, const oct_program *program, oct_text *text)
{
    oct_text missing = {0}, demanded = {0};
    oct_status status = OCT_OK;
    for (size_t i = 0; status == OCT_OK && i < oct_registry_count(&oct_export_format_table); i++) {
        const oct_export_format *format = oct_registry_at(&oct_export_format_table, i);
        char reason[REASON_BYTES];
        if (!format->write_model) continue;
        status = try_format(format, program, reason);
        if (status != OCT_OK) break;
        if (!*reason)
            status = oct_text_add(text, "%s%s", text->length ? ", " : "", format->name);
        else
            status = oct_text_add(recipe_demands(recipe, format->name) ? &demanded : &missing,
                                  "\nno %s: %s", format->name, reason);
    }
    if (status == OCT_OK && demanded.data)
        status = oct_fail(OCT_PREPARE, "export.formats: %s", demanded.data + 1);
    if (status == OCT_OK && missing.data) status = oct_text_add(text, "%s", missing.data);
    oct_text_free(&missing);
    oct_text_free(&demanded);
    return status;
}
