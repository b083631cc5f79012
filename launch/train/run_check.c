/* Whether recipe, data and ranks fit is checked before a run, as far as it can be known then. */
#include "launch/train/run_check.h"

#include "core/base/int_math.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/text.h"
#include "core/kernel/blas.h"
#include "core/op/norm_groups.h"
#include "io/checkpoint/manifest.h"
#include "io/export/format.h"
#include "io/hdf5/hdf5.h"
#include "launch/base/machine.h"
#include "launch/model/model.h"
#include "launch/runfolder/run_folder.h"
#include "launch/deploy/device.h"
#include "launch/evaluate/evaluate.h"
#include "launch/session/build.h"
#include "launch/session/plan.h"
#include "launch/session/task.h"
#include "quant/convert/convert.h"
#include "quant/prepare/prepare.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void check_fake_quant_kind(const char *key, const char *name, bool of_weights)
{
    const oct_fake_quant_kind *kind = oct_fake_quant_kind_find(name);
    OCT_PROBLEM_IF(kind && !(of_weights ? kind->weight_scale != NULL : kind->scale != NULL),
                   "%s: %s is for %s only; use another one, such as affine", key, name,
                   of_weights ? "activations" : "weights");
}

void oct_check_metrics(const oct_texts *metrics)
{
    for (int i = 0; i < metrics->count; i++)
        if (!oct_metric_find(metrics->value[i]))
            oct_registry_report_missing(&oct_metric_table, "metrics", metrics->value[i],
                                        "use top1");
    OCT_PROBLEM_IF(metrics->count > OCT_METRICS_MAX, "metrics: %d are too many; name at most %d",
                   metrics->count, OCT_METRICS_MAX);
}

static bool recipe_demands(const oct_recipe *recipe, const char *name)
{
    bool found = false;
    for (int i = 0; i < recipe->export_formats.count; i++)
        found = found || strcmp(recipe->export_formats.value[i], name) == 0;
    return found;
}

/* Plug-ins add to tables of names, so a recipe's names are judged here and not while it is read. */
static void add_unknown_names(const oct_recipe *recipe)
{
    if (recipe->model_name[0] && !oct_model_find(recipe->model_name))
        oct_registry_report_missing(&oct_model_table, "model.name", recipe->model_name,
                                    "see `octet help models`");
    oct_recipe_check_names(recipe);
    oct_check_metrics(&recipe->metrics);
    int known = 0; /* of export.formats, which names formats of int8 models */
    for (size_t i = 0; i < oct_registry_count(&oct_export_format_table); i++) {
        const oct_export_format *format = oct_registry_at(&oct_export_format_table, i);
        known += format->write_model && recipe_demands(recipe, format->name);
    }
    OCT_PROBLEM_IF(known < recipe->export_formats.count,
                   "export.formats: names a format that there is not of int8 models, "
                   "or one twice; they are onnx, tflite, c and flat");
    check_fake_quant_kind("quant.fake_quant", recipe->quant_fake_quant, false);
    check_fake_quant_kind("quant.weight_fake_quant", recipe->quant_weight_fake_quant, true);
}

oct_status oct_check_names(const oct_recipe *recipe)
{
    oct_fail_clear();
    add_unknown_names(recipe);
    return oct_error_count() > 0 ? OCT_USAGE : OCT_OK;
}

static void check_model(const oct_recipe *recipe, const oct_dataset *data)
{
    const oct_model_spec *spec = oct_model_find(recipe->model_name);
    OCT_PROBLEM_IF(
        spec && (data->h < spec->min_size || data->w < spec->min_size),
        "model.name: %s needs images of at least %lld x %lld pixels, those of data.path are "
        "%lld x %lld; use another model",
        spec->name, (long long)spec->min_size, (long long)spec->min_size, (long long)data->h,
        (long long)data->w);
    OCT_PROBLEM_IF(spec && spec->per_pixel && data->goal != OCT_GOAL_MAP,
                   "model.name: %s gives classes for each pixel, so the data must too; write "
                   "data.goal: map, or use another model",
                   spec->name);
    const bool fuses = spec ? spec->fuse != NULL : recipe->model_name[0] != '\0';
    OCT_PROBLEM_IF(!fuses && recipe->quant_method == OCT_METHOD_EAGER,
                   "quant.method: %s does not name its fusions, which eager needs; use jit_strip",
                   oct_recipe_model(recipe));
}

