/* octet inspect shows what a file holds. Digests are checked on the way in; nothing is computed with
 * it. */
#include "io/checkpoint/checkpoint.h"
#include "io/export/format.h"
#include "io/file/file.h"
#include "io/hdf5/hdf5.h"
#include "io/model/model_file.h"
#include "launch/cmd/command.h"
#include "launch/cmd/inspect_view.h"
#include "launch/cmd/recipe_args.h"
#include "launch/deploy/device.h"
#include "launch/deploy/golden.h"
#include "launch/session/file_kind.h"
#include "launch/runfolder/run_folder.h"
#include "quant/program/step.h"

enum { GRAPH, TREE, DOT, DATA, DEVICE };

/* Class names that are kept as lines of a text; NULL when there are none. */
static json_t *names_json(const char *names)
{
    json_t *all = names ? json_array() : NULL;
    for (const char *line = names; line && *line; line += strcspn(line, "\n") + 1) {
        const size_t bytes = strcspn(line, "\n");
        json_t *name = json_stringn(line, bytes);
        json_array_append_new(all, name ? name : json_string(oct_show(line, bytes).text));
    }
    return all;
}

static void print_names(const char *names)
{
    enum { SHOWN = 10 };
    int64_t count = 0;
    for (const char *at = names; at && *at; at += strcspn(at, "\n") + 1, count++)
        if (count < SHOWN)
            oct_print("%s%s", count ? ", " : "class names ", oct_show(at, strcspn(at, "\n")).text);
    if (count > 0) oct_print("%s\n", count > SHOWN ? " and others" : "");
}

/* Shows a checkpoint: a line for each tensor of the state, without building the model. */

typedef struct tensors {
    oct_h5 *file;
    json_t *json; /* an array, or NULL to print lines */
    int64_t count, bytes;
} tensors;

static oct_status list_tensors(tensors *t)
{
    static const char *const groups[] = {"state/", "optimizer/"};
    const char *path;
    for (size_t g = 0; g < OCT_COUNT(groups); g++)
        for (size_t next = 0; (path = oct_h5_next_dataset(t->file, groups[g], &next));) {
            oct_dtype dtype;
            oct_shape shape;
            OCT_TRY(oct_h5_describe(t->file, path, &dtype, &shape));
            t->count++;
            t->bytes += oct_shape_numel(&shape) * (int64_t)oct_dtype_bytes(dtype);
            const oct_shape_text text = oct_text_shape(&shape);
            if (t->json)
                json_array_append_new(t->json,
                                      json_pack("{s:s, s:s, s:s}", "name", path, "dtype",
                                                oct_dtype_name(dtype), "shape", text.text));
            else
                oct_print("  %-44s %-4s %s\n", path, oct_dtype_name(dtype), text.text);
        }
    return OCT_OK;
}

static oct_status print_checkpoint(const oct_checkpoint *c, tensors *t)
{
    uint8_t digest[32];
    char hex[65];
    oct_sha256(c->bytes, c->size, digest);
    oct_hex(digest, hex);
    if (!t->json) {
        oct_print("checkpoint  %s\nsize        %s\nsha256      %s\nstep        %" PRId64
                  "\nphase       %s\n",
                  c->path, oct_text_size((int64_t)c->size).text, hex, c->info.step, c->info.phase);
        print_names(c->info.class_names);
    }
    OCT_TRY(list_tensors(t));
    if (!t->json)
        oct_print("%" PRId64 " tensors, %s\n", t->count, oct_text_size(t->bytes).text);
    else
        oct_print_json(json_pack("{s:s, s:o, s:I, s:s, s:I, s:s, s:o, s:o*, s:I, s:O}", "kind",
                                 "checkpoint", "file", oct_json_string(c->path), "bytes",
                                 (json_int_t)c->size, "sha256", hex, "step",
                                 (json_int_t)c->info.step, "phase", c->info.phase, "recipe",
                                 oct_json_string(c->info.recipe ? c->info.recipe : ""),
                                 "class_names", names_json(c->info.class_names), "tensor_bytes",
                                 (json_int_t)t->bytes, "tensors", t->json));
    return OCT_OK;
}

static oct_status inspect_checkpoint(const char *path, bool json)
{
    OCT_OWNED(oct_checkpoint_close) oct_checkpoint checkpoint = {0};
    OCT_TRY(oct_checkpoint_open(&checkpoint, path));
    json_auto_t *list = json ? json_array() : NULL;
    return print_checkpoint(&checkpoint, &(tensors){.file = checkpoint.file, .json = list});
}

