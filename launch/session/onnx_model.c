/* The bytes of the file, with those of its external data, stay with the recipe, since a run builds its model several times. */
#include "launch/session/onnx_model.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "io/file/file.h"
#include "io/onnx/build.h"
#include "io/onnx/fold.h"
#include "launch/runfolder/run_folder.h"

#include <stdio.h>
#include <string.h>

static const char copy_name[] = "model.onnx";

static oct_status check_digest(const oct_recipe *recipe, const void *bytes, size_t size,
                               char hex[65])
{
    uint8_t digest[32];
    oct_sha256(bytes, size, digest);
    oct_hex(digest, hex);
    OCT_CHECK(!recipe->model_onnx_sha256[0] || strcmp(recipe->model_onnx_sha256, hex) == 0,
              OCT_USAGE,
              "model.onnx: %s has the SHA-256 %s, but model.onnx_sha256 is %s; leave "
              "model.onnx_sha256 out, or name the file that it is of",
              recipe->model_onnx, hex, recipe->model_onnx_sha256);
    return OCT_OK;
}

static oct_status set_digest(oct_recipe *recipe)
{
    char hex[65];
    OCT_TRY(check_digest(recipe, recipe->onnx, recipe->onnx_size, hex));
    oct_free(&recipe->model_onnx_sha256);
    return oct_strdup(&recipe->model_onnx_sha256, hex);
}

/* The run of this folder began with the same file. */
static oct_status is_of_run(const oct_recipe *recipe, bool *is)
{
    oct_recipe there;
    char *path = NULL;
    *is = false;
    OCT_TRY(oct_run_path(recipe->output, "recipe.yaml", &path));
    oct_status status = OCT_OK;
    if (oct_file_exists(path)) {
        status = oct_recipe_read(&there, path, NULL, NULL, 0);
        if (status == OCT_OK) {
            *is = strcmp(there.model_onnx, recipe->model_onnx) == 0;
            oct_recipe_free(&there);
        } else if (status != OCT_RESOURCE) {
            oct_fail_clear(); /* opening the folder reports what is wrong there */
            status = OCT_OK;
        }
    }
    oct_free(&path);
    return status;
}

/* A run goes on by its own copy when the file has gone. */
static oct_status find_copy(oct_recipe *recipe)
{
    char *copy = NULL;
    bool resumes;
    if (oct_file_exists(recipe->model_onnx)) return OCT_OK;
    OCT_TRY(is_of_run(recipe, &resumes));
    OCT_TRY(oct_run_path(recipe->output, copy_name, &copy));
    if (resumes && oct_file_exists(copy)) {
        oct_log(OCT_LOG_WARN, "model.onnx: %s is gone; using the run's copy, %s",
                recipe->model_onnx, copy);
        oct_status status = oct_onnx_load(copy, &recipe->onnx, &recipe->onnx_size);
        oct_free(&copy);
        return status;
    }
    oct_free(&copy);
    return OCT_OK;
}

oct_status oct_onnx_model_open(oct_recipe *recipe)
{
    if (!recipe->model_onnx[0] || recipe->onnx) return OCT_OK;
    OCT_TRY(find_copy(recipe));
    oct_status status = OCT_OK;
    if (!recipe->onnx)
        status = oct_onnx_load(recipe->model_onnx, &recipe->onnx, &recipe->onnx_size);
    if (status == OCT_DATA) return oct_fail_prefix("model.onnx");
    return status == OCT_OK ? set_digest(recipe) : status;
}

oct_status oct_onnx_model_share(oct_session *session, oct_recipe *recipe)
{
    const oct_collective *group = session->group;
    const bool first = group->rank == 0;
    oct_status status = OCT_OK;
    if (!recipe->model_onnx[0]) return OCT_OK;
    if (first) status = oct_onnx_model_open(recipe);
    OCT_TRY(oct_session_agree(session, status));
    if (group->size == 1) return OCT_OK;
    uint64_t size = recipe->onnx_size;
    OCT_TRY(group->broadcast(group, &size, sizeof size, 0));
    if (!first) {
        status = oct_alloc(&recipe->onnx, size, 1);
        recipe->onnx_size = size;
    }
    OCT_TRY(oct_session_agree(session, status));
    OCT_TRY(group->broadcast(group, recipe->onnx, size, 0));
    return oct_session_agree(session, first ? OCT_OK : set_digest(recipe));
}

/* The folder of a file. */
static oct_status folder_of(const char *file, char **folder)
{
    const char *slash = strrchr(file, '/');
    return oct_format(folder, "%.*s", slash ? (int)(slash - file) : 1, slash ? file : ".");
}

oct_status oct_onnx_model_find(oct_recipe *recipe, const char *file, const oct_recipe *there)
{
    char *run = NULL, *beside = NULL, *copy = NULL;
    oct_status status = OCT_OK;
    if (!recipe->model_onnx_sha256[0] || recipe->model_onnx[0]) return OCT_OK;
    OCT_TRY_OUT(oct_run_folder_of(file, &run));
    OCT_TRY_OUT(folder_of(file, &beside));
    OCT_TRY_OUT(oct_run_path(run ? run : beside, copy_name, &copy));
    const char *found = oct_file_exists(copy) ? copy : there ? there->model_onnx : "";
    oct_free(&recipe->model_onnx);
    status = oct_strdup(&recipe->model_onnx, found);
out:
    oct_free(&run);
    oct_free(&beside);
    oct_free(&copy);
    return status;
}

