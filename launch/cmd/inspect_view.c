/* The prepared model is built as eval and convert build it; the figures of a device are those of launch/deploy/device.h. */
#include "launch/cmd/inspect_view.h"

#include "core/base/mem.h"
#include "io/export/format.h"
#include "io/model/model_file.h"
#include "launch/base/meter.h"
#include "launch/deploy/device.h"
#include "launch/deploy/golden.h"
#include "launch/report/diagram.h"
#include "launch/session/job.h"
#include "launch/base/output.h"
#include "launch/session/plugin_load.h"
#include "launch/session/build.h"
#include "quant/prepare/report.h"
#include "quant/program/step.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

typedef struct subject {
    oct_file_kind kind;
    oct_checkpoint checkpoint; /* bytes NULL: of a recipe */
    oct_recipe recipe;
    oct_dataset data;
    oct_module *model;
    bool prepared;
} subject;

static oct_status read_recipe(subject *s, const char *path, const char *data_path)
{
    char *override = NULL;
    oct_status status = OCT_OK;
    if (data_path) OCT_TRY(oct_format(&override, "data.path=%s", data_path));
    const char *overrides[] = {override};
    OCT_TRY_OUT(oct_recipe_read(&s->recipe, path, NULL, overrides, data_path ? 1 : 0));
    status = oct_plugins_load(&s->recipe.plugins, false, NULL);
out:
    oct_free(&override);
    return status;
}

static oct_status load_model(subject *s, const char *path, oct_view view, const char *data_path)
{
    const oct_recipe *r = &s->recipe;
    OCT_CHECK(s->kind != OCT_FILE_MODEL, OCT_USAGE,
              "command line: %s is an int8 model, whose modules are steps of a program now; octet "
              "inspect without --graph and --tree shows them, and --graph --dot draws them",
              path);
    if (s->kind == OCT_FILE_RECIPE) {
        OCT_TRY(read_recipe(s, path, data_path));
    } else {
        OCT_TRY(oct_job_checkpoint(&s->checkpoint, path, s->kind));
        OCT_TRY(oct_job_checkpoint_recipe(&s->recipe, &s->checkpoint, data_path));
    }
    OCT_TRY(oct_load_data(r, OCT_TEST, NULL, &s->data));
    if (s->checkpoint.bytes)
        OCT_TRY(oct_build_from_checkpoint(&s->model, &s->checkpoint, r, &s->data, &s->prepared));
    else
        OCT_TRY(oct_build_model(&s->model, r, &s->data));
    if (s->prepared || (view == OCT_VIEW_TREE && s->checkpoint.bytes)) return OCT_OK;
    oct_module_train(s->model, true);
    return oct_prepare_model(&s->model, r, &s->data, NULL);
}

/* Of a prepared graph or of a program. */
static oct_status write_dot(const oct_graph *graph, const oct_program *program, oct_text *text)
{
    json_t *diagram;
    OCT_TRY(graph ? oct_diagram_of_graph(graph, &diagram)
                  : oct_diagram_of_program(program, SIZE_MAX, &diagram));
    oct_status status = oct_diagram_dot(diagram, text);
    json_decref(diagram);
    return status;
}

static const char *const view_names[] = {
    [OCT_VIEW_GRAPH] = "graph", [OCT_VIEW_DOT] = "dot", [OCT_VIEW_TREE] = "tree"};

static json_t *quantizers_json(const oct_tensor_quantizer *list, size_t count)
{
    char path[256];
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) {
        const oct_fake_quant *fq = list[i].fq;
        oct_qparams q = oct_fake_quant_qparams(fq);
        json_array_append_new(
            array, json_pack("{s:s, s:s, s:b, s:i, s:s, s:f, s:i, s:I}", "tensor", list[i].path,
                             "quantizer", oct_module_path(&fq->base, path), "shared",
                             list[i].shared, "bits", fq->qconfig.bits, "observer",
                             fq->qconfig.observer->name, "scale", (double)q.scale, "zero_point",
                             (int)q.zero_point, "updates", (json_int_t)*fq->updates));
    }
    return array;
}

static oct_status print_json(const subject *s, const char *path, oct_view view, const char *text)
{
    oct_tensor_quantizer *list = NULL;
    size_t count = 0;
    const oct_graph *graph = oct_graph_of(s->model);
    if (graph) OCT_TRY(oct_graph_quantizers(graph, &list, &count));
    json_t *quantizers = quantizers_json(list, count);
    oct_free(&list);
    return oct_print_json(
        json_pack("{s:s, s:s, s:b, s:s, s:o}", "kind", oct_file_kind_name(s->kind), "file", path,
                  "prepared", graph != NULL, view_names[view], text, "quantizers", quantizers));
}

static oct_status print_program(const char *path, bool json)
{
    oct_model model = {0};
    oct_text text = {0};
    oct_status status = OCT_OK;
    OCT_TRY(oct_model_load(&model, path));
    OCT_TRY_OUT(write_dot(NULL, &model.program, &text));
    status = json ? oct_print_json(json_pack("{s:s, s:s, s:s}", "kind",
                                             oct_file_kind_name(OCT_FILE_MODEL), "file", path,
                                             view_names[OCT_VIEW_DOT], text.data))
                  : oct_print("%s", text.data);
out:
    oct_text_free(&text);
    oct_model_free(&model);
    return status;
}

oct_status oct_print_view(const char *path, oct_view view, const char *data_path, bool json)
{
    subject s = {0};
    OCT_TRY(oct_file_kind_of(path, &s.kind));
    if (s.kind == OCT_FILE_MODEL && view == OCT_VIEW_DOT) return print_program(path, json);
    oct_text text = {0};
    oct_status status = load_model(&s, path, view, data_path);
    if (status == OCT_OK)
        status = view == OCT_VIEW_GRAPH ? oct_graph_table(oct_graph_of(s.model), &text)
                 : view == OCT_VIEW_DOT ? write_dot(oct_graph_of(s.model), NULL, &text)
                                        : oct_tree_write(&text, s.model);
    if (status == OCT_OK)
        status = json ? print_json(&s, path, view, text.data) : oct_print("%s", text.data);
    oct_text_free(&text);
    oct_module_destroy(&s.model);
    oct_dataset_close(&s.data);
    oct_recipe_free(&s.recipe);
    oct_checkpoint_close(&s.checkpoint);
    return status;
}

/* What an int8 model asks of a device. */

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

static oct_status print_device_text(const oct_device *d, const char *path,
                                    const int64_t arena[FORMS])
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
    const oct_program *p = d->program;
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
    for (int figure = 0; figure < OCT_DEVICE_FIGURES; figure++) {
        oct_text text = {0};
        oct_status status = oct_device_largest(d, (oct_device_figure)figure, &text);
        if (status == OCT_OK && text.data)
            status = oct_print("most %s: %s\n", oct_device_figure_names[figure], text.data);
        oct_text_free(&text);
        OCT_TRY(status);
    }
    return OCT_OK;
}

static json_t *figures_json(const int64_t figure[OCT_DEVICE_FIGURES])
{
    return json_pack("{s:I, s:I, s:I}", "flash", (json_int_t)figure[OCT_DEVICE_FLASH], "scratch",
                     (json_int_t)figure[OCT_DEVICE_SCRATCH], "multiply_adds",
                     (json_int_t)figure[OCT_DEVICE_PRODUCTS]);
}

static oct_status device_json(const oct_device *d, const char *path, const int64_t arena[FORMS])
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
        json ? device_json(&device, path, arena) : print_device_text(&device, path, arena);
    oct_device_free(&device);
    return status;
}
