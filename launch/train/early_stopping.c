/* The state is a function of the evaluations in their order. */
#include "launch/train/early_stopping.h"

#include <math.h>
#include <string.h>

const oct_metric *oct_early_stopping_metric(const oct_recipe *recipe)
{
    return recipe->evaluate_best[0] ? oct_metric_find(recipe->evaluate_best) : NULL;
}

static bool is_better(const oct_early_stopping *stopping, const oct_metric *metric, double value)
{
    if (isnan(value)) return false;
    if (stopping->best_step == 0 || isnan(stopping->best_value)) return true;
    return metric->smaller_is_better ? value < stopping->best_value : value > stopping->best_value;
}

static bool in_qat(const oct_plan *plan, int64_t step)
{
    return step > plan->begin[OCT_PHASE_QAT];
}

oct_verdict oct_early_stopping_judge(oct_early_stopping *stopping, oct_plan *plan,
                                     const oct_recipe *recipe, int64_t step,
                                     const oct_scores *scores)
{
    const oct_metric *metric = oct_early_stopping_metric(recipe);
    const bool qat = in_qat(plan, step);
    const int64_t end = qat ? oct_plan_steps(plan) : plan->begin[OCT_PHASE_CALIBRATE];
    oct_verdict verdict = {0};
    if (!metric) return verdict;
    double value = (double)NAN;
    for (int i = 0; i < scores->num_metrics; i++)
        if (scores->metric[i] == metric) value = scores->value[i];
    /* QAT is judged for itself: its first evaluation is the best until another has a value. */
    if (qat && !in_qat(plan, stopping->best_step)) {
        stopping->best_step = step;
        stopping->best_value = (double)NAN;
        stopping->since = 0;
    }
    stopping->since++;
    if (is_better(stopping, metric, value)) {
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

int64_t oct_early_stopping_best(const oct_early_stopping *stopping, const oct_plan *plan)
{
    return in_qat(plan, stopping->best_step) && !isnan(stopping->best_value) ? stopping->best_step
                                                                             : 0;
}

oct_status oct_early_stopping_apply(const oct_early_stopping *stopping, oct_plan *plan,
                                    const char *path)
{
    OCT_CHECK(stopping->float_end <= plan->begin[OCT_PHASE_CALIBRATE], OCT_DATA,
              "%s: says that the float phase ended after step %lld, but it has %lld steps", path,
              (long long)stopping->float_end, (long long)plan->begin[OCT_PHASE_CALIBRATE]);
    if (stopping->float_end > 0) oct_plan_end_float(plan, stopping->float_end);
    if (stopping->qat_end == 0) return OCT_OK;
    OCT_CHECK(in_qat(plan, stopping->qat_end) && stopping->qat_end <= oct_plan_steps(plan),
              OCT_DATA, "%s: says that QAT ended after step %lld, but its steps are %lld to %lld",
              path, (long long)stopping->qat_end, (long long)plan->begin[OCT_PHASE_QAT] + 1,
              (long long)oct_plan_steps(plan));
    oct_plan_end_qat(plan, stopping->qat_end);
    return OCT_OK;
}