/* Shows an int8 model: a line for each step of the program. */

typedef struct shown_text {
    char text[80];
} shown_text;

static shown_text value_text(const oct_value *v)
{
    shown_text shown;
    snprintf(shown.text, sizeof shown.text, "%" PRId64 "x%" PRId64 "x%" PRId64, v->h, v->w, v->c);
    return shown;
}

/* Counts the parameters of a step that has passed the check; of a float layer all that it keeps, a batch
 * norm's statistics too. */
static int64_t step_parameters(const oct_step *s)
{
    const oct_step_type *type = oct_step_type_of(s->kind);
    int64_t numel = 0;
    for (int64_t i = 0; s->kind == OCT_STEP_FLOAT && i < s->fallback->num_arrays; i++)
        numel += oct_shape_numel(&s->fallback->arrays[i].shape);
    for (int i = 0; i < type->num_arrays; i++)
        if (type->arrays[i].parameters) numel += oct_step_array_numel(s, &type->arrays[i]);
    return numel;
}

/* Names the step, as in "conv", or in "float linear" for a float layer. */
static shown_text kind_text(const oct_step *s)
{
    shown_text shown;
    snprintf(shown.text, sizeof shown.text, "%s%s", s->kind == OCT_STEP_FLOAT ? "float " : "",
             oct_step_operation(s));
    return shown;
}

static void print_program(const oct_program *p)
{
    char window[OCT_WINDOW_TEXT];
    int names = 5, kinds = 10; /* columns */
    for (int64_t i = 0; i < p->num_steps; i++) {
        const int name = (int)strlen(p->steps[i].name);
        const int type = (int)strlen(kind_text(&p->steps[i]).text);
        names = name > names ? name : names;
        kinds = type > kinds ? type : kinds;
    }
    oct_print("%3s  %-*s  %-*s  %-7s %-12s %-12s %10s  %-6s %-12s %s\n", "#", names, "layer", kinds,
              "kind", "window", "input", "output", "parameters", "type", "scale", "zero point");
    for (int64_t i = 0; i < p->num_steps; i++) {
        const oct_step *s = &p->steps[i];
        const oct_value *v = &p->values[s->output];
        oct_print("%3" PRId64 "  %-*s  %-*s  %-7s %-12s %-12s %10s", i, names, s->name, kinds,
                  kind_text(s).text, oct_step_window_text(s, window),
                  value_text(&p->values[s->input[0]]).text, value_text(v).text,
                  oct_text_count(step_parameters(s)).text);
        if (v->dtype == OCT_F32)
            oct_print("  float\n");
        else
            oct_print("  %-6s %-12.6g %d\n", oct_dtype_name(v->dtype), (double)v->q.scale,
                      v->q.zero_point);
    }
}

static json_t *program_json(const oct_program *p)
{
    json_t *array = json_array();
    for (int64_t i = 0; i < p->num_steps; i++) {
        const oct_step *s = &p->steps[i];
        const oct_value *v = &p->values[s->output];
        json_t *scales = json_array();
        const int64_t channels = oct_step_type_of(s->kind)->weights ? s->conv.shape.out_c : 0;
        for (int64_t c = 0; c < channels; c++)
            json_array_append_new(scales, json_real((double)s->conv.weight_scale[c]));
        json_array_append_new(
            array,
            json_pack("{s:s, s:s, s:s, s:s, s:I, s:s, s:f, s:i, s:o}", "name", s->name, "kind",
                      oct_step_type_of(s->kind)->name, "input",
                      value_text(&p->values[s->input[0]]).text, "output", value_text(v).text,
                      "parameters", (json_int_t)step_parameters(s), "dtype",
                      oct_dtype_name(v->dtype), "scale",
                      v->dtype == OCT_F32 ? 0.0 : (double)v->q.scale, "zero_point",
                      v->dtype == OCT_F32 ? 0 : (int)v->q.zero_point, "weight_scales", scales));
    }
    return array;
}

/* Whether a checkpoint is known that the model was converted from. */
static bool of_checkpoint(const oct_model *m)
{
    static const uint8_t none[sizeof m->checkpoint_digest];
    return memcmp(m->checkpoint_digest, none, sizeof none) != 0;
}

