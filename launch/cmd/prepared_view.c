/* This builds the model as eval and convert do, and prints what it is. */
#include "launch/cmd/prepared_view.h"

#include "core/base/mem.h"
#include "io/model/model_file.h"
#include "launch/report/diagram.h"
#include "launch/session/job.h"
#include "launch/base/output.h"
#include "launch/session/plugin_load.h"
#include "launch/session/build.h"
#include "quant/prepare/report.h"

#include <jansson.h>

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
    status = oct_plugins_load(&s->recipe.plugins);
out:
    oct_free(&override);
    return status;
}

static oct_status open_file(subject *s, const char *path, const char *data_path)
{
    OCT_TRY(oct_file_kind_of(path, &s->kind));
    OCT_CHECK(s->kind != OCT_FILE_MODEL, OCT_USAGE,
              "command line: %s is an int8 model, whose modules are steps of a program now; octet "
              "inspect without --graph and --tree shows them, and --graph --dot draws them",
              path);
    if (s->kind == OCT_FILE_RECIPE) return read_recipe(s, path, data_path);
    OCT_TRY(oct_job_checkpoint(&s->checkpoint, path, s->kind));
    return oct_job_checkpoint_recipe(&s->recipe, &s->checkpoint, data_path);
}

static oct_status load_model(subject *s, oct_view view)
{
    const oct_recipe *r = &s->recipe;
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

static oct_status write_view(const subject *s, oct_view view, oct_text *text)
{
    switch (view) {
    case OCT_VIEW_GRAPH:
        return oct_graph_table(oct_graph_of(s->model), text);
    case OCT_VIEW_DOT:
        return write_dot(oct_graph_of(s->model), NULL, text);
    case OCT_VIEW_TREE:
        break;
    }
    return oct_tree_write(text, s->model);
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

static oct_status print_view(subject *s, const char *path, oct_view view, const char *data_path,
                             bool json)
{
    oct_text text = {0};
    oct_status status = OCT_OK;
    OCT_TRY(open_file(s, path, data_path));
    OCT_TRY(load_model(s, view));
    OCT_TRY_OUT(write_view(s, view, &text));
    status = json ? print_json(s, path, view, text.data) : oct_print("%s", text.data);
out:
    oct_text_free(&text);
    return status;
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
    oct_file_kind kind;
    OCT_TRY(oct_file_kind_of(path, &kind));
    if (kind == OCT_FILE_MODEL && view == OCT_VIEW_DOT) return print_program(path, json);
    oct_status status = print_view(&s, path, view, data_path, json);
    oct_module_destroy(&s.model);
    oct_dataset_close(&s.data);
    oct_recipe_free(&s.recipe);
    oct_checkpoint_close(&s.checkpoint);
    return status;
}