/* The key that asks for 16-bit activations, or NULL. */
static const char *find_wide_key(const oct_recipe *recipe)
{
    oct_setter_words words;
    char flaw[512];
    if (recipe->quant_bits == 16) return "quant.bits";
    if (recipe->quant_int16_layers.count > 0) return oct_recipe_wide_key(recipe, 0);
    for (int i = 0; i < recipe->quant_setters.count; i++)
        if (oct_setter_parse(&words, recipe->quant_setters.value[i], flaw) &&
            words.qconfig->bits == 16)
            return "quant.setters";
    return NULL;
}

static void check_normalisation(const char *key, const oct_reals *list, const oct_dataset *data)
{
    for (int i = 0; i < list->count && data->dtype != OCT_F32; i++)
        /* Larger ones are meant for values up to 255. */
        OCT_PROBLEM_IF(fabs(list->value[i]) > 10,
                       "%s: %g, but bytes are divided by %d first; divide it, too", key,
                       list->value[i], data->dtype == OCT_U8 ? 255 : 128);
    OCT_PROBLEM_IF(
        list->count != data->c && list->count != 1,
        "%s: %d values, but the images have %lld channels; give one for each channel, or "
        "one for all",
        key, list->count, (long long)data->c);
}

static void check_data(const oct_recipe *recipe, const oct_dataset *train, const oct_dataset *test)
{
    check_normalisation("data.mean", &recipe->data_mean, train);
    check_normalisation("data.std", &recipe->data_std, train);
    /* A data set may count further than an int8 model. */
    OCT_PROBLEM_IF(train->classes > OCT_CLASSES_MAX,
                   "data.classes: %lld classes, but an int8 model has at most %d outputs; merge "
                   "classes that are similar",
                   (long long)train->classes, OCT_CLASSES_MAX);
    OCT_PROBLEM_IF(
        train->h != test->h || train->w != test->w || train->c != test->c,
        "data.path: training images are %lld x %lld x %lld, test images %lld x %lld x %lld; "
        "both must have the same size; data.size gives it to them",
        (long long)train->h, (long long)train->w, (long long)train->c, (long long)test->h,
        (long long)test->w, (long long)test->c);
    OCT_PROBLEM_IF(train->dtype != test->dtype,
                   "data.path: training samples are %s, test samples %s, and only bytes are "
                   "divided by 255; save both as one type",
                   oct_dtype_name(train->dtype), oct_dtype_name(test->dtype));
    OCT_PROBLEM_IF(
        recipe->data_crop_padding >= train->h || recipe->data_crop_padding >= train->w,
        "data.crop_padding: %lld pixels around images of %lld x %lld; use less than the image",
        (long long)recipe->data_crop_padding, (long long)train->h, (long long)train->w);
    char batches[32] = "a batch";
    if (recipe->batch_accumulate > 1)
        snprintf(batches, sizeof batches, "%lld batches", (long long)recipe->batch_accumulate);
    OCT_PROBLEM_IF(oct_plan_of(recipe, train->count).steps_per_epoch == 0,
                   "data.drop_last: %lld training images do not fill %s of %lld; use a smaller "
                   "batch.size or data.drop_last=false",
                   (long long)train->count, batches, (long long)recipe->batch_size);
}

void oct_check_values(const oct_recipe *recipe, const oct_dataset *data, const char *part)
{
    const oct_loss_kind *loss = oct_loss_find(recipe->loss_kind);
    const int64_t values = data->values ? data->count * data->rows * data->classes : 0;
    int64_t i = 0;
    if (!loss || loss->outputs == OCT_OUTPUTS_PLAIN) return;
    while (i < values && data->values[i] >= 0 && data->values[i] <= 1)
        i++;
    OCT_PROBLEM_IF(i < values,
                   "loss.kind: %s takes values from 0 to 1, but value %lld of %s sample %lld is "
                   "%g; divide the values, or use another loss, such as mse",
                   loss->name, (long long)(i % data->classes), part, (long long)(i / data->classes),
                   (double)data->values[i]);
}