static void print_model_json(const oct_model *m, const char *path, size_t size, const char *hex,
                             int64_t parameters)
{
    const oct_certificate *c = &m->certificate;
    char checkpoint[65];
    oct_print_json(json_pack(
        "{s:s, s:o, s:I, s:s, s:s*, s:i, s:o*, s:I, s:{s:I, s:I, s:I, s:f, s:I, s:I}, s:o, s:o}",
        "kind", "int8 model", "file", oct_json_string(path), "bytes", (json_int_t)size, "sha256",
        hex, "checkpoint", of_checkpoint(m) ? oct_hex(m->checkpoint_digest, checkpoint) : NULL,
        "classes", m->classes, "class_names", names_json(m->class_names), "parameters",
        (json_int_t)parameters, "certificate", "images", (json_int_t)c->images, "logits_differ",
        (json_int_t)c->logits_differ, "correct", (json_int_t)c->correct, "qat_accuracy",
        c->qat_accuracy, "golden", (json_int_t)c->golden_count, "float_layers",
        (json_int_t)c->num_fallbacks, "recipe",
        oct_json_string(oct_model_has_recipe(m) ? m->recipe : ""), "layers",
        program_json(&m->program)));
}

static void print_model(const oct_model *m, const char *path, size_t size, const char *hex,
                        int64_t parameters)
{
    const oct_certificate *c = &m->certificate;
    char checkpoint[65];
    oct_print("int8 model  %s\nsize        %s\nsha256      %s\n", path,
              oct_text_size((int64_t)size).text, hex);
    if (of_checkpoint(m))
        oct_print("made from   checkpoint %.16s...\n", oct_hex(m->checkpoint_digest, checkpoint));
    else
        oct_print("made by     a program, from no checkpoint\n");
    print_program(&m->program);
    oct_print("%s parameters, %d %s\n", oct_text_count(parameters).text, m->classes,
              oct_model_gives_values(m) ? "values" : "classes");
    print_names(m->class_names);
    if (c->images > 0)
        oct_print("certificate %s test images, %" PRId64 " logits differ from QAT evaluation, ",
                  oct_text_count(c->images).text, c->logits_differ);
    else
        oct_print("certificate none, ");
    if (c->images > 0 && c->qat_accuracy >= 0)
        oct_print("%.2f %% right; ", c->rows ? 100.0 * (double)c->correct / (double)c->rows : 0.0);
    oct_print("%" PRId64 " golden inputs; %" PRId64 " layers in float\n%s", c->golden_count,
              c->num_fallbacks, c->fallbacks ? c->fallbacks : "");
}

/* What an int8 model asks of a device. */

/* Files for TFLM, by what they take and give. */
enum { FLOATS, CODES, PIXELS, FORMS };
static const char *const form_names[FORMS] = {"floats", "codes", "pixels"};

/* Finds the bytes of tensors in TFLM's arena for each form of the TFLite file; -1: the model has no such form. */
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
    oct_print(
        "int8 model  %s\nflash       %s bytes: weights, biases, multipliers, tables, layers\n"
        "scratch     %s bytes: values between layers, of one sample, in the C form and in Octet\n"
        "operations  %s multiply-adds of codes a sample\n",
        path, oct_text_count(d->all[OCT_DEVICE_FLASH]).text,
        oct_text_count(d->all[OCT_DEVICE_SCRATCH]).text,
        oct_text_count(d->all[OCT_DEVICE_PRODUCTS]).text);
    for (int f = 0; f < FORMS; f++)
        if (arena[f] >= 0)
            oct_print("TFLM arena  %s bytes: tensors of the TFLite file of %s\n",
                      oct_text_count(arena[f]).text, form_names[f]);
    const oct_program *p = d->program;
    int width = 5;
    for (int64_t i = 0; i < p->num_steps; i++)
        if ((int)strlen(p->steps[i].name) > width) width = (int)strlen(p->steps[i].name);
    oct_print("%3s  %-*s  %-11s %12s %12s %16s\n", "#", width, "layer", "kind", "flash", "scratch",
              "multiply-adds");
    for (int64_t i = 0; i < p->num_steps; i++)
        oct_print("%3" PRId64 "  %-*s  %-11s %12s %12s %16s\n", i, width, p->steps[i].name,
                  oct_step_type_of(p->steps[i].kind)->name,
                  oct_text_count(d->of[i][OCT_DEVICE_FLASH]).text,
                  oct_text_count(d->of[i][OCT_DEVICE_SCRATCH]).text,
                  oct_text_count(d->of[i][OCT_DEVICE_PRODUCTS]).text);
    for (int figure = 0; figure < OCT_DEVICE_FIGURES; figure++) {
        OCT_OWNED(oct_text_free) oct_text text = {0};
        OCT_TRY(oct_device_largest(d, (oct_device_figure)figure, &text));
        if (text.data) oct_print("most %s: %s\n", oct_device_figure_names[figure], text.data);
    }
    return OCT_OK;
}

