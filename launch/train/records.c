/* The records of metrics.jsonl are made here. */
#include "launch/session/task.h"
#include "launch/train/records.h"

#include "core/base/int_math.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "launch/base/meter.h"
#include "launch/session/memory_meter.h"

#include <math.h>
#include <stdio.h>

void oct_record_steps(oct_training *run, oct_phase phase)
{
    oct_step_totals *w = &run->recorded;
    const oct_metric *metric = run->trainer.training.loss.metric;
    int64_t step = run->trainer.step;
    if (w->samples > 0 && oct_training_speaks(run))
        oct_run_folder_record(
            &run->folder,
            json_pack("{s:s, s:I, s:s, s:I, s:o*, s:o*, s:o*, s:f, s:f}", "kind", "step", "step",
                      (json_int_t)step, "phase", oct_phase_name(phase), "epoch",
                      (json_int_t)oct_plan_position_at(&run->trainer.plan, step - 1).epoch, "loss",
                      isnan(w->loss_sum) ? NULL : json_real(w->loss_sum / (double)w->samples),
                      metric ? metric->title : "metric",
                      metric ? json_real(w->metric_sum / (double)w->samples) : NULL, "grad_norm",
                      isnan(w->norm_sum) ? NULL
                                         : json_real(w->norm_sum / (double)(w->steps - w->skipped)),
                      "lr", oct_plan_lr(&run->trainer.plan, run->recipe, step - 1), "images_per_s",
                      oct_rounded(oct_step_totals_rate(w), 0.1)));
    *w = (oct_step_totals){0};
}

void oct_record_skip(oct_training *run, oct_phase phase)
{
    enum { LISTED = 20 }; /* one by one; then the progress lines count them */
    const oct_trainer *trainer = &run->trainer;
    const oct_skips *skips = &trainer->skips;
    if (!oct_training_speaks(run)) return;
    if (skips->all <= LISTED)
        oct_log(OCT_LOG_WARN, "step %lld (phase %s) was skipped: %s; %lld in a row, %lld in all%s",
                (long long)trainer->step, oct_phase_name(phase), trainer->training.why,
                (long long)skips->row, (long long)skips->all,
                skips->all == LISTED ? "; from now on they are only counted" : "");
    oct_run_folder_record(&run->folder,
                          json_pack("{s:s, s:I, s:s, s:s, s:I, s:I}", "kind", "skip", "step",
                                    (json_int_t)trainer->step, "phase", oct_phase_name(phase),
                                    "why", trainer->training.why, "row", (json_int_t)skips->row,
                                    "all", (json_int_t)skips->all));
}

/* Says where a phase made the network worse by far; empty: it did not. */
static void say_collapse(oct_training *run, oct_phase phase, char text[400])
{
    const double much = phase == OCT_PHASE_FLOAT ? 10 : 2;
    const oct_step_totals *w = &run->progress.phase;
    const double before = run->phase_loss, mean = w->loss_sum / (double)w->samples;
    const char *remedy =
        phase == OCT_PHASE_FLOAT ? "training diverges; lower float.lr, set optimizer.clip_norm, or "
                                   "start from trained weights"
        : phase == OCT_PHASE_CALIBRATE
            ? "with the statistics of the float phase, batch norms do not fit the data yet; train "
              "more float.epochs"
        : phase == OCT_PHASE_QAT_BN_FROZEN
            ? "frozen batch norms do not fit the data yet; freeze them later "
              "(qat.freeze_batch_norm), or "
              "train more qat.epochs, so that their statistics follow"
        : phase == OCT_PHASE_QAT_SCALES_FROZEN
            ? "frozen scales do not fit yet; freeze them later (qat.freeze_scales), or lower qat.lr"
            : "QAT does not hold what the float phase has learned; lower qat.lr";
    text[0] = '\0';
    run->phase_loss = mean;
    if (phase == OCT_PHASE_QAT && oct_teacher_wanted(run->recipe)) return; /* another loss */
    if (before > 0 && mean > much * before + 0.1)
        oct_snprintf(text, 400, "%s: the mean loss rose from %.3g to %.3g: %s",
                     oct_phase_name(phase), before, mean, remedy);
}

void oct_record_phase(oct_training *run, oct_phase phase)
{
    const oct_step_totals *w = &run->progress.phase;
    char worse[400];
    const double waited = run->trainer.data_seconds;
    const double syncs = (double)run->syncs / (double)oct_max_i64(w->steps, 1);
    run->trainer.data_seconds = 0;
    run->syncs = 0;
    say_collapse(run, phase, worse);
    if (!oct_training_speaks(run)) return;
    if (worse[0]) oct_log(OCT_LOG_WARN, "%s", worse);
    oct_run_folder_record(
        &run->folder,
        json_pack("{s:s, s:I, s:s, s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:s*}", "kind", "phase",
                  "step", (json_int_t)run->trainer.step, "phase", oct_phase_name(phase), "steps",
                  (json_int_t)w->steps, "images", (json_int_t)w->samples, "seconds",
                  oct_rounded(w->seconds, 0.001), "data_seconds", oct_rounded(waited, 0.001),
                  "images_per_s", oct_rounded(oct_step_totals_rate(w), 0.1), "memory_bytes",
                  (json_int_t)oct_memory_resident_peak(), "syncs_per_step",
                  oct_rounded(syncs, 0.01), "worse", worse[0] ? worse : NULL));
}

