/* The figures of launch/deploy/device.h as a table. */
#include "launch/cmd/device_view.h"

#include "launch/base/meter.h"
#include "launch/base/output.h"
#include "io/export/format.h"
#include "launch/deploy/device.h"
#include "launch/deploy/golden.h"
#include "quant/program/step.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

static oct_status print_layers(const oct_device *d)
{
    const oct_program *p = d->program;
    char flash[32], scratch[32], products[32];
    int width = 5;
    for (int64_t i = 0; i < p->num_steps; i++)
        if ((int)strlen(p->steps[i].name) > width) width = (int)strlen(p->steps[i].name);
    OCT_TRY(oct_print("%3s  %-*s  %-11s %12s %12s %16s\n", "#", width, "layer", "kind", "flash",
                      "scratch", "multiply-adds"));
    for (int64_t i = 0; i < p->num_steps; i++)
        OCT_TRY(oct_print("%3" PRId64 "  %-*s  %-11s %12s %12s %16s\n", i, width, p->steps[i].name,
                          oct_step_type_of(p->steps[i].kind)->name,
                          oct_text_count(d->of[i][OCT_DEVICE_FLASH], flash),
                          oct_text_count(d->of[i][OCT_DEVICE_SCRATCH], scratch),
                          oct_text_count(d->of[i][OCT_DEVICE_PRODUCTS], products)));
    return OCT_OK;
}

static oct_status print_largest(const oct_device *d, oct_device_figure figure)
{
    oct_text text = {0};
    oct_status status = oct_device_largest(d, figure, &text);
    if (status == OCT_OK && text.data)
        status = oct_print("most %s: %s\n", oct_device_figure_names[figure], text.data);
    oct_text_free(&text);
    return status;
}

/* Files for TFLM, by what they take and give. */
enum { FLOATS, CODES, PIXELS, FORMS };
static const char *const form_names[FORMS] = {"floats", "codes", "pixels"};

/* The bytes of tensors in the arena for each form of the file; -1 where there is none of it. */
static oct_status find_arenas(const oct_model *model, int64_t arena[FORMS])
{
    for (int f = 0; f < FORMS; f++) {
        const oct_export job = {.model = model,
                                .mean = model->mean,
                                .std = model->std,
                                .codes = f == CODES,
                                .pixels = f == PIXELS,
                                .version = ""};
        oct_exported made = {0};
        arena[f] = -1;
        if (!oct_rounding_of(model->program.requantizer)->is_tflm) continue;
        if (f == PIXELS && !oct_golden_are_pixels(model)) continue;
        const oct_status status = oct_export_format_tflite.write_model(&job, &made);
        if (status == OCT_OK) arena[f] = made.arena;
        oct_exported_free(&made);
        if (status == OCT_RESOURCE) return status;
        oct_fail_clear();
    }
    return OCT_OK;
}

static oct_status print_text(const oct_device *d, const char *path, const int64_t arena[FORMS])
{
    char flash[32], scratch[32], products[32];
    OCT_TRY(oct_print(
        "int8 model  %s\nflash       %s bytes: weights, biases, multipliers, tables, layers\n"
        "scratch     %s bytes: values between layers, of one sample, in the C form and in Octet\n"
        "operations  %s multiply-adds of codes a sample\n",
        path, oct_text_count(d->all[OCT_DEVICE_FLASH], flash),
        oct_text_count(d->all[OCT_DEVICE_SCRATCH], scratch),
        oct_text_count(d->all[OCT_DEVICE_PRODUCTS], products)));
    for (int f = 0; f < FORMS; f++)
        if (arena[f] >= 0)
            OCT_TRY(oct_print("TFLM arena  %s bytes: tensors of the TFLite file of %s\n",
                              oct_text_count(arena[f], scratch), form_names[f]));
    OCT_TRY(print_layers(d));
    for (int figure = 0; figure < OCT_DEVICE_FIGURES; figure++)
        OCT_TRY(print_largest(d, (oct_device_figure)figure));
    return OCT_OK;
}

static json_t *figures_json(const int64_t figure[OCT_DEVICE_FIGURES])
{
    return json_pack("{s:I, s:I, s:I}", "flash", (json_int_t)figure[OCT_DEVICE_FLASH], "scratch",
                     (json_int_t)figure[OCT_DEVICE_SCRATCH], "multiply_adds",
                     (json_int_t)figure[OCT_DEVICE_PRODUCTS]);
}

static oct_status print_json(const oct_device *d, const char *path, const int64_t arena[FORMS])
{
    json_t *layers = json_array(), *arenas = json_object(), *all = figures_json(d->all);
    for (int64_t i = 0; i < d->program->num_steps; i++) {
        json_t *layer = figures_json(d->of[i]);
        json_object_set_new(layer, "name", json_string(d->program->steps[i].name));
        json_object_set_new(layer, "kind",
                            json_string(oct_step_type_of(d->program->steps[i].kind)->name));
        json_array_append_new(layers, layer);
    }
    json_object_set_new(all, "kind", json_string("device"));
    json_object_set_new(all, "file", json_string(path));
    for (int f = 0; f < FORMS; f++)
        if (arena[f] >= 0) json_object_set_new(arenas, form_names[f], json_integer(arena[f]));
    json_object_set_new(all, "tflm_arena", arenas);
    json_object_set_new(all, "layers", layers);
    return oct_print_json(all);
}

oct_status oct_print_device(const oct_model *model, const char *path, bool json)
{
    oct_device device;
    int64_t arena[FORMS];
    OCT_TRY(find_arenas(model, arena));
    OCT_TRY(oct_device_of(&device, &model->program));
    const oct_status status =
        json ? print_json(&device, path, arena) : print_text(&device, path, arena);
    oct_device_free(&device);
    return status;
}