static json_t *figures_json(const int64_t figure[OCT_DEVICE_FIGURES])
{
    return json_pack("{s:I, s:I, s:I}", "flash", (json_int_t)figure[OCT_DEVICE_FLASH], "scratch",
                     (json_int_t)figure[OCT_DEVICE_SCRATCH], "multiply_adds",
                     (json_int_t)figure[OCT_DEVICE_PRODUCTS]);
}

static void print_device_json(const oct_device *d, const char *path, const int64_t arena[FORMS])
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
    oct_print_json(all);
}

/* Prints what a microcontroller needs to run the model: flash, scratch, products, and TFLM's arena for each form of
 * file. */
static oct_status print_device(const oct_model *model, const char *path, bool json)
{
    OCT_OWNED(oct_device_free) oct_device device = {0};
    int64_t arena[FORMS];
    OCT_TRY(find_arenas(model, arena));
    OCT_TRY(oct_device_of(&device, &model->program));
    if (!json) return print_device_text(&device, path, arena);
    print_device_json(&device, path, arena);
    return OCT_OK;
}

static oct_status inspect_model(const oct_args *args, bool device)
{
    const char *path = args->word[0];
    OCT_OWNED(oct_model_free) oct_model model = {0};
    size_t size = 0;
    char hex[65];
    OCT_TRY(oct_model_load(&model, path, args->allow_large));
    const oct_status status =
        device ? print_device(&model, path, args->json) : oct_file_sha256(path, &size, hex);
    if (!device && status == OCT_OK) {
        int64_t parameters = 0;
        for (int64_t i = 0; i < model.program.num_steps; i++)
            parameters += step_parameters(&model.program.steps[i]);
        args->json ? print_model_json(&model, path, size, hex, parameters)
                   : print_model(&model, path, size, hex, parameters);
    }
    return status;
}

/* Shows a recipe with the changes after it: every key with its value. */
static oct_status inspect_recipe(const oct_args *args)
{
    OCT_OWNED(oct_recipe_free) oct_recipe recipe = {0};
    OCT_OWNED(oct_text_free) oct_text text = {0};
    OCT_TRY(oct_recipe_of_args(&recipe, args));
    OCT_TRY(oct_recipe_write(&recipe, false, &text));
    args->json ? oct_print_json(json_pack("{s:s, s:o, s:s}", "kind", "recipe", "file",
                                          oct_json_string(args->word[0]), "recipe", text.data))
               : oct_print("%s", text.data);
    return OCT_OK;
}

/* Shows a run folder: how far the run is, and its files. */
static oct_status inspect_run(const char *path, bool json)
{
    OCT_OWNED(oct_checkpoint_close) oct_checkpoint newest = {0};
    OCT_OWNED(oct_free) char *checkpoints = NULL, *folder = NULL, *model = NULL;
    OCT_TRY(oct_run_checkpoints(path, &checkpoints));
    OCT_TRY(oct_run_folder_of(path, &folder));
    OCT_TRY(oct_run_path(folder ? folder : path, "model.int8.h5", &model));
    OCT_TRY(oct_checkpoint_newest(&newest, checkpoints, NULL));
    bool converted = oct_file_exists(model);
    if (json)
        oct_print_json(json_pack(
            "{s:s, s:o, s:o, s:I, s:s, s:o}", "kind", "run folder", "folder", oct_json_string(path),
            "checkpoint", oct_json_string(newest.bytes ? newest.path : ""), "step",
            (json_int_t)newest.info.step, "phase", newest.bytes ? newest.info.phase : "", "model",
            oct_json_string(converted ? model : "")));
    else {
        oct_print("run folder  %s\n", path);
        if (newest.bytes)
            oct_print("checkpoint  %s: step %" PRId64 ", phase %s\n", newest.path, newest.info.step,
                      newest.info.phase);
        else
            oct_print("checkpoint  none yet\n");
        oct_print("int8 model  %s\n", converted ? model : "none yet");
    }
    return OCT_OK;
}

