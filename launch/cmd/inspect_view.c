/* The prepared model is built as eval and convert build it. */
#include "launch/cmd/inspect_view.h"

#include "launch/cmd/command.h"
#include "launch/cmd/subject.h"
#include "launch/report/diagram.h"
#include "launch/session/plugin_load.h"
#include "quant/prepare/report.h"

static oct_status read_recipe(oct_subject *s, const char *path, const char *data_path)
{
    OCT_OWNED(oct_free) char *override = NULL;
    if (data_path) OCT_TRY(oct_format(&override, "data.path=%s", data_path));
    const char *overrides[] = {override};
    OCT_TRY(oct_recipe_read(&s->recipe, path, NULL, overrides, data_path ? 1 : 0));
    return oct_plugins_load(&s->recipe.plugins, false, NULL);
}

static oct_status build_model(oct_subject *s, const char *path, oct_view view,
                              const char *data_path)
{
    const oct_recipe *r = &s->recipe;
    bool prepared = false;
    OCT_CHECK_ARGS(s->kind != OCT_FILE_MODEL,
                   "%s is an int8 model, whose modules are steps of a program now; octet inspect "
                   "without --graph and --tree shows them, and --graph --dot draws them",
                   path);
    if (s->kind == OCT_FILE_RECIPE) {
        OCT_TRY(read_recipe(s, path, data_path));
    } else {
        OCT_TRY(oct_job_open_checkpoint(&s->checkpoint, path, s->kind));
        OCT_TRY(oct_subject_read_recipe(s, data_path));
    }
    OCT_TRY(oct_load_data(r, OCT_TEST, NULL, &s->data));
    if (s->checkpoint.bytes)
        OCT_TRY(oct_build_from_checkpoint(&s->root, &s->checkpoint, r, &s->data, &prepared));
    else
        OCT_TRY(oct_build_model(&s->root, r, &s->data));
    if (prepared || (view == OCT_VIEW_TREE && s->checkpoint.bytes)) return OCT_OK;
    oct_module_train(s->root, true);
    return oct_prepare_model(&s->root, r, &s->data, NULL);
}

static const char *const view_names[] = {
    [OCT_VIEW_GRAPH] = "graph", [OCT_VIEW_DOT] = "dot", [OCT_VIEW_TREE] = "tree"};

static oct_status print_json(const oct_subject *s, const char *file, oct_view view,
                             const char *text)
{
    oct_tensor_quantizer *list = NULL;
    size_t count = 0;
    const oct_graph *graph = oct_graph_of(s->root);
    if (graph) OCT_TRY(oct_graph_quantizers(graph, &list, &count));
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) {
        const oct_fake_quant *fq = list[i].fq;
        oct_qparams q = oct_fake_quant_qparams(fq);
        json_array_append_new(
            array, json_pack("{s:s, s:s, s:b, s:i, s:s, s:f, s:i, s:I}", "tensor", list[i].path,
                             "quantizer", oct_module_path(&fq->base).text, "shared", list[i].shared,
                             "bits", fq->qconfig.bits, "observer", fq->qconfig.observer->name,
                             "scale", (double)q.scale, "zero_point", (int)q.zero_point, "updates",
                             (json_int_t)*fq->updates));
    }
    oct_free(&list);
    oct_print_json(json_pack("{s:s, s:o, s:b, s:s, s:o}", "kind", oct_file_kind_name(s->kind),
                             "file", oct_json_string(file), "prepared", graph != NULL,
                             view_names[view], text, "quantizers", array));
    return OCT_OK;
}

static oct_status draw_program(const char *path, const oct_args *args)
{
    OCT_OWNED(oct_model_free) oct_model model = {0};
    OCT_OWNED(oct_text_free) oct_text text = {0};
    OCT_TRY(oct_model_load(&model, path, args->allow_large));
    OCT_TRY(oct_diagram_write_dot(NULL, &model.program, &text));
    if (args->json)
        oct_print_json(json_pack("{s:s, s:o, s:s}", "kind", oct_file_kind_name(OCT_FILE_MODEL),
                                 "file", oct_json_string(path), view_names[OCT_VIEW_DOT],
                                 text.data));
    else
        oct_print("%s", text.data);
    return OCT_OK;
}

oct_status oct_print_view(const oct_args *args, oct_view view, const char *data_path)
{
    const char *path = args->word[0];
    OCT_OWNED(oct_subject_close) oct_subject s = {0};
    OCT_TRY(oct_file_kind_of(path, &s.kind));
    if (s.kind == OCT_FILE_MODEL && view == OCT_VIEW_DOT) return draw_program(path, args);
    OCT_OWNED(oct_text_free) oct_text text = {0};
    OCT_TRY(build_model(&s, path, view, data_path));
    OCT_TRY(view == OCT_VIEW_GRAPH ? oct_graph_table(oct_graph_of(s.root), &text)
            : view == OCT_VIEW_DOT ? oct_diagram_write_dot(oct_graph_of(s.root), NULL, &text)
                                   : oct_tree_write(&text, s.root));
    if (args->json) return print_json(&s, path, view, text.data);
    oct_print("%s", text.data);
    return OCT_OK;
}
