/* octet import shows what a network of another framework holds, and begins a recipe for it. */
#include "core/nn/modules.h"
#include "core/nn/network.h"
#include "io/augment/augment.h"
#include "io/file/file.h"
#include "io/onnx/build.h"
#include "io/onnx/fold.h"
#include "launch/cmd/command.h"
#include "launch/cmd/begun_recipe.h"
#include "launch/runfolder/run_folder.h"
#include "launch/session/build.h"
#include "quant/module/rule.h"

#include <stdlib.h>

enum { SIZE, OUTPUT };
enum { TYPES_MAX = 128 };

/* A network on its way from a file to a recipe. */
typedef struct network {
    const char *path;
    const oct_args *args;
    void *bytes; /* with external data */
    size_t size;
    int64_t h, w;             /* 0: as the file declares it */
    int64_t nodes;            /* before folding */
    int64_t tensors, numbers; /* of parameters */
    int64_t fixed;            /* numbers that are none, in parameters of modules */
    int64_t unseen;           /* batch norms, where none has seen data */
    char *notes;              /* of the built one */
    oct_onnx_graph graph;
    /* What it becomes: types of modules, and how many of each. */
    const oct_module_type *type[TYPES_MAX];
    int64_t count[TYPES_MAX];
    int types;
    /* Its operators: their types, each once, and how many of each; owned. */
    const char **op;
    int64_t *uses;
    size_t num_ops;
} network;

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Counts what training may change: each tensor once, however many nodes share it. */
static oct_status count_parameters(network *m)
{
    const oct_onnx_graph *g = &m->graph;
    OCT_OWNED(oct_free) bool *seen = NULL;
    OCT_TRY(oct_alloc(&seen, (size_t)g->num_values, sizeof *seen));
    for (int64_t i = 0; i < g->num_nodes; i++)
        for (int k = 0; k < g->nodes[i].inputs; k++) {
            const oct_onnx_value *v = oct_onnx_input(g, &g->nodes[i], k);
            const bool learned = v && v->data && v->learned;
            /* Statistics are kept by training, not learned. */
            const bool statistic = k >= 3 && strcmp(g->nodes[i].type, "BatchNormalization") == 0;
            if (!learned || statistic || seen[v - g->values]) continue;
            seen[v - g->values] = true;
            m->tensors++;
            m->numbers += oct_onnx_numel(v);
        }
    return OCT_OK;
}

/* Counts the numbers that training leaves fixed, and by type the atomic modules, which are one operation each. */
static oct_status count_module(void *user, oct_module *module)
{
    network *m = user;
    int i = 0;
    for (size_t k = 0; k < module->num_params; k++)
        if (module->params[k]->frozen) m->fixed += oct_numel(&module->params[k]->value);
    if (!module->type->atomic) return OCT_OK;
    while (i < m->types && m->type[i] != module->type)
        i++;
    if (i == TYPES_MAX) return OCT_OK;
    if (i == m->types) m->type[m->types++] = module->type;
    m->count[i]++;
    return OCT_OK;
}

/* Builds it as a run would, and counts the modules. */
static oct_status build_network(network *m)
{
    const oct_onnx_graph *g = &m->graph;
    oct_onnx_build_options options = {.without_softmax = true};
    oct_onnx_built built;
    OCT_OWNED(oct_module_destroy) oct_module *model = NULL;
    oct_onnx_set_size(g, &options);
    OCT_TRY(oct_onnx_build(&model, g, &options, &built));
    const oct_status status = oct_module_walk(model, count_module, m);
    m->unseen = oct_batch_norms_unseen(model);
    const oct_status noted = oct_strdup(&m->notes, oct_network_notes(model));
    return status == OCT_OK ? noted : status;
}

static void print_modules(const network *m)
{
    if (m->fixed > 0)
        oct_print("\nfixed       %s numbers, which the network has as constants: training "
                  "leaves them as they are\n",
                  oct_text_count(m->fixed).text);
    oct_print("\n%-24s %5s  %s\n", "module", "count", "in the int8 model, where its place allows");
    for (int i = 0; i < m->types; i++)
        oct_print("%-24s %5" PRId64 "  %s\n", m->type[i]->name, m->count[i],
                  oct_quant_rule_find(m->type[i]) ? "quantized" : "float");
    if (m->notes[0]) oct_print("\nchanged\n%s", m->notes);
    if (m->unseen > 0)
        oct_print("\nuntrained   its batch norms have seen no data (mean 0, variance 1): "
                  "train it in float first, with float.epochs\n");
}

