/* The end of a run makes its result from the last checkpoint and the test data: the int8 model with its certificate, the
 * record of how accurate it is, and statistics of it: layers.json, worst.json and the confusion record, the same bytes
 * for any number of ranks. */
#include "core/base/int_math.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "io/augment/geometry.h"
#include "io/file/file.h"
#include "io/image/decode.h"
#include "launch/deploy/certificate.h"
#include "launch/deploy/device.h"
#include "launch/deploy/layer_stats.h"
#include "launch/session/job.h"
#include "launch/train/training_impl.h"

#include <math.h>
#include <string.h>

enum { RESULT_VERSION = 1, WORST_VERSION = 1 };

/* Larger confusion matrices are not written. */
enum { CONFUSION_CLASSES = 100 };

/* layers.json */

/* Opens the end of the float phase, with which layers.json compares: no earlier checkpoint replaces it. */
static oct_status open_float_reference(const oct_train_run *run, oct_checkpoint *reference)
{
    const int64_t step = run->trainer.plan.begin[OCT_PHASE_CALIBRATE];
    if (step == 0) return OCT_OK;
    const oct_status status = oct_checkpoint_open_step(reference, run->saver.folder, step);
    if (status != OCT_DATA) return status;
    oct_log(OCT_LOG_WARN,
            "%s; it is the end of the float phase, and layers.json compares with the unquantized "
            "model instead",
            oct_error_message(0));
    oct_fail_clear();
    return OCT_OK;
}

/* Collective: compares each layer of the int8 model with the float model, and writes that as layers.json. */
static oct_status write_layers(oct_train_run *run, const oct_program *program)
{
    OCT_OWNED(oct_checkpoint_close) oct_checkpoint reference = {0};
    const oct_layer_stats stats = {.program = program,
                                   .model = run->trainer.model,
                                   .reference = &reference,
                                   .recipe = run->recipe,
                                   .data = &run->test_data};
    json_t *document = NULL;
    const bool first = oct_train_run_speaks(run);
    const double begin = oct_seconds();
    OCT_TRY(
        oct_session_agree(run->session, first ? open_float_reference(run, &reference) : OCT_OK));
    OCT_TRY(oct_job_share(run->session, &reference));
    const oct_status status = oct_session_agree(
        run->session, oct_layer_stats_make(&stats, run->session->group, &document));
    if (document) oct_run_folder_document(&run->folder, "layers.json", document);
    if (first) oct_log(OCT_LOG_VERBOSE, "layers.json (%.2f s)", oct_seconds() - begin);
    return status;
}

/* worst.json: the samples whose label has the largest loss. */

enum { WORST_SAMPLES = 24, WORST_SIDE = 64 };

typedef struct worst_sample {
    int64_t index; /* in the data */
    int32_t label, predicted;
    double probability; /* of what was predicted */
    double loss;        /* cross-entropy of the label */
} worst_sample;

/* What a row of logits says of its sample, by the softmax; the largest logit is taken off first, so that exp stays finite. */
static worst_sample judge_row(const oct_output_row *row, int64_t index)
{
    const float *y = row->y;
    int64_t best = 0;
    double sum = 0;
    for (int64_t k = 1; k < row->n; k++)
        if (y[k] > y[best]) best = k;
    for (int64_t k = 0; k < row->n; k++)
        sum += exp((double)y[k] - (double)y[best]);
    return (worst_sample){.index = index,
                          .label = row->label,
                          .predicted = (int32_t)best,
                          .probability = 1 / sum,
                          .loss = log(sum) + (double)y[best] - (double)y[row->label]};
}

/* Puts a sample into the list of the worst, by falling loss and then by index; the last of a full list drops out. */
static void keep_worst(worst_sample *worst, int *count, const worst_sample *sample)
{
    int at = *count;
    while (at > 0 && (sample->loss > worst[at - 1].loss ||
                      (sample->loss == worst[at - 1].loss && sample->index < worst[at - 1].index)))
        at--;
    if (at == WORST_SAMPLES) return;
    if (*count < WORST_SAMPLES) (*count)++;
    memmove(worst + at + 1, worst + at, (size_t)(*count - 1 - at) * sizeof *worst);
    worst[at] = *sample;
}

