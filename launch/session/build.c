#include "launch/session/build.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/nn/modules.h"
#include "core/nn/network.h"
#include "io/file/file.h"
#include "io/onnx/build.h"
#include "launch/model/model.h"
#include "launch/runfolder/run_folder.h"

#include <stdio.h>
#include <string.h>

/* Finds out what size the transforms of a split give its samples. */
static oct_status fit_sample_size(const oct_recipe *recipe, oct_split split, oct_dataset *data)
{
    oct_augment augment;
    oct_image shape = {
        .dtype = data->dtype, .h = data->read_h, .w = data->read_w, .c = data->read_c};
    const bool train = split == OCT_TRAIN;
    const bool mixes = recipe->data_mixup > 0 || recipe->data_cutmix > 0;
    OCT_CHECK(!train || !mixes || data->goal == OCT_GOAL_CLASS || data->goal == OCT_GOAL_VALUES,
              OCT_USAGE, "%s: mixes classes or values, but data.goal is %s; leave it out",
              recipe->data_mixup > 0 ? "data.mixup" : "data.cutmix",
              oct_registry_name(&oct_goal_kind_table, data->goal));
    oct_recipe_augment(recipe, split, &augment);
    OCT_TRY(oct_augment_fit(&augment, train ? "data.train" : "data.test", &shape));
    oct_dataset_resize(data, shape.h, shape.w, shape.c);
    return OCT_OK;
}

oct_status oct_load_data(const oct_recipe *recipe, oct_split split, const oct_collective *group,
                         oct_dataset *data)
{
    const oct_dataset_source source = {
        .format = oct_registry_at(&oct_dataset_id_table, recipe->data_format),
        .folder = recipe->data_path,
        .classes = recipe->data_classes,
        .first_label = recipe->data_first_label,
        .channels = recipe->data_channels,
        .images = recipe->data_images,
        .labels = recipe->data_labels,
        .limit = split == OCT_TRAIN ? recipe->data_train_limit : recipe->data_test_limit,
        .goal = recipe->data_goal,
        .seed = (uint64_t)recipe->seed,
        .split = recipe->data_split,
        .group = group,
    };
    OCT_TRY(oct_dataset_open(data, &source, split));
    oct_status status = fit_sample_size(recipe, split, data);
    if (group) status = group->agree(group, status);
    if (status != OCT_OK) oct_dataset_close(data);
    return status;
}

/* model.onnx. The bytes of the file, with those of its external data, stay with the recipe, since a run builds its model
 * several times. */

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

/* If the ONNX file is missing and the run's own recipe names the same path, loads the copy in the run's folder. Otherwise
 * returns OCT_OK with recipe->onnx NULL; the caller then reports the missing file. */
static oct_status load_run_copy(oct_recipe *recipe)
{
    OCT_OWNED(oct_recipe_free) oct_recipe of_run = {0};
    OCT_OWNED(oct_free) char *path = NULL, *copy = NULL;
    if (oct_file_exists(recipe->model_onnx)) return OCT_OK;
    OCT_TRY(oct_run_path(recipe->output, "recipe.yaml", &path));
    OCT_TRY(oct_run_path(recipe->output, OCT_ONNX_COPY, &copy));
    if (!oct_file_exists(path) || !oct_file_exists(copy)) return OCT_OK;
    const oct_status status = oct_recipe_read(&of_run, path, NULL, NULL, 0);
    if (status == OCT_RESOURCE) return status;
    if (status != OCT_OK) oct_fail_clear(); /* opening the folder reports what is wrong there */
    if (status != OCT_OK || strcmp(of_run.model_onnx, recipe->model_onnx) != 0) return OCT_OK;
    oct_log(OCT_LOG_WARN, "model.onnx: %s is gone; using the run's copy, %s", recipe->model_onnx,
            copy);
    return oct_onnx_load(copy, &recipe->onnx, &recipe->onnx_size);
}

oct_status oct_onnx_model_open(oct_recipe *recipe)
{
    if (!recipe->model_onnx[0] || recipe->onnx) return OCT_OK;
    OCT_TRY(load_run_copy(recipe));
    oct_status status = OCT_OK;
    if (!recipe->onnx)
        status = oct_onnx_load(recipe->model_onnx, &recipe->onnx, &recipe->onnx_size);
    if (status == OCT_DATA) return oct_fail_prefix("model.onnx");
    return status == OCT_OK ? set_digest(recipe) : status;
}