oct_status oct_check_ranks(const oct_recipe *recipe, int64_t samples, int ranks)
{
    int64_t batch = oct_min_i64(samples, recipe->batch_size);
    int64_t leaves = (batch + recipe->batch_leaf - 1) / recipe->batch_leaf;
    if (ranks <= leaves) return OCT_OK;
    return oct_fail_add(
        OCT_USAGE,
        "more ranks (%d) than leaves (%lld): batch.size %lld / batch.leaf %lld; use at most %lld "
        "rank%s, a smaller batch.leaf or a larger batch.size",
        ranks, (long long)leaves, (long long)batch, (long long)recipe->batch_leaf,
        (long long)leaves, leaves == 1 ? "" : "s");
}

oct_status oct_check_disk(const oct_recipe *recipe, int64_t bytes)
{
    const int64_t room = oct_machine_disk(recipe->output);
    if (room < 0 || bytes <= room) return OCT_OK;
    return oct_fail_add(OCT_RESOURCE,
                        "output: the run's files take about %s, and %s has room for %s; choose "
                        "another output, or a smaller checkpoint.keep (now %lld)",
                        oct_text_size(bytes).text, recipe->output, oct_text_size(room).text,
                        (long long)recipe->checkpoint_keep);
}

oct_status oct_check_room(const oct_recipe *recipe, int64_t bytes)
{
    OCT_OWNED(oct_free) char *folder = NULL;
    OCT_OWNED(oct_manifest_free) oct_manifest there = {0};
    const bool given = bytes > 0;
    oct_status status = oct_run_checkpoints(recipe->output, &folder);
    oct_log_again(true); /* the resume warns of a damaged one */
    if (status == OCT_OK) status = oct_manifest_read(&there, folder, false);
    oct_log_again(false);
    if (status == OCT_OK && !given && there.count > 0) bytes = (int64_t)there.entries[0].bytes;
    if (status == OCT_OK) status = oct_check_disk(recipe, bytes);
    const int64_t more = recipe->checkpoint_keep + 1 - (int64_t)there.count;
    if (status == OCT_OK && given && more > 1 && oct_check_disk(recipe, more * bytes) != OCT_OK) {
        oct_log(OCT_LOG_WARN, "%s", oct_error_message(0));
        oct_fail_clear();
    }
    return status;
}

/* Makes a small image and reads it again, so that a run ends before its work where no file can be written. */
static oct_status check_hdf5(void)
{
    OCT_OWNED(oct_h5_close) oct_h5 *file = NULL;
    OCT_OWNED(oct_free) uint8_t *image = NULL;
    size_t size;
    int64_t value;
    OCT_TRY(oct_h5_create(&file, 0));
    OCT_TRY(oct_h5_write_i64(file, "group/value", INT64_MAX));
    OCT_TRY(oct_h5_finish(&file, false, &image, &size));
    OCT_TRY(oct_h5_open(&file, -1, image, size, "the HDF5 image of a trial"));
    return oct_h5_read_i64(file, "group/value", INT64_MAX, INT64_MAX, &value);
}

oct_status oct_run_check(const oct_recipe *recipe, const oct_dataset *train_data,
                         const oct_dataset *test_data, int ranks)
{
    oct_fail_clear();
    OCT_PROBLEM_IF(train_data->count == 0, "data.path: there are no training images");
    OCT_PROBLEM_IF(test_data->count == 0, "data.path: there are no test images");
    if (oct_error_count() > 0) return OCT_USAGE;
    add_unknown_names(recipe);
    OCT_TRY(oct_recipe_check_unused(recipe));
    OCT_PROBLEM_IF(recipe->quant_equalize && recipe->quant_method == OCT_METHOD_EAGER,
                   "quant.equalize: needs the network's graph, which the method eager "
                   "does not know; use jit_strip");
    check_model(recipe, train_data);
    check_data(recipe, train_data, test_data);
    oct_check_values(recipe, train_data, "training");
    oct_check_values(recipe, test_data, "test");
    (void)!oct_check_ranks(recipe, train_data->count, ranks);
    const oct_target *target = oct_target_at(recipe->quant_target);
    OCT_PROBLEM_IF(!target->wide_codes && find_wide_key(recipe),
                   "%s: target %s has no 16-bit activations; leave the key out, or write a "
                   "quant.target that has them, such as x86",
                   find_wide_key(recipe), target->name);
    oct_task_check(recipe, train_data);
    if (oct_error_count() > 0) return OCT_USAGE;
    OCT_TRY(check_hdf5());
    if (recipe->quant_rounding != OCT_ROUNDING_GPTQ || oct_blas_init() == OCT_OK) return OCT_OK;
    return oct_fail_prefix("quant.rounding: gptq");
}

