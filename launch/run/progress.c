/* People see the progress of a run.
 *
 * Under Open MPI a rank's stdout is always a terminal and its stderr never is, wherever mpirun's own
 * output goes; so the link of the parent's stderr decides there. Elsewhere under a launcher (srun, or
 * a host without mpirun's process) lines are right.
 */
#include "launch/run/progress.h"

#include "core/base/log.h"
#include "core/base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double bar_every_s = 0.25;

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value && *value;
}

static bool parent_has_terminal(void)
{
    char link[64], target[256];
    snprintf(link, sizeof(link), "/proc/%ld/fd/2", (long)getppid());
    ssize_t length = readlink(link, target, sizeof(target) - 1);
    if (length <= 0) return false;
    target[length] = '\0';
    return strncmp(target, "/dev/pts/", 9) == 0 || strncmp(target, "/dev/tty", 8) == 0;
}

bool oct_progress_terminal(void)
{
    const char *term = getenv("TERM");
    if (term && strcmp(term, "dumb") == 0) return false;
    if (is_set("OMPI_COMM_WORLD_SIZE")) return parent_has_terminal();
    if (is_set("PMI_RANK") || is_set("PMIX_RANK") || is_set("SLURM_PROCID")) return false;
    return isatty(STDERR_FILENO) == 1;
}

const char *oct_text_count(int64_t value, char text[32])
{
    char digits[32];
    int length = snprintf(digits, sizeof(digits), "%lld", (long long)value);
    int out = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && digits[i - 1] != '-' && (length - i) % 3 == 0) text[out++] = ',';
        text[out++] = digits[i];
    }
    text[out] = '\0';
    return text;
}

const char *oct_text_time(double seconds, char text[32])
{
    long long all = seconds > 0 ? llrint(fmin(seconds, 1e9)) : 0;
    long long hours = all / 3600, minutes = all / 60 % 60;
    if (hours > 0)
        snprintf(text, 32, "%lld:%02lld:%02lld", hours, minutes, all % 60);
    else
        snprintf(text, 32, "%lld:%02lld", minutes, all % 60);
    return text;
}

double oct_step_totals_rate(const oct_step_totals *totals)
{
    return totals->seconds > 0 ? (double)totals->samples / totals->seconds : 0;
}

void oct_progress_start(oct_progress *progress, const oct_plan *plan, const oct_metric *metric,
                        const char *choice, double every)
{
    bool bar = choice ? strcmp(choice, "bar") == 0 : oct_progress_terminal();
    if (choice && strcmp(choice, "none") == 0) every = INFINITY;
    *progress = (oct_progress){
        .bar = bar,
        .every = bar ? bar_every_s : every,
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
    totals->loss_sum += result->loss * (double)result->samples;
    totals->metric_sum += result->metric * (double)result->samples;
    totals->norm_sum += result->grad_norm;
    totals->samples += result->samples;
    totals->steps++;
}

/* "qat  epoch 2/3  step 512/938  loss 0.291  acc 90.1 %  3,900 img/s  left 0:21" */
static void compose(const oct_progress *progress, oct_phase phase, int64_t step, char *text,
                    size_t size)
{
    const oct_step_totals *w = &progress->since;
    oct_plan_position position = oct_plan_position_at(progress->plan, step > 0 ? step - 1 : 0);
    char rate[32], left[32], metric[64] = "";
    const oct_metric *m = progress->metric;
    double per_step = w->seconds / (double)w->steps;
    double samples = (double)w->samples;
    if (m)
        snprintf(metric, sizeof(metric), "  %.40s %.*f%s%.8s", m->brief, m->unit[0] ? 1 : 4,
                 w->metric_sum / samples, m->unit[0] ? " " : "", m->unit);
    snprintf(text, size, "%s  epoch %lld/%lld  step %lld/%lld  loss %.4f%s  %s img/s  left %s",
             oct_phase_name(phase), (long long)position.epoch, (long long)position.epochs,
             (long long)position.step + 1, (long long)position.steps, w->loss_sum / samples, metric,
             oct_text_count((int64_t)oct_step_totals_rate(w), rate),
             oct_text_time(per_step * (double)(oct_plan_steps(progress->plan) - step), left));
}

static void show(oct_progress *progress, oct_phase phase, int64_t step, bool stays)
{
    char text[256];
    if (progress->since.steps > 0) {
        compose(progress, phase, step, text, sizeof(text));
        if (stays)
            oct_log(OCT_LOG_INFO, "%s", text);
        else
            oct_log_bar("%s", text);
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
    if (now - progress->shown >= progress->every) show(progress, phase, step, !progress->bar);
}

void oct_progress_phase_end(oct_progress *progress, oct_phase phase, int64_t step)
{
    if (progress->bar)
        progress->since = progress->phase; /* the line that stays tells of all of it */
    if (isfinite(progress->every)) show(progress, phase, step, true);
    progress->phase = (oct_step_totals){0};
}