oct_status oct_onnx_model_keep(const oct_recipe *recipe, const char *folder)
{
    char *copy = NULL;
    if (!recipe->onnx) return OCT_OK;
    OCT_TRY(oct_run_path(folder, copy_name, &copy));
    oct_status status =
        oct_file_exists(copy) ? OCT_OK : oct_file_write(copy, recipe->onnx, recipe->onnx_size);
    oct_free(&copy);
    return status;
}

/* Values of any shape are a row of them, such as a detector's at all its positions: those of (N, K, P) in that
 * order, of images channels last. */
static oct_status flatten_values(oct_module *model, const oct_dataset *data, oct_onnx_built *built)
{
    oct_shape sample = built->output;
    oct_module *flatten = NULL;
    sample.dim[0] = 1;
    const bool values = data->goal == OCT_GOAL_VALUES || data->goal == OCT_GOAL_NONE;
    if (!values || sample.ndim <= 2 || oct_shape_numel(&sample) != data->classes) return OCT_OK;
    OCT_TRY(oct_flatten_create(&flatten));
    OCT_TRY(oct_network_add(model, "flatten_values", &flatten, &built->last, 1, &built->last));
    oct_network_set_output(model, built->last);
    built->output = OCT_SHAPE(built->output.dim[0], data->classes);
    return OCT_OK;
}

/* The outputs of a sample must be what the goals of the data are compared with. */
static oct_status check_output(const oct_recipe *recipe, const oct_dataset *data,
                               const oct_onnx_built *built)
{
    const oct_shape *y = &built->output;
    oct_shape sample = *y;
    char text[96];
    sample.dim[0] = 1;
    const int64_t each = y->dim[y->ndim - 1], rows = oct_shape_numel(&sample) / each;
    if (data->goal == OCT_GOAL_INPUT && rows * each == data->rows * data->classes) return OCT_OK;
    char remedy[64] = "train it by a program of your own (quant/train/train_step.h)";
    if (rows == 1) snprintf(remedy, sizeof remedy, "write data.goal: class");
    if (rows == data->h * data->w) snprintf(remedy, sizeof remedy, "write data.goal: map");
    OCT_CHECK(rows == data->rows, OCT_USAGE,
              "model.onnx: %s gives %lld row%s of outputs for a sample, %s, but the data's goals "
              "have %lld; %s, or name another output by model.output",
              recipe->model_onnx, (long long)rows, rows == 1 ? "" : "s",
              oct_shape_text(&sample, text), (long long)data->rows, remedy);
    OCT_CHECK(each == data->classes, OCT_USAGE,
              "model.onnx: %s has %lld outputs, but the data %lld %s; write model.new_head: true, "
              "which learns a new last layer, or export it with %lld outputs%s",
              recipe->model_onnx, (long long)each, (long long)data->classes,
              data->goal == OCT_GOAL_VALUES || data->goal == OCT_GOAL_NONE ? "values" : "classes",
              (long long)data->classes,
              each > data->classes && data->goal == OCT_GOAL_CLASS
                  ? ", or keep them all: data.classes says how many there are"
                  : "");
    return OCT_OK;
}

static oct_status build(oct_module **model, const oct_recipe *recipe, const oct_dataset *data,
                        const oct_onnx_source *source)
{
    oct_onnx_graph graph = {0};
    oct_onnx_built built;
    const bool classes = strcmp(recipe->loss_kind, "cross_entropy") == 0 ||
                         strcmp(recipe->loss_kind, "distillation") == 0;
    const oct_onnx_build_options options = {
        .h = data->h,
        .w = data->w,
        .c = data->c,
        .output = recipe->model_output,
        .without_softmax = classes,
        .without_sigmoid = strcmp(recipe->loss_kind, "bce") == 0,
    };
    oct_status status = OCT_OK;
    OCT_TRY_OUT(oct_onnx_read_bytes(&graph, source));
    OCT_TRY_OUT(oct_onnx_fold(&graph, data->h, data->w, data->c));
    OCT_TRY_OUT(oct_onnx_build(model, &graph, &options, &built));
    if (recipe->model_new_head && data->goal != OCT_GOAL_INPUT) {
        status = oct_onnx_new_head(*model, &built, data->classes, (uint64_t)recipe->seed);
        if (status == OCT_PREPARE) (void)oct_fail_prefix("model.new_head: %s", recipe->model_onnx);
        if (status != OCT_OK) goto out;
    }
    OCT_TRY_OUT(flatten_values(*model, data, &built));
    OCT_TRY_OUT(check_output(recipe, data, &built));
out:
    oct_onnx_free(&graph);
    return oct_module_made(model, status);
}

oct_status oct_onnx_model_build(oct_module **model, const oct_recipe *recipe,
                                const oct_dataset *data)
{
    void *bytes = NULL;
    char hex[65];
    *model = NULL;
    OCT_CHECK(recipe->model_onnx[0], OCT_DATA,
              "model.onnx: the network is that of an ONNX file with the SHA-256 %s; put the file "
              "beside the checkpoint as %s",
              recipe->model_onnx_sha256, copy_name);
    oct_onnx_source source = {recipe->onnx, recipe->onnx_size, recipe->model_onnx};
    if (!source.bytes) {
        oct_status status = oct_onnx_load(recipe->model_onnx, &bytes, &source.size);
        if (status == OCT_DATA) return oct_fail_prefix("model.onnx");
        if (status == OCT_OK) status = check_digest(recipe, bytes, source.size, hex);
        if (status != OCT_OK) {
            oct_free(&bytes);
            return status;
        }
        source.bytes = bytes;
    }
    const oct_status status = build(model, recipe, data, &source);
    oct_free(&bytes);
    return status;
}