static oct_status run_inspect(const oct_args *args)
{
    const char *path = args->word[0];
    const char *data = args->option[DATA].text;
    bool graph = args->option[GRAPH].given, tree = args->option[TREE].given;
    oct_file_kind kind;
    const bool dot = args->option[DOT].given, device = args->option[DEVICE].given;
    OCT_CHECK_ARGS(!graph || !tree, "use --graph or --tree, not both");
    OCT_CHECK_ARGS(graph || !dot, "--dot is for --graph; use --graph --dot");
    OCT_CHECK_ARGS(!data || graph || tree,
                   "--data is for --graph and --tree; nothing else needs the data");
    OCT_CHECK_ARGS(!device || !(graph || tree), "use --device, --graph or --tree, not several");
    OCT_CHECK_ARGS(args->num_words == 1 || !(graph || tree),
                   "'%s': --graph and --tree take no keys", args->word[1]);
    if (graph || tree)
        return oct_print_view(args,
                              dot     ? OCT_VIEW_DOT
                              : graph ? OCT_VIEW_GRAPH
                                      : OCT_VIEW_TREE,
                              data);
    OCT_TRY(oct_file_kind_of(path, &kind));
    OCT_CHECK_ARGS(kind == OCT_FILE_MODEL || !device, "--device is for int8 models; %s is none",
                   path);
    OCT_CHECK_ARGS(kind == OCT_FILE_RECIPE || args->num_words == 1,
                   "'%s': keys are for recipes; %s is none", args->word[1], path);
    switch (kind) {
    case OCT_FILE_CHECKPOINT:
        return inspect_checkpoint(path, args->json);
    case OCT_FILE_MODEL:
        return inspect_model(args, device);
    case OCT_FILE_RECIPE:
        return inspect_recipe(args);
    case OCT_FILE_RUN_FOLDER:
        return inspect_run(path, args->json);
    }
    return OCT_OK;
}

static const oct_option options[] = {
    [GRAPH] = OCT_SWITCH(0, "--graph", "the graph of the prepared model, as a table"),
    [TREE] = OCT_SWITCH(0, "--tree", "its modules with their quantizers, as a tree"),
    [DOT] = OCT_SWITCH(0, "--dot", "for --graph: as text for Graphviz's dot"),
    [DATA] = OCT_TEXT(0, "--data", "FOLDER",
                      "for these two: folder of the data set, if it is not where the recipe says"),
    [DEVICE] = OCT_SWITCH(0, "--device",
                          "of an int8 model: flash, scratch and multiply-adds, layer by layer"),
    {0},
};

const oct_command oct_command_inspect = {
    .name = "inspect",
    .usage = "octet inspect FILE [--graph [--dot] | --tree | --device] [--data FOLDER]\n"
             "       octet inspect RECIPE key=value ...",
    .summary = "shows what a checkpoint, int8 model, recipe or run folder holds",
    .help =
        "Shows layers with their shapes, scales and zero points, sizes, and the SHA-256 of the\n"
        "file; of a recipe every key, with the changes that are given.\n"
        "\n"
        "--graph and --tree build the model of a recipe, checkpoint or run folder and prepare\n"
        "it: the graph has a line for each operation in the order in which they run, the tree a\n"
        "line for each module, with state, observer, range, scale and zero point of each\n"
        "quantizer as the checkpoint has them. The size of the images comes from the data set,\n"
        "so it must be there.\n"
        "\n"
        "    octet inspect runs/a/model.int8.h5\n"
        "    octet inspect --graph my.yaml\n"
        "    octet inspect --graph --dot runs/a | dot -Tsvg > a.svg\n"
        "    octet inspect --tree runs/a\n"
        "\n"
        "--device shows what an int8 model asks of a device: flash for its constants, scratch\n"
        "for the values of one sample as the runtime and the C form plan them, multiply-adds,\n"
        "and the layers that take most of each. A layer's scratch is what is in memory while it\n"
        "runs.\n",
    .options = options,
    .min_words = 1,
    .max_words = OCT_ARGS_MAX,
    .run = run_inspect,
};