void oct_record_evaluation(oct_training *run, oct_phase phase, const oct_scores *scores,
                           double images_per_s)
{
    char count[32], rate[32], speed[64] = "", metrics[OCT_SCORES_TEXT];
    oct_plan_position position = oct_plan_position_at(&run->trainer.plan, run->trainer.step - 1);
    if (!oct_training_speaks(run)) return;
    if (images_per_s > 0)
        snprintf(speed, sizeof(speed), ", %s img/s", oct_text_count((int64_t)images_per_s, rate));
    oct_scores_text(scores, metrics);
    oct_log(OCT_LOG_INFO, "%s  epoch %lld/%lld  test %s%s(%s images%s)", oct_phase_name(phase),
            (long long)position.epoch, (long long)position.epochs, metrics, metrics[0] ? "  " : "",
            oct_text_count(scores->images, count), speed);
    const bool classes = scores->correct >= 0, pixels = scores->rows != scores->images;
    json_t *record =
        json_pack("{s:s, s:I, s:s, s:I, s:I, s:o*, s:o*, s:o*, s:o*}", "kind", "eval", "step",
                  (json_int_t)run->trainer.step, "phase", oct_phase_name(phase), "epoch",
                  (json_int_t)position.epoch, "images", (json_int_t)scores->images, "rows",
                  pixels ? json_integer(scores->rows) : NULL, "correct",
                  classes ? json_integer(scores->correct) : NULL, "accuracy",
                  classes ? json_real(oct_scores_accuracy(scores)) : NULL, "metrics",
                  oct_scores_json(scores));
    if (record && images_per_s > 0)
        json_object_set_new(record, "images_per_s", json_real(oct_rounded(images_per_s, 0.1)));
    oct_run_folder_record(&run->folder, record);
}

static json_t *scales_of(const oct_graph *graph)
{
    oct_tensor_quantizer *list;
    size_t count;
    if (oct_graph_quantizers(graph, &list, &count) != OCT_OK) {
        oct_fail_clear(); /* the record is lost, as one that does not fit on the disk */
        return NULL;
    }
    json_t *scales = json_object();
    for (size_t i = 0; i < count; i++)
        json_object_set_new(scales, list[i].path,
                            json_real((double)oct_fake_quant_qparams(list[i].fq).scale));
    oct_free(&list);
    return scales;
}

void oct_record_scales(oct_training *run, oct_phase phase)
{
    const oct_graph *graph = oct_graph_of(run->trainer.model);
    if (!graph || !oct_training_speaks(run)) return;
    oct_run_folder_record(&run->folder,
                          json_pack("{s:s, s:I, s:s, s:o}", "kind", "scales", "step",
                                    (json_int_t)run->trainer.step, "phase", oct_phase_name(phase),
                                    "scales", scales_of(graph)));
}

void oct_record_samples(oct_training *run)
{
    if (oct_training_speaks(run) && run->trainer.step == 0)
        oct_tensorboard_samples(&run->folder.events, &run->test_data);
}

void oct_record_weights(oct_training *run)
{
    enum { OF_A_PHASE = 50 };
    oct_plan_position position = oct_plan_position_at(&run->trainer.plan, run->trainer.step - 1);
    int64_t every = position.epochs / OF_A_PHASE + 1;
    if (!oct_training_speaks(run)) return;
    if (position.epoch % every == 0 || position.epoch == position.epochs)
        oct_tensorboard_weights(&run->folder.events, run->trainer.model, run->trainer.step);
}

void oct_record_confusion(oct_training *run, int64_t classes, const double *counts)
{
    if (!oct_training_speaks(run)) return;
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
}

static json_t *stopping_json(const oct_training *run)
{
    const oct_early_stopping *stopping = &run->trainer.stopping;
    return json_pack("{s:s, s:I, s:o}", "metric", oct_early_stopping_metric(run->recipe)->name,
                     "step", (json_int_t)stopping->best_step, "value",
                     isnan(stopping->best_value) ? json_null() : json_real(stopping->best_value));
}

json_t *oct_best_json(const oct_training *run)
{
    return oct_early_stopping_best(&run->trainer.stopping, &run->trainer.plan) ? stopping_json(run)
                                                                               : NULL;
}

/* What evaluations have decided, at the step at hand. */
static void record_decision(oct_training *run, const char *kind, oct_phase phase)
{
    if (!oct_training_speaks(run)) return;
    oct_run_folder_record(&run->folder,
                          json_pack("{s:s, s:I, s:s, s:o}", "kind", kind, "step",
                                    (json_int_t)run->trainer.step, "phase", oct_phase_name(phase),
                                    "best", stopping_json(run)));
}

void oct_record_best(oct_training *run, oct_phase phase)
{
    record_decision(run, "best", phase);
}

void oct_record_end(oct_training *run, oct_phase phase)
{
    record_decision(run, "end", phase);
}