static oct_status note_batch_norm(void *user, oct_module *module)
{
    if (module->type == &oct_batch_norm_type) *(bool *)user = true;
    return OCT_OK;
}

/* Whether some group of batch norm statistics in an epoch has one sample; where and remedy are for messages. */
static bool find_lone_sample(const oct_recipe *recipe, int64_t count, const char **where,
                             const char **remedy)
{
    const int64_t batch = oct_min_i64(count, recipe->batch_size);
    const int64_t rest = recipe->data_drop_last ? 0 : count % batch;
    const int64_t span = oct_recipe_norm_group(recipe);
    bool found = false;
    for (int last = 0; last < 2; last++) {
        const int64_t samples = last ? rest : batch;
        const oct_norm_groups groups = {.leaves =
                                            oct_leaves_split(samples, recipe->batch_leaf, 0, 1),
                                        .span = span > 0 ? span : INT64_MAX};
        if (found || samples == 0 || oct_norm_group_least(&groups) > 1) continue;
        found = true;
        *where = samples > 1 ? "a group of one sample (batch_norm.group)"
                 : last      ? "the last batch of an epoch, of one sample"
                             : "a batch of one sample";
        *remedy = last ? "write data.drop_last: true, or another batch.size"
                       : "choose another batch.size or batch_norm.group";
    }
    return found;
}

/* Refuses a batch norm that sees one value a channel where a group has one sample, as the traced batch has. */
static oct_status check_values_of_norms(const oct_trace *trace, const char *where,
                                        const char *remedy)
{
    for (size_t i = 0; i < trace->num_nodes; i++) {
        const oct_trace_node *node = &trace->nodes[i];
        if (!node->module || node->module->type != &oct_batch_norm_type) continue;
        const oct_batch_norm_module *norm = (const oct_batch_norm_module *)node->module;
        const oct_shape *shape = &trace->values[node->input[0]].shape;
        OCT_CHECK(
            norm->frozen || oct_shape_numel(shape) > norm->args.channels, OCT_USAGE,
            "%s: a batch norm needs 2 values a channel or more to train, and this one has one "
            "in %s; %s",
            node->path, where, remedy);
    }
    return OCT_OK;
}

oct_status oct_check_norms(const oct_recipe *recipe, const oct_dataset *data, oct_module *model)
{
    const oct_plan plan = oct_plan_of(recipe, data->count);
    const oct_target *target = oct_target_at(recipe->quant_target);
    const bool live = recipe->quant_batch_norm == OCT_BATCH_NORM_LIVE;
    const bool trains = plan.begin[OCT_PHASE_CALIBRATE] > 0 ||
                        (live && plan.begin[OCT_PHASE_QAT_BN_FROZEN] > plan.begin[OCT_PHASE_QAT]);
    const char *where, *remedy;
    OCT_OWNED(oct_trace_free) oct_trace trace = {0};
    bool any = false;
    OCT_TRY(oct_module_walk(model, note_batch_norm, &any));
    OCT_CHECK(!any || !live || !oct_requantizer_shifts(target->requantizer), OCT_USAGE,
              "quant.batch_norm: target %s only shifts, so a batch norm's factor must be in the "
              "weights; write quant.batch_norm: folded",
              target->name);
    if (!any || !trains || !find_lone_sample(recipe, data->count, &where, &remedy)) return OCT_OK;
    OCT_TRY(
        oct_trace_training(&trace, model, OCT_EXAMPLE(OCT_SHAPE(1, data->h, data->w, data->c))));
    return check_values_of_norms(&trace, where, remedy);
}

enum { REASON_BYTES = 512 };

/* Tries to export the program in a format. reason: why it cannot be, "" where it can. */
static oct_status try_format(const oct_export_format *format, const oct_program *program,
                             char reason[REASON_BYTES])
{
    oct_model *model = NULL;
    oct_exported made = {0};
    OCT_TRY(oct_alloc(&model, 1, sizeof *model));
    model->program = *program; /* borrowed */
    const oct_export job = {.model = model,
                            .mean = model->mean,
                            .std = model->std,
                            .tries = true,
                            .name = "model",
                            .version = ""};
    const oct_status status = format->write_model(&job, &made);
    oct_exported_free(&made);
    oct_free(&model);
    if (status == OCT_RESOURCE) return status;
    snprintf(reason, REASON_BYTES, "%s", status == OCT_OK ? "" : oct_error_message(0));
    oct_fail_clear();
    return OCT_OK;
}