oct_status oct_onnx_model_share(oct_session *session, oct_recipe *recipe)
{
    const bool first = session->group->rank == 0;
    if (!recipe->model_onnx[0]) return OCT_OK;
    OCT_TRY(oct_session_agree(session, first ? oct_onnx_model_open(recipe) : OCT_OK));
    OCT_TRY(oct_session_share(session, &recipe->onnx, &recipe->onnx_size));
    return oct_session_agree(session, first ? OCT_OK : set_digest(recipe));
}

/* Adds a flatten to a network whose outputs are the values of the data in another shape, such as the (N, K, P) of a
 * detector at all its positions; the values are in that order, of images channels last. */
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
static oct_status check_network_output(const oct_recipe *recipe, const oct_dataset *data,
                                       const oct_onnx_built *built)
{
    const oct_shape *y = &built->output;
    oct_shape sample = *y;
    sample.dim[0] = 1;
    const int64_t each = y->dim[y->ndim - 1], rows = oct_shape_numel(&sample) / each;
    if (data->goal == OCT_GOAL_INPUT && rows * each == data->rows * data->classes) return OCT_OK;
    char remedy[64] = "train it by a program of your own (octet/train.h)";
    if (rows == 1) snprintf(remedy, sizeof remedy, "write data.goal: class");
    if (rows == data->h * data->w) snprintf(remedy, sizeof remedy, "write data.goal: map");
    OCT_CHECK(rows == data->rows, OCT_USAGE,
              "model.onnx: %s gives %lld row%s of outputs for a sample, %s, but the data's goals "
              "have %lld; %s, or name another output by model.output",
              recipe->model_onnx, (long long)rows, rows == 1 ? "" : "s",
              oct_text_shape(&sample).text, (long long)data->rows, remedy);
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

static oct_status build_network(oct_module **model, const oct_recipe *recipe,
                                const oct_dataset *data, const oct_onnx_source *source)
{
    oct_onnx_built built;
    const bool classes = strcmp(recipe->loss_kind, "cross_entropy") == 0 ||
                         strcmp(recipe->loss_kind, "distillation") == 0;
    oct_onnx_build_options options = {
        .h = data->h,
        .w = data->w,
        .c = data->c,
        .output = recipe->model_output,
        .without_softmax = classes,
        .without_sigmoid = strcmp(recipe->loss_kind, "bce") == 0,
    };
    oct_status status = OCT_OK;
    OCT_TRY_OUT(oct_onnx_network(model, source, &options, &built));
    if (recipe->model_new_head && data->goal != OCT_GOAL_INPUT) {
        status = oct_onnx_new_head(*model, &built, data->classes, (uint64_t)recipe->seed);
        if (status == OCT_PREPARE) (void)oct_fail_prefix("model.new_head: %s", recipe->model_onnx);
        if (status != OCT_OK) goto out;
    }
    OCT_TRY_OUT(flatten_values(*model, data, &built));
    OCT_TRY_OUT(check_network_output(recipe, data, &built));
out:
    return oct_module_made(model, status);
}

/* Builds the network for a data set, with the file's weights. */
static oct_status build_onnx_model(oct_module **model, const oct_recipe *recipe,
                                   const oct_dataset *data)
{
    OCT_OWNED(oct_free) void *bytes = NULL;
    char hex[65];
    *model = NULL;
    OCT_CHECK(recipe->model_onnx[0], OCT_DATA,
              "model.onnx: the network is that of an ONNX file with the SHA-256 %s; put the file "
              "beside the checkpoint as %s",
              recipe->model_onnx_sha256, OCT_ONNX_COPY);
    oct_onnx_source source = {recipe->onnx, recipe->onnx_size, recipe->model_onnx};
    if (!source.bytes) {
        const oct_status status = oct_onnx_load(recipe->model_onnx, &bytes, &source.size);
        if (status == OCT_DATA) return oct_fail_prefix("model.onnx");
        OCT_TRY(status);
        OCT_TRY(check_digest(recipe, bytes, source.size, hex));
        source.bytes = bytes;
    }
    return build_network(model, recipe, data, &source);
}

/* The model. */

oct_status oct_build_model(oct_module **model, const oct_recipe *recipe, const oct_dataset *data)
{
    *model = NULL;
    if (!recipe->model_name[0]) return build_onnx_model(model, recipe, data);
    const oct_model_spec *spec = oct_model_find(recipe->model_name);
    OCT_CHECK(spec, OCT_USAGE, "model.name: there is no model '%s'; see `octet help models`",
              recipe->model_name);
    OCT_CHECK(
        spec->num_inputs <= 1, OCT_USAGE,
        "model.name: %s takes %d inputs, and the data set %s has one, an image; train it by a "
        "program of your own (octet/train.h)",
        spec->name, spec->num_inputs,
        oct_registry_name(&oct_dataset_id_table, recipe->data_format));
    oct_fail_clear();
    oct_status status = spec->build(model, data->h, data->w, data->c, data->classes);
    if (status == OCT_OK ? !*model : oct_error_count() == 0)
        status = oct_fail(OCT_USAGE, "model.name: the build of %s %s", spec->name,
                          *model ? "fails without a sentence (oct_fail)" : "gives no network");
    OCT_TRY(oct_module_made(model, status));
    return oct_module_made(model, oct_init_parameters(*model, (uint64_t)recipe->seed));
}

void oct_warn_of_model(const oct_recipe *recipe, oct_module *model)
{
    for (const char *note = oct_network_notes(model), *end; (end = strchr(note, '\n'));
         note = end + 1)
        oct_log(OCT_LOG_WARN, "model.onnx: %s: %.*s", oct_recipe_model(recipe), (int)(end - note),
                note);
    if (recipe->float_epochs > 0 || recipe->init[0]) return;
    const int64_t norms = oct_batch_norms_unseen(model);
    if (norms > 0)
        oct_log(OCT_LOG_WARN,
                "float.epochs: is 0, but %s has seen no data yet (its %lld batch norm%s mean 0 and "
                "variance 1), so calibration watches other ranges than training will have; train "
                "it in float first",
                oct_recipe_model(recipe), (long long)norms, norms == 1 ? " has" : "s have");
}

/* This holds the setters of a recipe, from high to low priority, with the templates that they name. */
typedef struct recipe_setters {
    oct_qconfig standard, wide;
    oct_setter_words *words; /* of quant.setters, and their templates */
    oct_qconfig *templates;
    oct_qconfig_setter *list;
    size_t count;
} recipe_setters;

static void add_setter(recipe_setters *s, const char *name, oct_qconfig_setter setter)
{
    setter.name = name;
    s->list[s->count++] = setter;
}

/* Lists what gives layers their quantizers, by priority: the keys of single layers, then the default of quant.*. The
 * float output comes first since it changes nothing else. */
static oct_status make_setters(recipe_setters *s, const oct_recipe *recipe)
{
    const oct_texts *floats = &recipe->quant_float_layers, *wide = &recipe->quant_int16_layers;
    const oct_texts *rows = &recipe->quant_setters;
    const size_t count = (size_t)(rows->count + floats->count + wide->count + 2);
    char flaw[512];
    OCT_TRY(oct_alloc(&s->list, count, sizeof *s->list));
    OCT_TRY(oct_alloc(&s->words, (size_t)rows->count, sizeof *s->words));
    OCT_TRY(oct_alloc(&s->templates, (size_t)rows->count, sizeof *s->templates));
    s->standard = oct_qconfig_default();
    s->standard.observer = oct_observer_find(recipe->quant_observer);
    s->standard.fake_quant = oct_fake_quant_kind_find(recipe->quant_fake_quant);
    s->standard.weight_fake_quant = oct_fake_quant_kind_find(recipe->quant_weight_fake_quant);
    s->standard.averaging = (float)recipe->quant_averaging;
    s->standard.percentile = recipe->quant_percentile;
    s->standard.bits = (int)recipe->quant_bits;
    s->standard.current_scales = recipe->quant_scales == OCT_SCALES_CURRENT;
    s->wide = s->standard;
    s->wide.bits = 16;
    s->wide.fixed_scale = recipe->quant_int16_fixed;
    if (recipe->quant_float_output) add_setter(s, "quant.float_output", oct_setter_float_output());
    for (int i = 0; i < rows->count; i++) {
        OCT_CHECK(oct_setter_parse(&s->words[i], rows->value[i], flaw), OCT_USAGE,
                  "quant.setters: item %d: %s", i + 1, flaw);
        add_setter(s, "quant.setters",
                   oct_setter_of_words(&s->words[i], &s->standard, &s->templates[i]));
    }
    for (int i = 0; i < floats->count; i++)
        add_setter(s, "quant.float_layers", oct_setter_by_name(floats->value[i], NULL));
    for (int i = 0; i < wide->count; i++)
        add_setter(s, oct_recipe_wide_key(recipe, i), oct_setter_by_name(wide->value[i], &s->wide));
    add_setter(s, "quant.*", oct_setter_default(&s->standard));
    return OCT_OK;
}

oct_status oct_prepare_model(oct_module **model, const oct_recipe *recipe, const oct_dataset *data,
                             oct_text *report)
{
    recipe_setters setters = {0};
    oct_prepare_options options = {
        .method = recipe->quant_method,
        .target = oct_target_at(recipe->quant_target),
        .fold_batch_norm = recipe->quant_batch_norm == OCT_BATCH_NORM_FOLDED,
        .shared_range = recipe->quant_shared_range,
    };
    if (options.method == OCT_METHOD_EAGER) {
        /* The model's author names the fusions; the other methods find them. */
        const oct_model_spec *spec = oct_model_find(recipe->model_name);
        OCT_CHECK(spec && spec->fuse, OCT_USAGE,
                  "quant.method: %s does not name its fusions, which eager needs; use jit_strip",
                  oct_recipe_model(recipe));
        OCT_TRY(spec->fuse(model));
    }
    oct_status status = make_setters(&setters, recipe);
    options.setters = setters.list;
    options.num_setters = setters.count;
    const oct_example example = oct_dataset_inputs(data, NULL, 1, 0, 1);
    if (status == OCT_OK) status = oct_prepare(model, &example, &options, report);
    for (int i = 0; i < recipe->numerics_int16.count && status == OCT_OK; i++) {
        const char *path = recipe->numerics_int16.value[i];
        const oct_module *layer = oct_module_find(*model, path);
        if (!layer || layer->type != &oct_qat_conv_type)
            status = oct_fail(OCT_PREPARE,
                              "numerics_int16: '%s' is no quantized layer with weights; `octet "
                              "inspect --tree` lists the paths",
                              path);
    }
    OCT_FREE_ALL(&setters.words, &setters.templates, &setters.list);
    return status;
}

/* Calibration observes the float model as it is: its batch norm neither uses nor moves by the batch's
 * statistics. */
void oct_set_phase(oct_module *model, const oct_quantizers *quantizers, oct_phase phase)
{
    oct_quant_state state = OCT_QUANT_QAT;
    if (phase == OCT_PHASE_CALIBRATE) state = OCT_QUANT_CALIBRATE;
    if (phase == OCT_PHASE_QAT_SCALES_FROZEN) state = OCT_QUANT_FROZEN;
    oct_freeze_batch_norm(model, phase != OCT_PHASE_QAT);
    oct_quantizers_set_state(quantizers, state);
}

bool oct_folds_by(const oct_recipe *recipe, oct_phase phase)
{
    return phase >= OCT_PHASE_QAT_BN_FROZEN && recipe->qat_fold_batch_norm;
}

oct_status oct_bring_to_phase(oct_module **model, const oct_checkpoint *checkpoint,
                              const oct_recipe *recipe, const oct_dataset *data, oct_phase *at)
{
    OCT_OWNED(oct_quantizers_free) oct_quantizers quantizers = {0};
    OCT_TRY(oct_checkpoint_phase(checkpoint, at));
    const oct_phase phase = *at;
    if (phase == OCT_PHASE_FLOAT) return OCT_OK;
    OCT_TRY(oct_prepare_model(model, recipe, data, NULL));
    OCT_TRY(oct_quantizers_collect(&quantizers, *model));
    if (oct_folds_by(recipe, phase))
        OCT_TRY(oct_checkpoint_fold(checkpoint, *model, &oct_collective_one));
    oct_set_phase(*model, &quantizers, phase);
    return OCT_OK;
}

oct_status oct_build_from_checkpoint(oct_module **model, const oct_checkpoint *checkpoint,
                                     const oct_recipe *recipe, const oct_dataset *data,
                                     bool *prepared)
{
    oct_phase phase = OCT_PHASE_FLOAT;
    *model = NULL;
    OCT_TRY(oct_build_model(model, recipe, data));
    oct_status status = oct_bring_to_phase(model, checkpoint, recipe, data, &phase);
    *prepared = phase != OCT_PHASE_FLOAT;
    if (status == OCT_OK) status = oct_checkpoint_load(checkpoint, *model, NULL);
    return oct_module_made(model, status);
}