/* Collective: finds the worst samples of all ranks. outputs: those of this rank, logits with a label each. Worst first,
 * of equal ones the first in the data. The same on any number of ranks. worst: WORST_SAMPLES of them on rank 0. */
static oct_status find_worst(const oct_collective *group, const oct_outputs *outputs,
                             worst_sample *worst, int *count)
{
    const oct_output_rows rows = {outputs->y, outputs->row, outputs->goals};
    const int64_t first = oct_leaves_first_sample(&outputs->leaves);
    const size_t room = WORST_SAMPLES + 1; /* the last one holds how many there are */
    worst_sample mine[WORST_SAMPLES + 1];
    OCT_OWNED(oct_free) worst_sample *all = NULL;
    const bool first_rank = group->rank == 0;
    int found = 0;
    memset(mine, 0, sizeof mine);
    for (int64_t i = 0; i < outputs->samples; i++) {
        const oct_output_row row = oct_output_row_at(&rows, i);
        if (oct_goals_ignore(&outputs->goals, i)) continue;
        const worst_sample sample = judge_row(&row, first + i);
        if (isfinite(sample.loss)) keep_worst(mine, &found, &sample);
    }
    mine[WORST_SAMPLES].index = found;
    *count = 0;
    OCT_TRY(group->agree(
        group, first_rank ? oct_alloc(&all, (size_t)group->size * room, sizeof *all) : OCT_OK));
    OCT_TRY(group->gather(group, mine, sizeof mine, all));
    for (int rank = 0; first_rank && rank < group->size; rank++) {
        const worst_sample *theirs = all + (size_t)rank * room;
        for (int64_t i = 0; i < theirs[WORST_SAMPLES].index; i++)
            keep_worst(worst, count, &theirs[i]);
    }
    return OCT_OK;
}

/* A thumbnail, whose longer side is at most WORST_SIDE pixels. A sample that is no picture has none: null. */
static oct_status thumbnail(const oct_dataset *data, int64_t index, json_t **png)
{
    OCT_OWNED(oct_image_free) oct_image image = {0}, spare = {0};
    OCT_OWNED(oct_free) char *text = NULL;
    *png = json_null();
    if (data->dtype != OCT_U8) return OCT_OK;
    OCT_TRY(data->format->read(data, index, &image, NULL));
    if (image.c != 1 && image.c != 3) return OCT_OK;
    const int64_t longer = oct_max_i64(image.h, image.w);
    if (longer > WORST_SIDE)
        OCT_TRY(oct_geometry_resize(&image, NULL, &spare,
                                    oct_max_i64(image.h * WORST_SIDE / longer, 1),
                                    oct_max_i64(image.w * WORST_SIDE / longer, 1)));
    OCT_TRY(oct_png_base64(&image, &text));
    *png = json_string(text);
    if (!*png) *png = json_null();
    return OCT_OK;
}

static json_t *class_name_json(const oct_dataset *data, int32_t label)
{
    const char *name = data->class_names ? data->class_names[label] : NULL;
    return name ? json_string(name) : json_null();
}

static oct_status make_worst_document(const worst_sample *worst, int count, const oct_dataset *data,
                                      json_t **document)
{
    json_auto_t *samples = json_array();
    for (int i = 0; i < count; i++) {
        const worst_sample *s = &worst[i];
        json_t *png;
        OCT_TRY(thumbnail(data, s->index, &png));
        json_array_append_new(samples, json_pack("{s:I, s:i, s:o, s:i, s:o, s:f, s:f, s:o}",
                                                 "index", (json_int_t)s->index, "label", s->label,
                                                 "label_name", class_name_json(data, s->label),
                                                 "predicted", s->predicted, "predicted_name",
                                                 class_name_json(data, s->predicted), "probability",
                                                 s->probability, "loss", s->loss, "png", png));
    }
    *document = json_pack("{s:i, s:O}", "schema_version", WORST_VERSION, "samples", samples);
    OCT_CHECK(*document, OCT_RESOURCE, "out of memory for the worst-classified samples");
    return OCT_OK;
}

