/* Loss and metrics of a recipe, and whether they fit its data. */
#include "launch/run/task.h"

/* A training step measures what has one figure, which says something of a single batch. */
static const oct_metric *step_metric(const oct_recipe *recipe)
{
    for (int i = 0; i < recipe->metrics.count; i++) {
        const oct_metric *metric = oct_metric_find(recipe->metrics.value[i]);
        if (metric && metric->add && !metric->details) return metric;
    }
    return NULL;
}

static const double *list_of(const oct_reals *list)
{
    return list->count > 0 ? list->value : NULL;
}

oct_loss_spec oct_task_loss(const oct_recipe *recipe)
{
    return (oct_loss_spec){
        .kind = oct_loss_find(recipe->loss_kind),
        .options = {.smoothing = (double)(float)recipe->loss_label_smoothing,
                    .class_weights = list_of(&recipe->loss_class_weights),
                    .positive_weights = list_of(&recipe->loss_positive_weights),
                    .delta = recipe->loss_delta},
        .metric = step_metric(recipe),
    };
}

static void check_used(const oct_loss_kind *loss, bool given, unsigned use, const char *key,
                       const char *what)
{
    if (given && !(loss->uses & use))
        oct_fail_add(OCT_USAGE, "%s: %s %s; leave the key out", key, loss->name, what);
}

static void check_weights(const oct_reals *list, const oct_dataset *data, const char *key,
                          const char *what)
{
    if (list->count > 0 && list->count != data->classes)
        oct_fail_add(OCT_USAGE, "%s: %d values, but there are %lld %s; give one for each", key,
                     list->count, (long long)data->classes, what);
}

static void check_loss(const oct_recipe *recipe, const oct_dataset *data)
{
    const oct_loss_kind *loss = oct_loss_find(recipe->loss_kind);
    if (!loss) return;
    if (!(loss->takes & OCT_LOSS_OF_LABELS))
        oct_fail_add(OCT_USAGE,
                     "loss.kind: %s does not take labels, which are what a data set has; use "
                     "another one, such as cross_entropy",
                     loss->name);
    check_used(loss, recipe->loss_label_smoothing > 0, OCT_LOSS_USES_SMOOTHING,
               "loss.label_smoothing", "smooths no labels");
    check_used(loss, recipe->loss_class_weights.count > 0, OCT_LOSS_USES_CLASS_WEIGHTS,
               "loss.class_weights", "has no weights of classes");
    check_used(loss, recipe->loss_positive_weights.count > 0, OCT_LOSS_USES_POSITIVE_WEIGHTS,
               "loss.positive_weights", "has no weights of positives");
    check_used(loss, recipe->loss_delta != 1, OCT_LOSS_USES_DELTA, "loss.delta", "has no delta");
    check_weights(&recipe->loss_class_weights, data, "loss.class_weights", "classes");
    check_weights(&recipe->loss_positive_weights, data, "loss.positive_weights", "outputs");
}

static void check_metric(const oct_metric *metric, const oct_dataset *data)
{
    if (metric->of == OCT_METRIC_OF_VALUES)
        oct_fail_add(OCT_USAGE,
                     "metrics: %s measures several values of a sample, but the data set has one "
                     "class for each; use another one, such as f1",
                     metric->name);
    if (metric->most > 0 && data->classes > metric->most)
        oct_fail_add(OCT_USAGE,
                     "metrics: %s takes at most %lld classes, but there are %lld; use another one, "
                     "such as f1",
                     metric->name, (long long)metric->most, (long long)data->classes);
}

void oct_task_check(const oct_recipe *recipe, const oct_dataset *data)
{
    check_loss(recipe, data);
    for (int i = 0; i < recipe->metrics.count; i++) {
        const oct_metric *metric = oct_metric_find(recipe->metrics.value[i]);
        if (metric) check_metric(metric, data);
    }
}