static void print_ports(const oct_onnx_graph *g, const char *what, const int32_t *ports, int count)
{
    char shape[OCT_ONNX_SHAPE_BYTES];
    for (int i = 0; i < count; i++) {
        const oct_onnx_value *v = &g->values[ports[i]];
        const char *name = ports == g->outputs ? g->output_names[i] : v->name;
        oct_print("%-12s%s %s %s\n", i ? "" : what, oct_show(name, strlen(name)).text,
                  oct_dtype_name(v->dtype), oct_onnx_shape_text(v, shape));
    }
}

static void print_network(const network *m)
{
    const oct_onnx_graph *g = &m->graph;
    oct_print("network     %s\nproducer    %s\nformat      opset %" PRId64 ", file format %" PRId64
              "\n",
              m->path, g->producer[0] ? g->producer : "unknown", g->opset, g->ir_version);
    print_ports(g, "inputs", g->inputs, g->num_inputs);
    print_ports(g, "outputs", g->outputs, g->num_outputs);
    oct_print("parameters  %s in %" PRId64 " tensors\n", oct_text_count(m->numbers).text,
              m->tensors);
    oct_print("nodes       %" PRId64, g->num_nodes);
    if (m->nodes != g->num_nodes)
        oct_print(", of %" PRId64 " in the file: the others are constants or do nothing", m->nodes);
    oct_print("\n\n%-24s %5s\n", "operator", "count");
    for (size_t i = 0; i < m->num_ops; i++)
        oct_print("%-24s %5" PRId64 "\n", oct_show(m->op[i], strlen(m->op[i])).text, m->uses[i]);
}

static json_t *ports_json(const oct_onnx_graph *g, const int32_t *ports, int count)
{
    json_t *all = json_array();
    char shape[OCT_ONNX_SHAPE_BYTES];
    for (int i = 0; i < count; i++) {
        const oct_onnx_value *v = &g->values[ports[i]];
        json_array_append_new(
            all,
            json_pack("{s:o, s:s, s:s}", "name",
                      oct_json_string(ports == g->outputs ? g->output_names[i] : v->name), "type",
                      oct_dtype_name(v->dtype), "shape", oct_onnx_shape_text(v, shape)));
    }
    return all;
}

static void print_json(const network *m)
{
    const oct_onnx_graph *g = &m->graph;
    json_t *types = json_object(), *modules = json_object();
    for (int i = 0; i < m->types; i++)
        json_object_set_new(modules, m->type[i]->name,
                            json_pack("{s:I, s:b}", "count", (json_int_t)m->count[i], "quantized",
                                      oct_quant_rule_find(m->type[i]) != NULL));
    for (size_t i = 0; i < m->num_ops; i++)
        json_object_set_new(types, oct_show(m->op[i], strlen(m->op[i])).text,
                            json_integer(m->uses[i]));
    oct_print_json(json_pack(
        "{s:s, s:o, s:o, s:I, s:I, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:s}", "kind",
        "onnx network", "file", oct_json_string(m->path), "producer", oct_json_string(g->producer),
        "opset", (json_int_t)g->opset, "file_format", (json_int_t)g->ir_version, "inputs",
        ports_json(g, g->inputs, g->num_inputs), "outputs",
        ports_json(g, g->outputs, g->num_outputs), "parameters", (json_int_t)m->numbers,
        "parameter_tensors", (json_int_t)m->tensors, "fixed", (json_int_t)m->fixed,
        "untrained_batch_norms", (json_int_t)m->unseen, "nodes", (json_int_t)g->num_nodes,
        "file_nodes", (json_int_t)m->nodes, "operators", types, "modules", modules, "changed",
        m->notes));
}

static oct_status count_operators(network *m)
{
    const oct_onnx_graph *g = &m->graph;
    const size_t nodes = (size_t)g->num_nodes;
    OCT_TRY(oct_alloc(&m->op, nodes, sizeof *m->op));
    OCT_TRY(oct_alloc(&m->uses, nodes, sizeof *m->uses));
    for (size_t i = 0; i < nodes; i++)
        m->op[i] = g->nodes[i].type;
    if (nodes > 1) qsort(m->op, nodes, sizeof *m->op, by_text);
    for (size_t i = 0; i < nodes; i++) {
        if (i == 0 || strcmp(m->op[m->num_ops - 1], m->op[i]) != 0) m->op[m->num_ops++] = m->op[i];
        m->uses[m->num_ops - 1]++;
    }
    return OCT_OK;
}

