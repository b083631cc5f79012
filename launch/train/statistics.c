#include "launch/train/statistics.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "launch/session/job.h"
#include "launch/deploy/layer_stats.h"
#include "launch/train/records.h"
#include "launch/evaluate/worst.h"

/* The float model is that of the end of the float phase, where its checkpoint is there: no earlier one replaces it. */
static oct_status open_reference(const oct_training *run, oct_checkpoint *reference)
{
    const int64_t step = run->trainer.plan.begin[OCT_PHASE_CALIBRATE];
    if (step == 0) return OCT_OK;
    const oct_status status = oct_checkpoint_open_step(reference, run->checkpoints, step);
    if (status != OCT_DATA) return status;
    oct_log(OCT_LOG_WARN,
            "%s; it is the end of the float phase, and layers.json compares with the unquantized "
            "model instead",
            oct_fail_text(0));
    oct_fail_clear();
    return OCT_OK;
}

static oct_status write_layers(oct_training *run, const oct_program *program)
{
    oct_checkpoint reference = {0};
    const oct_layer_stats stats = {.program = program,
                                   .model = run->trainer.model,
                                   .reference = &reference,
                                   .recipe = run->recipe,
                                   .data = &run->test_data};
    json_t *document = NULL;
    oct_status status = OCT_OK;
    const double begin = oct_seconds();
    if (oct_training_speaks(run)) status = open_reference(run, &reference);
    OCT_TRY_OUT(oct_session_agree(run->session, status));
    OCT_TRY_OUT(oct_job_share(run->session, &reference));
    status = oct_session_agree(run->session,
                               oct_layer_stats_make(&stats, run->session->group, &document));
    if (document) oct_run_folder_document(&run->folder, "layers.json", document);
    if (oct_training_speaks(run))
        oct_log(OCT_LOG_VERBOSE, "layers.json (%.2f s)", oct_seconds() - begin);
out:
    oct_checkpoint_close(&reference);
    return status;
}

static oct_status write_worst(oct_training *run, const oct_outputs *outputs)
{
    oct_worst_sample worst[OCT_WORST_SAMPLES];
    int count;
    json_t *document = NULL;
    oct_status status = OCT_OK;
    if (run->test_data.goal != OCT_GOAL_CLASS || outputs->rows != 1) return OCT_OK;
    OCT_TRY(oct_session_agree(run->session,
                              oct_worst_find(run->session->group, outputs, worst, &count)));
    if (oct_training_speaks(run))
        status = oct_worst_document(worst, count, &run->test_data, &document);
    OCT_TRY(oct_session_agree(run->session, status));
    if (document) oct_run_folder_document(&run->folder, "worst.json", document);
    return OCT_OK;
}

static oct_status record_confusion(oct_training *run, const oct_outputs *outputs)
{
    const oct_output_rows rows = {outputs->y, outputs->row, outputs->goals};
    const oct_goal_kind goal = run->test_data.goal;
    double *counts = NULL;
    if (goal != OCT_GOAL_CLASS && goal != OCT_GOAL_MAP) return OCT_OK;
    if (outputs->row > OCT_CONFUSION_CLASSES) return OCT_OK;
    OCT_TRY(
        oct_session_agree(run->session, oct_metric_sum(&oct_metric_confusion, run->session->group,
                                                       &outputs->leaves, &rows, &counts)));
    oct_record_confusion(run, outputs->row, counts);
    oct_free(&counts);
    return OCT_OK;
}

oct_status oct_statistics_write(oct_training *run, const oct_program *program,
                                const oct_outputs *outputs)
{
    OCT_TRY(write_layers(run, program));
    OCT_TRY(write_worst(run, outputs));
    return record_confusion(run, outputs);
}
