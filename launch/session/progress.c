/* People see the progress of a run. */
#include "launch/session/progress.h"

#include "core/base/text.h"
#include "launch/base/meter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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

void oct_progress_resume(oct_progress *progress)
{
    progress->last = oct_seconds();
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

/* "qat  epoch 2/3  step 512/938  loss 0.291  acc 90.1 %  3,900 img/s" */
static void compose(const oct_progress *progress, oct_phase phase, int64_t step, char *text,
                    size_t size)
{
    const oct_step_totals *w = &progress->since;
    oct_plan_position position = oct_plan_position_at(progress->plan, step > 0 ? step - 1 : 0);
    char rate[32], loss[32] = "", metric[64] = "", skipped[48] = "";
    const oct_metric *m = progress->metric;
    double samples = (double)w->samples;
    if (!isnan(w->loss_sum)) oct_snprintf(loss, sizeof(loss), "  loss %.4f", w->loss_sum / samples);
    if (m)
        oct_snprintf(metric, sizeof(metric), "  %.40s %.*f%s%.8s", m->brief, m->unit[0] ? 1 : 4,
                     w->metric_sum / samples, m->unit[0] ? " " : "", m->unit);
    if (progress->phase.skipped > 0)
        snprintf(skipped, sizeof(skipped), "  %lld skipped", (long long)progress->phase.skipped);
    snprintf(text, size, "%s  epoch %lld/%lld  step %lld/%lld%s%s%s  %s img/s",
             oct_phase_name(phase), (long long)position.epoch, (long long)position.epochs,
             (long long)position.step + 1, (long long)position.steps, loss, metric, skipped,
             oct_text_count((int64_t)oct_step_totals_rate(w), rate));
}

static void show_progress(oct_progress *progress, oct_phase phase, int64_t step, bool stays)
{
    const oct_step_totals *w = &progress->since;
    const double all = (double)oct_plan_steps(progress->plan), done = (double)step;
    char text[256];
    if (w->steps > 0) {
        compose(progress, phase, step, text, sizeof(text));
        oct_meter_line(!stays, done / all, w->seconds / (double)w->steps * (all - done), text);
    }
    progress->since = (oct_step_totals){0};
    progress->shown = oct_seconds();
}

void oct_progress_step(oct_progress *progress, oct_phase phase, int64_t step,
                       const oct_step_result *result)
{
    double now = oct_seconds();
    oct_step_totals_add(&progress->since, now - progress->last, result);
    oct_step_totals_add(&progress->phase, now - progress->last, result);
    progress->last = now;
    if (now - progress->shown >= progress->every)
        show_progress(progress, phase, step, !progress->bar);
}

void oct_progress_phase_end(oct_progress *progress, oct_phase phase, int64_t step)
{
    if (progress->bar)
        progress->since = progress->phase; /* the line that stays covers the whole phase */
    if (isfinite(progress->every)) show_progress(progress, phase, step, true);
    progress->phase = (oct_step_totals){0};
}
