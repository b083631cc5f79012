/* The figures of launch/run/device.h as a table. */
#include "launch/cmd/device_view.h"

#include "launch/base/meter.h"
#include "launch/base/output.h"
#include "launch/run/device.h"
#include "quant/runtime/step.h"

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

static oct_status print_text(const oct_device *d, const char *path)
{
    char flash[32], scratch[32], products[32];
    OCT_TRY(oct_print(
        "int8 model  %s\nflash       %s bytes: weights, biases, multipliers, tables, layers\n"
        "scratch     %s bytes: values between layers, of one sample\n"
        "operations  %s multiply-adds of codes a sample\n",
        path, oct_text_count(d->all[OCT_DEVICE_FLASH], flash),
        oct_text_count(d->all[OCT_DEVICE_SCRATCH], scratch),
        oct_text_count(d->all[OCT_DEVICE_PRODUCTS], products)));
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

static oct_status print_json(const oct_device *d, const char *path)
{
    json_t *layers = json_array(), *all = figures_json(d->all);
    for (int64_t i = 0; i < d->program->num_steps; i++) {
        json_t *layer = figures_json(d->of[i]);
        json_object_set_new(layer, "name", json_string(d->program->steps[i].name));
        json_object_set_new(layer, "kind",
                            json_string(oct_step_type_of(d->program->steps[i].kind)->name));
        json_array_append_new(layers, layer);
    }
    json_object_set_new(all, "kind", json_string("device"));
    json_object_set_new(all, "file", json_string(path));
    json_object_set_new(all, "layers", layers);
    return oct_print_json(all);
}

oct_status oct_print_device(const oct_model *model, const char *path, bool json)
{
    oct_device device;
    OCT_TRY(oct_device_of(&device, &model->program));
    const oct_status status = json ? print_json(&device, path) : print_text(&device, path);
    oct_device_free(&device);
    return status;
}