/* Writes worst.json on rank 0: the samples whose label has the largest loss. */
static oct_status write_worst_samples(oct_train_run *run, const oct_outputs *outputs)
{
    worst_sample worst[WORST_SAMPLES];
    int count;
    json_t *document = NULL;
    const bool first = oct_train_run_speaks(run);
    if (run->test_data.goal != OCT_GOAL_CLASS || outputs->rows != 1) return OCT_OK;
    OCT_TRY(
        oct_session_agree(run->session, find_worst(run->session->group, outputs, worst, &count)));
    OCT_TRY(oct_session_agree(run->session,
                              first ? make_worst_document(worst, count, &run->test_data, &document)
                                    : OCT_OK));
    if (document) oct_run_folder_document(&run->folder, "worst.json", document);
    return OCT_OK;
}

/* The confusion record. */

/* How many test images of each class the int8 model takes for each: counts of classes x classes, a row for each class
 * that is right. */
static oct_status record_confusion(oct_train_run *run, const oct_outputs *outputs)
{
    const oct_output_rows output_rows = {outputs->y, outputs->row, outputs->goals};
    const oct_goal_kind goal = run->test_data.goal;
    const int64_t classes = outputs->row;
    OCT_OWNED(oct_free) double *counts = NULL;
    if (goal != OCT_GOAL_CLASS && goal != OCT_GOAL_MAP) return OCT_OK;
    if (classes > CONFUSION_CLASSES) return OCT_OK;
    OCT_TRY(
        oct_session_agree(run->session, oct_metric_sum(&oct_metric_confusion, run->session->group,
                                                       &outputs->leaves, &output_rows, &counts)));
    if (!oct_train_run_speaks(run)) return OCT_OK;
    json_t *rows = json_array();
    for (int64_t i = 0; i < classes; i++) {
        json_t *row = json_array();
        for (int64_t k = 0; k < classes; k++)
            json_array_append_new(row, json_integer((json_int_t)counts[i * classes + k]));
        json_array_append_new(rows, row);
    }
    json_t *names = NULL;
    if (run->test_data.class_names && run->test_data.classes == classes) names = json_array();
    for (int64_t i = 0; names && i < classes; i++)
        json_array_append_new(names, json_string(run->test_data.class_names[i]));
    oct_run_folder_record(&run->folder,
                          json_pack("{s:s, s:I, s:s, s:I, s:o, s:o*}", "kind", "confusion", "step",
                                    (json_int_t)run->trainer.step, "phase",
                                    oct_phase_name(OCT_PHASE_QAT_SCALES_FROZEN), "classes",
                                    (json_int_t)classes, "counts", rows, "names", names));
    return OCT_OK;
}

/* The result. */

static json_t *accuracy_json(double accuracy)
{
    return accuracy < 0 ? json_null() : json_real(accuracy);
}

