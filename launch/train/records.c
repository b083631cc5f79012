/* A run reports its steps and evaluations: by progress lines for people, and by the records of metrics.jsonl. */
#include "core/base/int_math.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/text.h"
#include "launch/base/machine.h"
#include "launch/session/task.h"
#include "launch/train/training_impl.h"

#include <math.h>
#include <stdio.h>

enum { RECORDS_PER_EPOCH = 20 };

/* Progress. */

double oct_step_totals_rate(const oct_step_totals *totals)
{
    return totals->seconds > 0 ? (double)totals->samples / totals->seconds : 0;
}

void oct_progress_start(oct_progress *progress, const oct_plan *plan, const oct_metric *metric,
                        const char *choice, double every)
{
    *progress = (oct_progress){
        .bar = oct_progress_bar(choice),
        .every = oct_progress_every(choice, every),
        .plan = plan,
        .metric = metric,
        .shown = oct_seconds(),
        .last = oct_seconds(),
    };
}

void oct_step_totals_add(oct_step_totals *totals, double seconds, const oct_step_result *result)
{
    totals->seconds += seconds;
    totals->steps++;
    if (result->skipped) {
        totals->skipped++;
        return;
    }
    totals->loss_sum += result->loss * (double)result->samples;
    totals->metric_sum += result->metric * (double)result->samples;
    totals->norm_sum += result->grad_norm;
    totals->samples += result->samples;
}

/* Shows a line such as "qat  epoch 2/3  step 512/938  loss 0.291  acc 90.1 %  3,900 img/s". */
static void show_progress(oct_progress *progress, oct_phase phase, int64_t step, bool stays)
{
    const oct_step_totals *w = &progress->since;
    const oct_plan_position position =
        oct_plan_position_at(progress->plan, step > 0 ? step - 1 : 0);
    const oct_metric *m = progress->metric;
    const double all = (double)oct_plan_steps(progress->plan), done = (double)step;
    const double samples = (double)w->samples;
    char loss[32] = "", metric[64] = "", skipped[48] = "", text[256];
    if (w->steps > 0) {
        if (!isnan(w->loss_sum))
            oct_snprintf(loss, sizeof(loss), "  loss %.4f", w->loss_sum / samples);
        if (m)
            oct_snprintf(metric, sizeof(metric), "  %.40s %.*f%s%.8s", m->brief, m->unit[0] ? 1 : 4,
                         w->metric_sum / samples, m->unit[0] ? " " : "", m->unit);
        if (progress->phase.skipped > 0)
            snprintf(skipped, sizeof(skipped), "  %lld skipped",
                     (long long)progress->phase.skipped);
        snprintf(text, sizeof(text), "%s  epoch %lld/%lld  step %lld/%lld%s%s%s  %s img/s",
                 oct_phase_name(phase), (long long)position.epoch, (long long)position.epochs,
                 (long long)position.step + 1, (long long)position.steps, loss, metric, skipped,
                 oct_text_count((int64_t)oct_step_totals_rate(w)).text);
        oct_meter_line(!stays, done / all, w->seconds / (double)w->steps * (all - done), text);
    }
    progress->since = (oct_step_totals){0};
    progress->shown = oct_seconds();
}

/* Steps. */

void oct_record_start(oct_train_run *run)
{
    const oct_trainer *trainer = &run->trainer;
    oct_progress_start(&run->progress, &trainer->plan, trainer->training.loss.metric,
                       run->args->progress, run->recipe->log_every);
    if (oct_train_run_speaks(run) && trainer->step == 0)
        oct_tensorboard_samples(&run->folder.events, &run->test_data);
}