/* Gives the names of formats that have a form for each step, with commas between them, then a line for each other one
 * with its reason. Forms that depend on scales alone are not foreseen. OCT_PREPARE with the reason of each that
 * export.formats demands. */
static oct_status list_exports(const oct_recipe *recipe, const oct_program *program, oct_text *text)
{
    OCT_OWNED(oct_text_free) oct_text missing = {0}, demanded = {0};
    for (size_t i = 0; i < oct_registry_count(&oct_export_format_table); i++) {
        const oct_export_format *format = oct_registry_at(&oct_export_format_table, i);
        char reason[REASON_BYTES];
        if (!format->write_model) continue;
        OCT_TRY(try_format(format, program, reason));
        if (!*reason)
            OCT_TRY(oct_text_add(text, "%s%s", text->length ? ", " : "", format->name));
        else
            OCT_TRY(oct_text_add(recipe_demands(recipe, format->name) ? &demanded : &missing,
                                 "\nno %s: %s", format->name, reason));
    }
    OCT_CHECK(!demanded.data, OCT_PREPARE, "export.formats: %s", demanded.data + 1);
    return missing.data ? oct_text_add(text, "%s", missing.data) : OCT_OK;
}

static oct_status warn_of_limit(const oct_device *d, oct_device_figure figure, int64_t limit,
                                const char *remedy)
{
    OCT_OWNED(oct_text_free) oct_text largest = {0};
    if (limit == 0 || d->all[figure] <= limit) return OCT_OK;
    OCT_TRY(oct_device_largest(d, figure, &largest));
    oct_log(OCT_LOG_WARN,
            "quant.%s_limit: the int8 model takes %" PRId64 " bytes of %s, more than %" PRId64
            "; most in %s; %s",
            oct_device_figure_names[figure], d->all[figure], oct_device_figure_names[figure], limit,
            largest.data ? largest.data : "no layer", remedy);
    return OCT_OK;
}

/* Warns in the log where the program exceeds quant.flash_limit or quant.scratch_limit, naming those layers. */
static oct_status warn_of_limits(const oct_recipe *recipe, const oct_program *program)
{
    OCT_OWNED(oct_device_free) oct_device device = {0};
    if (recipe->quant_flash_limit == 0 && recipe->quant_scratch_limit == 0) return OCT_OK;
    OCT_TRY(oct_device_of(&device, program));
    OCT_TRY(warn_of_limit(&device, OCT_DEVICE_FLASH, recipe->quant_flash_limit,
                          "give these fewer channels or inputs"));
    return warn_of_limit(&device, OCT_DEVICE_SCRATCH, recipe->quant_scratch_limit,
                         "use smaller images, an earlier stride, or fewer channels there");
}

oct_status oct_try_deploy(const oct_recipe *recipe, const oct_dataset *data, oct_text *report,
                          oct_text *exports)
{
    OCT_OWNED(oct_module_destroy) oct_module *model = NULL;
    OCT_OWNED(oct_quantizers_free) oct_quantizers quantizers = {0};
    OCT_OWNED(oct_program_free) oct_program program = {0};
    OCT_TRY(oct_build_model(&model, recipe, data));
    OCT_TRY(oct_check_norms(recipe, data, model));
    OCT_TRY(oct_prepare_model(&model, recipe, data, report));
    OCT_TRY(oct_quantizers_collect(&quantizers, model));
    if (recipe->qat_fold_batch_norm) OCT_TRY(oct_fold_batch_norm(model));
    oct_set_phase(model, &quantizers, OCT_PHASE_QAT_SCALES_FROZEN);
    OCT_TRY(oct_convert(&program, model, OCT_EXAMPLE(OCT_SHAPE(1, data->h, data->w, data->c)),
                        oct_target_at(recipe->quant_target), NULL));
    OCT_TRY(list_exports(recipe, &program, exports));
    return warn_of_limits(recipe, &program);
}
