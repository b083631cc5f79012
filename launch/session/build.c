/* A recipe becomes a model here: built, prepared, and in the form that a phase has. */
#include "launch/session/build.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/nn/modules.h"
#include "core/nn/network.h"
#include "launch/model/model.h"
#include "launch/session/onnx_model.h"
#include "quant/convert/convert.h"

#include <string.h>

/* Finds out what size the transforms of a split give its samples. */
static oct_status fit_samples(const oct_recipe *recipe, oct_split split, oct_dataset *data)
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
    oct_status status = fit_samples(recipe, split, data);
    if (group) status = group->agree(group, status);
    if (status != OCT_OK) oct_dataset_close(data);
    return status;
}

oct_status oct_build_model(oct_module **model, const oct_recipe *recipe, const oct_dataset *data)
{
    *model = NULL;
    if (!recipe->model_name[0]) return oct_onnx_model_build(model, recipe, data);
    const oct_model_spec *spec = oct_model_find(recipe->model_name);
    OCT_CHECK(spec, OCT_USAGE, "model.name: there is no model '%s'; see `octet help models`",
              recipe->model_name);
    OCT_CHECK(
        spec->num_inputs <= 1, OCT_USAGE,
        "model.name: %s takes %d inputs, and the data set %s has one, an image; train it by a "
        "program of your own (quant/train/train_step.h)",
        spec->name, spec->num_inputs,
        oct_registry_name(&oct_dataset_id_table, recipe->data_format));
    OCT_TRY(spec->build(model, data->h, data->w, data->c, data->classes));
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

static void free_setters(recipe_setters *s)
{
    oct_free(&s->words);
    oct_free(&s->templates);
    oct_free(&s->list);
}

static void add_setter(recipe_setters *s, const char *name, oct_qconfig_setter setter)
{
    setter.name = name;
    s->list[s->count++] = setter;
}

static oct_status add_words(recipe_setters *s, const oct_texts *rows)
{
    char flaw[512];
    for (int i = 0; i < rows->count; i++) {
        OCT_CHECK(oct_setter_parse(&s->words[i], rows->value[i], flaw), OCT_USAGE,
                  "quant.setters: item %d: %s", i + 1, flaw);
        add_setter(s, "quant.setters",
                   oct_setter_of_words(&s->words[i], &s->standard, &s->templates[i]));
    }
    return OCT_OK;
}

/* The float output comes first since it changes nothing else. */
static oct_status make_setters(recipe_setters *s, const oct_recipe *recipe)
{
    const oct_texts *floats = &recipe->quant_float_layers, *wide = &recipe->quant_int16_layers;
    const oct_texts *rows = &recipe->quant_setters;
    const size_t count = (size_t)(rows->count + floats->count + wide->count + 2);
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
    OCT_TRY(add_words(s, rows));
    for (int i = 0; i < floats->count; i++)
        add_setter(s, "quant.float_layers", oct_setter_by_name(floats->value[i], NULL));
    for (int i = 0; i < wide->count; i++)
        add_setter(s, oct_recipe_wide_key(recipe, i), oct_setter_by_name(wide->value[i], &s->wide));
    add_setter(s, "quant.*", oct_setter_default(&s->standard));
    return OCT_OK;
}

/* In eager the model's author names the fusions; the other methods find them. */
static oct_status fuse_by_hand(oct_module **model, const oct_recipe *recipe)
{
    const oct_model_spec *spec = oct_model_find(recipe->model_name);
    OCT_CHECK(spec && spec->fuse, OCT_USAGE,
              "quant.method: %s does not name its fusions, which eager needs; use jit_strip",
              oct_recipe_model(recipe));
    return spec->fuse(model);
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
    if (options.method == OCT_METHOD_EAGER) OCT_TRY(fuse_by_hand(model, recipe));
    oct_status status = make_setters(&setters, recipe);
    options.setters = setters.list;
    options.num_setters = setters.count;
    if (status == OCT_OK)
        status = oct_prepare(model, OCT_EXAMPLE(OCT_SHAPE(1, data->h, data->w, data->c)), &options,
                             report);
    free_setters(&setters);
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

oct_status oct_checkpoint_phase(const oct_checkpoint *checkpoint, oct_phase *phase)
{
    OCT_CHECK(oct_phase_of_name(checkpoint->info.phase, phase), OCT_DATA,
              "%s: there is no phase '%s'; the checkpoint is of another version of Octet",
              checkpoint->path, checkpoint->info.phase);
    return OCT_OK;
}

bool oct_folds_by(const oct_recipe *recipe, oct_phase phase)
{
    return phase >= OCT_PHASE_QAT_BN_FROZEN && recipe->qat_fold_batch_norm;
}

oct_status oct_bring_to_phase(oct_module **model, const oct_checkpoint *checkpoint,
                              const oct_recipe *recipe, const oct_dataset *data, oct_phase *at)
{
    oct_quantizers quantizers = {0};
    oct_status status = OCT_OK;
    OCT_TRY(oct_checkpoint_phase(checkpoint, at));
    const oct_phase phase = *at;
    if (phase == OCT_PHASE_FLOAT) return OCT_OK;
    OCT_TRY(oct_prepare_model(model, recipe, data, NULL));
    OCT_TRY_OUT(oct_quantizers_collect(&quantizers, *model));
    if (oct_folds_by(recipe, phase))
        OCT_TRY_OUT(oct_checkpoint_fold(checkpoint, *model, &oct_collective_one));
    oct_set_phase(*model, &quantizers, phase);
out:
    oct_quantizers_free(&quantizers);
    return status;
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