/* Saves the int8 model, and makes and records the result: accuracies, sizes, rates, paths and digest. */
static oct_status write_result(oct_train_run *run, const oct_model *model,
                               const oct_conversion *conversion, const char *checkpoint,
                               json_t **result)
{
    const oct_trainer *trainer = &run->trainer;
    char hex[65];
    size_t file_bytes;
    const oct_certificate *c = &model->certificate;
    const json_t *before = oct_run_folder_find(&run->folder, "eval", "float");
    oct_record_evaluation(run, OCT_PHASE_QAT_SCALES_FROZEN, &conversion->scores, 0);
    OCT_TRY(oct_model_write(run->model_path, model));
    OCT_TRY(oct_file_sha256(run->model_path, &file_bytes, hex));
    /* The images per second of each phase are in its record, which may be of an earlier session. */
    json_t *rates = json_object();
    for (int i = 0; i < OCT_PHASES; i++) {
        if (trainer->plan.begin[i] == trainer->plan.begin[i + 1]) continue;
        const char *phase = oct_phase_name((oct_phase)i);
        const json_t *record = oct_run_folder_find(&run->folder, "phase", phase);
        json_object_set_new(rates, phase,
                            record ? json_incref(json_object_get(record, "images_per_s"))
                                   : json_null());
    }
    json_t *best =
        oct_early_stopping_best(&trainer->stopping, &trainer->plan) ? oct_stopping_json(run) : NULL;
    *result = json_pack(
        "{s:i, s:s, s:I, s:O?, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:o, s:s, s:s, s:s, s:I, s:s, "
        "s:O*, s:o*, s:o*, s:o*, s:o*}",
        "schema_version", RESULT_VERSION, "kind", "result", "step", (json_int_t)run->trainer.step,
        "float_accuracy", json_object_get(before, "accuracy"), "qat_accuracy",
        accuracy_json(c->qat_accuracy), "int8_accuracy",
        accuracy_json(oct_scores_accuracy(&conversion->scores)), "images", (json_int_t)c->images,
        "logits", (json_int_t)(c->images * oct_model_outputs(model)), "logits_differ",
        (json_int_t)c->logits_differ, "float_bytes",
        (json_int_t)oct_float_bytes(run->trainer.model), "int8_bytes",
        (json_int_t)oct_int8_bytes(&model->program), "images_per_s", rates, "output",
        run->recipe->output, "checkpoint", checkpoint, "model", run->model_path, "model_file_bytes",
        (json_int_t)file_bytes, "model_sha256", hex, "float_metrics",
        json_object_get(before, "metrics"), "qat_metrics", oct_scores_json(&conversion->qat_scores),
        "metrics", oct_scores_json(&conversion->scores), "best", best, "skipped_steps",
        run->trainer.skips.all > 0 ? json_integer(run->trainer.skips.all) : NULL);
    OCT_CHECK(*result, OCT_RESOURCE, "out of memory for the result");
    oct_run_folder_record(&run->folder, json_incref(*result));
    return OCT_OK;
}

/* Finds the checkpoint of the last step, which an earlier session has written; the manifest knows its digest. */
static oct_status find_last_checkpoint(const oct_train_run *run, uint8_t digest[32], char **path)
{
    OCT_OWNED(oct_manifest_free) oct_manifest manifest = {0};
    OCT_TRY(oct_manifest_read(&manifest, run->saver.folder, false));
    OCT_TRY(oct_checkpoint_path(path, run->saver.folder, run->trainer.step));
    const oct_manifest_entry *entry = oct_manifest_find(&manifest, run->trainer.step);
    OCT_CHECK(entry && !entry->damaged, OCT_DATA, "%s: is %s", *path,
              entry ? "damaged, or cannot be read" : "gone");
    memcpy(digest, entry->digest, sizeof entry->digest);
    return OCT_OK;
}

oct_status oct_run_result(oct_train_run *run, json_t **result)
{
    OCT_OWNED(oct_outputs_free) oct_outputs outputs = {0};
    oct_conversion conversion = {
        .root = run->trainer.model,
        .recipe = run->recipe,
        .test_data = &run->test_data,
        .outputs = &outputs,
    };
    OCT_OWNED(oct_model_free) oct_model model = {0};
    OCT_OWNED(oct_free) char *checkpoint = NULL;
    oct_status status = OCT_OK;
    oct_trainer_release_memory(&run->trainer);
    /* The checkpoint of the last step is what this process has written, or what the manifest says of one that was
     * there. */
    const oct_checkpoint_file *written = &run->saver.file;
    if (written->path) {
        memcpy(conversion.checkpoint_digest, written->digest, sizeof written->digest);
        status = oct_strdup(&checkpoint, written->path);
    } else if (oct_train_run_speaks(run)) {
        status = find_last_checkpoint(run, conversion.checkpoint_digest, &checkpoint);
    }
    OCT_TRY(oct_session_agree(run->session, status));
    OCT_TRY(oct_session_agree(run->session, oct_certify(&model, &conversion, run->session->group)));
    OCT_TRY(write_layers(run, &model.program));
    OCT_TRY(write_worst_samples(run, &outputs));
    OCT_TRY(record_confusion(run, &outputs));
    if (oct_train_run_speaks(run))
        status = write_result(run, &model, &conversion, checkpoint, result);
    return oct_session_agree(run->session, status);
}
