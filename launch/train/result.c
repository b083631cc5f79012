/* The result is made from the last checkpoint and the test data. */
#include "launch/deploy/device.h"
#include "launch/train/result.h"

#include "core/base/mem.h"
#include "io/file/file.h"
#include "launch/deploy/certificate.h"
#include "launch/train/records.h"
#include "launch/train/statistics.h"

#include <string.h>

enum { RESULT_VERSION = 1 };

/* The checkpoint of the last step is what this process has written, or what the manifest says of one that was there. */
static oct_status find_checkpoint(const oct_training *run, uint8_t digest[32], char **path)
{
    if (!run->saver.file.path)
        return oct_checkpoint_digest(run->checkpoints, run->trainer.step, digest, path);
    memcpy(digest, run->saver.file.digest, sizeof run->saver.file.digest);
    return oct_strdup(path, run->saver.file.path);
}

static json_t *accuracy_json(double accuracy)
{
    return accuracy < 0 ? json_null() : json_real(accuracy);
}

/* The images per second of a phase are in its record, which may be of an earlier session. */
static json_t *rate_of(const oct_training *run, oct_phase phase)
{
    const json_t *record = oct_run_folder_find(&run->folder, "phase", oct_phase_name(phase));
    return record ? json_incref(json_object_get(record, "images_per_s")) : json_null();
}

static json_t *rates(const oct_training *run)
{
    json_t *object = json_object();
    for (int phase = 0; phase < OCT_PHASES; phase++)
        if (run->trainer.plan.begin[phase] < run->trainer.plan.begin[phase + 1])
            json_object_set_new(object, oct_phase_name((oct_phase)phase),
                                rate_of(run, (oct_phase)phase));
    return object;
}

static oct_status make_result(oct_training *run, const oct_model *model,
                              const oct_conversion *conversion, const char *checkpoint,
                              json_t **result)
{
    char hex[65];
    size_t file_bytes;
    const oct_certificate *c = &model->certificate;
    const json_t *before = oct_run_folder_find(&run->folder, "eval", "float");
    OCT_TRY(oct_file_sha256(run->model_path, &file_bytes, hex));
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
        (json_int_t)oct_int8_bytes(&model->program), "images_per_s", rates(run), "output",
        run->recipe->output, "checkpoint", checkpoint, "model", run->model_path, "model_file_bytes",
        (json_int_t)file_bytes, "model_sha256", hex, "float_metrics",
        json_object_get(before, "metrics"), "qat_metrics", oct_scores_json(&conversion->qat_scores),
        "metrics", oct_scores_json(&conversion->scores), "best", oct_best_json(run),
        "skipped_steps", run->trainer.skips.all > 0 ? json_integer(run->trainer.skips.all) : NULL);
    OCT_CHECK(*result, OCT_RESOURCE, "out of memory for the result");
    oct_run_folder_record(&run->folder, json_incref(*result));
    return OCT_OK;
}

static oct_status write_model(oct_training *run, const oct_model *model,
                              const oct_conversion *conversion, const char *checkpoint,
                              json_t **result)
{
    oct_record_evaluation(run, OCT_PHASE_QAT_SCALES_FROZEN, &conversion->scores, 0);
    oct_record_scales(run, OCT_PHASE_QAT_SCALES_FROZEN);
    OCT_TRY(oct_model_save(run->model_path, model));
    return make_result(run, model, conversion, checkpoint, result);
}

oct_status oct_run_result(oct_training *run, json_t **result)
{
    oct_outputs outputs = {0};
    oct_conversion conversion = {
        .root = run->trainer.model,
        .recipe = run->recipe,
        .test_data = &run->test_data,
        .outputs = &outputs,
    };
    oct_model model = {0};
    char *checkpoint = NULL;
    oct_status status = OCT_OK;
    oct_trainer_release_memory(&run->trainer);
    if (oct_training_speaks(run))
        status = find_checkpoint(run, conversion.checkpoint_digest, &checkpoint);
    OCT_TRY_OUT(oct_session_agree(run->session, status));
    OCT_TRY_OUT(
        oct_session_agree(run->session, oct_certify(&model, &conversion, run->session->group)));
    OCT_TRY_OUT(oct_statistics_write(run, &model.program, &outputs));
    if (oct_training_speaks(run))
        status = write_model(run, &model, &conversion, checkpoint, result);
    status = oct_session_agree(run->session, status);
out:
    oct_outputs_free(&outputs);
    oct_model_free(&model);
    oct_free(&checkpoint);
    return status;
}