/* Writes the recipe and a copy of the network, with its external data, into a folder that check_folder has accepted. */
static oct_status write_folder(const network *m, const char *folder)
{
    OCT_OWNED(oct_free) char *model = NULL, *recipe = NULL;
    OCT_OWNED(oct_text_free) oct_text text = {0};
    OCT_TRY(oct_run_path(folder, OCT_ONNX_COPY, &model));
    OCT_TRY(oct_run_path(folder, "recipe.yaml", &recipe));
    OCT_TRY(oct_import_recipe(&m->graph, m->path, model, m->unseen > 0, &text));
    OCT_TRY(oct_make_folders(folder));
    OCT_TRY(oct_file_write(model, m->bytes, m->size));
    OCT_TRY(oct_file_write(recipe, text.data, text.length));
    if (!m->args->json) oct_print("\nwritten     %s, %s\n", recipe, model);
    return OCT_OK;
}

static oct_status check_folder(const char *folder)
{
    static const char *const names[] = {OCT_ONNX_COPY, "recipe.yaml"};
    for (size_t i = 0; i < OCT_COUNT(names); i++) {
        OCT_OWNED(oct_free) char *path = NULL;
        OCT_TRY(oct_run_path(folder, names[i], &path));
        OCT_CHECK_ARGS(!oct_file_exists(path), "-o %s: holds %s already; choose another folder",
                       folder, names[i]);
    }
    return OCT_OK;
}

static oct_status run_import(const oct_args *args)
{
    network m = {.path = args->word[0], .args = args};
    const char *size = args->option[SIZE].text;
    oct_status status = OCT_OK;
    if (args->option[OUTPUT].given) OCT_TRY(check_folder(args->option[OUTPUT].text));
    if (size)
        OCT_CHECK_ARGS(oct_augment_size(size, &m.h, &m.w),
                       "--size %s: is no size such as 224 or, height first, 224x160",
                       oct_show(size, strlen(size)).text);
    OCT_TRY_OUT(oct_onnx_load(m.path, &m.bytes, &m.size));
    const oct_onnx_source source = {.path = m.path, .bytes = m.bytes, .size = m.size};
    OCT_TRY_OUT(oct_onnx_read_bytes(&m.graph, &source));
    m.nodes = m.graph.num_nodes;
    OCT_TRY_OUT(oct_onnx_fold(&m.graph, m.h, m.w, 0));
    OCT_TRY_OUT(count_parameters(&m));
    /* What the file holds is shown in any case; what it becomes, when all of it can be built. */
    OCT_TRY_OUT(count_operators(&m));
    if (!args->json) print_network(&m);
    OCT_TRY_OUT(build_network(&m));
    args->json ? print_json(&m) : print_modules(&m);
    if (args->option[OUTPUT].given) OCT_TRY_OUT(write_folder(&m, args->option[OUTPUT].text));
out:
    oct_onnx_free(&m.graph);
    OCT_FREE_ALL(&m.bytes, &m.notes, &m.op, &m.uses);
    return status;
}

static const oct_option options[] = {
    [SIZE] = OCT_TEXT(0, "--size", "HxW", "of the images, if not as the file says"),
    [OUTPUT] = OCT_TEXT('o', "--output", "FOLDER", "write a recipe and a copy of the file"),
    {0},
};

const oct_command oct_command_import = {
    .name = "import",
    .usage = "octet import NET.onnx [--size HxW] [-o FOLDER]",
    .summary = "shows what an ONNX network holds, and begins a recipe for it",
    .help =
        "NET.onnx is a float network that PyTorch, Keras or another framework has exported,\n"
        "opset 9 to 27. Shapes follow for the size of image and any batch, constants and shape\n"
        "arithmetic are folded. Then the network is built, as a run would build it; what cannot\n"
        "be is listed, all at once.\n"
        "\n"
        "Data in a file beside it (net.onnx.data) are read too. With -o, the folder gets\n"
        "model.onnx, one file with all of it, and a recipe.yaml to complete.\n"
        "\n"
        "    octet import resnet18.onnx\n"
        "    octet import yolo.onnx --size 320x320 -o yolo\n",
    .options = options,
    .min_words = 1,
    .max_words = 1,
    .run = run_import,
};