/* Writes the record of the steps since the last one, with their means, and starts anew. */
static void record_steps(oct_train_run *run, oct_phase phase)
{
    oct_step_totals *w = &run->recorded;
    const oct_metric *metric = run->trainer.training.loss.metric;
    int64_t step = run->trainer.step;
    if (w->samples > 0 && oct_train_run_speaks(run))
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

static void record_skip(oct_train_run *run, oct_phase phase)
{
    enum { LISTED = 20 }; /* one by one; then the progress lines count them */
    const oct_trainer *trainer = &run->trainer;
    const oct_skips *skips = &trainer->skips;
    if (!oct_train_run_speaks(run)) return;
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

/* Describes how a phase made the network worse by far, with a remedy; text is empty where it did not. */
static void say_collapse(oct_train_run *run, oct_phase phase, char text[400])
{
    const double much = phase == OCT_PHASE_FLOAT ? 10 : 2;
    const oct_step_totals *w = &run->progress.phase;
    const double before = run->phase_loss, mean = w->loss_sum / (double)w->samples;
    static const char *const remedy[OCT_PHASES] = {
        [OCT_PHASE_FLOAT] = "training diverges; lower float.lr, set optimizer.clip_norm, or start "
                            "from trained weights",
        [OCT_PHASE_CALIBRATE] = "with the statistics of the float phase, batch norms do not fit "
                                "the data yet; train more float.epochs",
        [OCT_PHASE_QAT] = "QAT does not hold what the float phase has learned; lower qat.lr",
        [OCT_PHASE_QAT_BN_FROZEN] = "frozen batch norms do not fit the data yet; freeze them later "
                                    "(qat.freeze_batch_norm), or train more qat.epochs, so that "
                                    "their statistics follow",
        [OCT_PHASE_QAT_SCALES_FROZEN] =
            "frozen scales do not fit yet; freeze them later (qat.freeze_scales), or lower qat.lr",
    };
    text[0] = '\0';
    run->phase_loss = mean;
    if (phase == OCT_PHASE_QAT && oct_teacher_wanted(run->recipe)) return; /* another loss */
    if (before > 0 && mean > much * before + 0.1)
        oct_snprintf(text, 400, "%s: the mean loss rose from %.3g to %.3g: %s",
                     oct_phase_name(phase), before, mean, remedy[phase]);
}

void oct_record_so_far(oct_train_run *run, oct_phase phase)
{
    const oct_step_totals *w = &run->progress.phase;
    char worse[400];
    const double waited = run->trainer.data_seconds;
    const double syncs = (double)run->syncs / (double)oct_max_i64(w->steps, 1);
    record_steps(run, phase);
    run->trainer.data_seconds = 0;
    run->syncs = 0;
    say_collapse(run, phase, worse);
    if (!oct_train_run_speaks(run)) return;
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

void oct_record_phase_end(oct_train_run *run, oct_phase phase)
{
    oct_progress *progress = &run->progress;
    oct_record_so_far(run, phase);
    if (progress->bar)
        progress->since = progress->phase; /* the line that stays covers the whole phase */
    if (isfinite(progress->every)) show_progress(progress, phase, run->trainer.step, true);
    progress->phase = (oct_step_totals){0};
}

void oct_record_step(oct_train_run *run, oct_phase phase, const oct_step_result *result,
                     bool phase_ends)
{
    const int64_t step = run->trainer.step;
    const int64_t every = run->trainer.plan.steps_per_epoch / RECORDS_PER_EPOCH + 1;
    const oct_grad_gates *gates = &run->trainer.training.gates; /* of int8 gradients */
    oct_progress *progress = &run->progress;
    const double now = oct_seconds(), seconds = now - progress->last;
    progress->last = now;
    if (result->skipped) record_skip(run, phase);
    for (size_t i = 0; i < gates->count * OCT_GATE_OPERANDS; i++) {
        static const char *const of[] = {[OCT_GATE_INPUT] = "input", [OCT_GATE_WEIGHT] = "weights"};
        const oct_grad_gate *gate = &gates->items[i / OCT_GATE_OPERANDS];
        const char *operand = of[i % OCT_GATE_OPERANDS];
        const int64_t left = gates->state[i * OCT_GATE_STATES + OCT_GATE_LEFT];
        if (!gate->changed[i % OCT_GATE_OPERANDS] || !oct_train_run_speaks(run)) continue;
        const oct_path_text path = oct_module_path(gate->layer);
        oct_log(OCT_LOG_INFO, "step %lld: %s: the gradient for its %s has %s", (long long)step,
                path.text, operand,
                left > 0 ? "16 bits for a while, since 8 were too few" : "8 bits again");
        oct_run_folder_record(&run->folder,
                              json_pack("{s:s, s:I, s:s, s:s, s:i, s:I}", "kind", "gradient_bits",
                                        "step", (json_int_t)step, "layer", path.text, "of", operand,
                                        "bits", left > 0 ? 16 : 8, "updates", (json_int_t)left));
    }
    if (run->phase_loss == 0 && isfinite(result->loss)) run->phase_loss = result->loss;
    oct_step_totals_add(&run->recorded, seconds, result);
    oct_step_totals_add(&progress->since, seconds, result);
    oct_step_totals_add(&progress->phase, seconds, result);
    if (phase_ends || step % every == 0) record_steps(run, phase);
    if (now - progress->shown >= progress->every)
        show_progress(progress, phase, step, !progress->bar);
    if (phase_ends) oct_record_phase_end(run, phase);
}

/* Evaluations. */

void oct_record_evaluation(oct_train_run *run, oct_phase phase, const oct_scores *scores,
                           double images_per_s)
{
    char speed[64] = "", metrics[OCT_SCORES_TEXT];
    oct_plan_position position = oct_plan_position_at(&run->trainer.plan, run->trainer.step - 1);
    if (!oct_train_run_speaks(run)) return;
    if (images_per_s > 0)
        snprintf(speed, sizeof(speed), ", %s img/s", oct_text_count((int64_t)images_per_s).text);
    oct_scores_text(scores, metrics);
    oct_log(OCT_LOG_INFO, "%s  epoch %lld/%lld  test %s%s(%s images%s)", oct_phase_name(phase),
            (long long)position.epoch, (long long)position.epochs, metrics, metrics[0] ? "  " : "",
            oct_text_count(scores->images).text, speed);
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
    /* The scale of each layer's output, of a prepared model. */
    const oct_graph *graph = oct_graph_of(run->trainer.model);
    oct_tensor_quantizer *list;
    size_t num_layers;
    if (!graph) return;
    if (oct_graph_quantizers(graph, &list, &num_layers) != OCT_OK) {
        oct_fail_clear(); /* the record is lost, as one that does not fit on the disk */
        return;
    }
    json_t *scales = json_object();
    for (size_t i = 0; i < num_layers; i++)
        json_object_set_new(scales, list[i].path,
                            json_real((double)oct_fake_quant_qparams(list[i].fq).scale));
    oct_free(&list);
    oct_run_folder_record(&run->folder, json_pack("{s:s, s:I, s:s, s:o}", "kind", "scales", "step",
                                                  (json_int_t)run->trainer.step, "phase",
                                                  oct_phase_name(phase), "scales", scales));
}

const oct_metric *oct_early_stopping_metric(const oct_recipe *recipe)
{
    return recipe->evaluate_best[0] ? oct_metric_find(recipe->evaluate_best) : NULL;
}

oct_verdict oct_early_stopping_judge(oct_early_stopping *stopping, oct_plan *plan,
                                     const oct_recipe *recipe, int64_t step,
                                     const oct_scores *scores)
{
    const oct_metric *metric = oct_early_stopping_metric(recipe);
    const bool qat = step > plan->begin[OCT_PHASE_QAT];
    const int64_t end = qat ? oct_plan_steps(plan) : plan->begin[OCT_PHASE_CALIBRATE];
    oct_verdict verdict = {0};
    if (!metric) return verdict;
    double value = (double)NAN;
    for (int i = 0; i < scores->num_metrics; i++)
        if (scores->metric[i] == metric) value = scores->value[i];
    /* QAT is judged for itself: its first evaluation is the best until another has a value. */
    if (qat && stopping->best_step <= plan->begin[OCT_PHASE_QAT]) {
        stopping->best_step = step;
        stopping->best_value = (double)NAN;
        stopping->since = 0;
    }
    stopping->since++;
    const double best = stopping->best_value;
    const bool first = stopping->best_step == 0 || isnan(best);
    if (!isnan(value) && (first || (metric->smaller_is_better ? value < best : value > best))) {
        stopping->best_step = step;
        stopping->best_value = value;
        stopping->since = 0;
        verdict.best = qat;
    }
    verdict.ends =
        step < end && recipe->evaluate_patience > 0 && stopping->since >= recipe->evaluate_patience;
    if (verdict.ends && qat) {
        stopping->qat_end = step;
        oct_plan_end_qat(plan, step);
    } else if (verdict.ends) {
        stopping->float_end = step;
        oct_plan_end_float(plan, step);
    }
    return verdict;
}

json_t *oct_stopping_json(const oct_train_run *run)
{
    const oct_early_stopping *stopping = &run->trainer.stopping;
    return json_pack("{s:s, s:I, s:o}", "metric", oct_early_stopping_metric(run->recipe)->name,
                     "step", (json_int_t)stopping->best_step, "value",
                     isnan(stopping->best_value) ? json_null() : json_real(stopping->best_value));
}

/* Records what an evaluation has decided at this step: kind is "best" or "end". */
static void record_decision(oct_train_run *run, const char *kind, oct_phase phase)
{
    if (!oct_train_run_speaks(run)) return;
    oct_run_folder_record(&run->folder,
                          json_pack("{s:s, s:I, s:s, s:o}", "kind", kind, "step",
                                    (json_int_t)run->trainer.step, "phase", oct_phase_name(phase),
                                    "best", oct_stopping_json(run)));
}

/* Records what an evaluation has decided: it is the best so far by evaluate.best, or ends its phase. */
static void record_verdict(oct_train_run *run, oct_phase phase, const oct_verdict *verdict)
{
    const oct_early_stopping *stopping = &run->trainer.stopping;
    const oct_metric *metric = oct_early_stopping_metric(run->recipe);
    const bool none = stopping->best_step == 0 || isnan(stopping->best_value);
    if (verdict->best) record_decision(run, "best", phase);
    if (!verdict->ends) return;
    record_decision(run, "end", phase);
    oct_log(OCT_LOG_INFO,
            "%s: %lld evaluation%s without a better %s (the best: %s, step %lld)%s: the phase ends "
            "here",
            phase == OCT_PHASE_FLOAT ? "float" : "qat", (long long)stopping->since,
            stopping->since == 1 ? "" : "s", metric->title,
            oct_figure_text(metric, none ? (double)NAN : stopping->best_value).text,
            (long long)stopping->best_step,
            none ? "; choose an evaluate.best that these test data define" : "");
}

oct_status oct_run_evaluate(oct_train_run *run, oct_phase phase, oct_verdict *verdict)
{
    enum { HISTOGRAMS_OF_A_PHASE = 50 };
    oct_trainer *trainer = &run->trainer;
    const oct_plan_position position = oct_plan_position_at(&trainer->plan, trainer->step - 1);
    const int64_t every = position.epochs / HISTOGRAMS_OF_A_PHASE + 1;
    oct_scores scores;
    const double begin = oct_seconds();
    OCT_TRY(oct_session_agree(run->session, oct_trainer_evaluate(trainer, &scores)));
    oct_record_evaluation(run, phase, &scores, (double)scores.images / (oct_seconds() - begin));
    if (oct_train_run_speaks(run) &&
        (position.epoch % every == 0 || position.epoch == position.epochs))
        oct_tensorboard_weights(&run->folder.events, trainer->model, trainer->step);
    /* The phase may end by the verdict, and with it the run, which is then finished. */
    *verdict = oct_early_stopping_judge(&trainer->stopping, &trainer->plan, run->recipe,
                                        trainer->step, &scores);
    if (verdict->ends && oct_trainer_done(trainer))
        OCT_TRY(oct_session_agree(run->session, oct_trainer_finish(trainer)));
    record_verdict(run, phase, verdict);
    return OCT_OK;
}
