/* Loss and metrics of a recipe, and whether they fit its data. */
#include "launch/session/task.h"

#include <stdio.h>
#include <string.h>

oct_goals oct_task_goals(const oct_recipe *recipe, const oct_dataset *data, const oct_goals *read)
{
    oct_goals goals = *read;
    goals.rows = data->rows;
    goals.ignores = data->goal == OCT_GOAL_MAP || recipe->loss_ignore >= 0;
    goals.ignored = (int32_t)recipe->loss_ignore;
    return goals;
}

bool oct_teacher_wanted(const oct_recipe *recipe)
{
    const oct_loss_kind *loss = oct_loss_find(recipe->loss_kind);
    return loss && loss->uses & OCT_LOSS_USES_TEACHER;
}

bool oct_teacher_is_own(const oct_recipe *recipe)
{
    return strcmp(recipe->distill_teacher, "float") == 0;
}

bool oct_task_learns_labels(const oct_goals *goals)
{
    return goals->labels && !goals->values;
}

bool oct_task_has_classes(const oct_recipe *recipe, const oct_goals *goals)
{
    const oct_loss_kind *loss = oct_loss_find(recipe->loss_kind);
    if (oct_task_learns_labels(goals)) return true;
    return !goals->labels && loss && loss->outputs == OCT_OUTPUTS_SOFTMAX;
}

bool oct_task_measures(const oct_metric *metric, const oct_recipe *recipe, const oct_goals *goals)
{
    if (!goals->labels && !goals->values) return false;
    if (metric->of == OCT_METRIC_OF_CLASSES) return oct_task_has_classes(recipe, goals);
    if (metric->of == OCT_METRIC_OF_VALUES) return goals->values && !goals->labels;
    return !metric->order || goals->rows <= 1;
}

const oct_metric *oct_task_metric(const oct_recipe *recipe, const oct_goals *goals)
{
    const oct_loss_kind *loss = oct_loss_find(recipe->loss_kind);
    if (oct_task_has_classes(recipe, goals)) return &oct_metric_top1;
    if (loss && loss->outputs == OCT_OUTPUTS_SIGMOID && !goals->labels)
        return &oct_metric_multilabel_f1;
    return &oct_metric_mae;
}

const oct_metric *oct_task_step_metric(const oct_recipe *recipe, const oct_goals *goals)
{
    for (int i = 0; i < recipe->metrics.count; i++) {
        const oct_metric *metric = oct_metric_find(recipe->metrics.value[i]);
        if (metric && metric->add && !metric->details &&
            (!goals || oct_task_measures(metric, recipe, goals)))
            return metric;
    }
    return NULL;
}

static void check_key_used(const oct_loss_kind *loss, bool given, unsigned use, const char *key,
                           const char *what)
{
    OCT_PROBLEM_IF(given && !(loss->uses & use), "%s: %s %s; leave the key out", key, loss->name,
                   what);
}

/* Refuses an option of loss_list.def that is not at its default and that this loss does not have. */
static void check_option_used(const oct_loss_kind *loss, double value, double standard,
                              const char *name)
{
    char word[64];
    snprintf(word, sizeof word, " %s ", name);
    OCT_PROBLEM_IF(value != standard && !(loss->keys && strstr(loss->keys, word)),
                   "loss.%s: %s has no %s; leave the key out", name, loss->name, name);
}

static void check_weight_count(const oct_reals *list, const oct_dataset *data, const char *key,
                               const char *what)
{
    OCT_PROBLEM_IF(list->count > 0 && list->count != data->classes,
                   "%s: %d values, but there are %lld %s; give one for each", key, list->count,
                   (long long)data->classes, what);
}

static void check_loss(const oct_recipe *recipe, const oct_dataset *data)
{
    const oct_loss_kind *loss = oct_loss_find(recipe->loss_kind);
    if (!loss) return;
    const bool labels = data->goal == OCT_GOAL_CLASS || data->goal == OCT_GOAL_MAP;
    OCT_PROBLEM_IF(labels && !(loss->takes & OCT_LOSS_OF_LABELS),
                   "loss.kind: %s does not take labels, which are what a data set has; use "
                   "another one, such as cross_entropy",
                   loss->name);
    OCT_PROBLEM_IF(!labels && !(loss->takes & OCT_LOSS_OF_VALUES),
                   "loss.kind: %s does not take values, which data.goal asks for; use another "
                   "one, such as mse",
                   loss->name);
    OCT_PROBLEM_IF(data->goal == OCT_GOAL_INPUT && loss->outputs != OCT_OUTPUTS_PLAIN,
                   "loss.kind: %s takes outputs as logits, but data.goal: input wants the input "
                   "itself; use mse, mae or huber",
                   loss->name);
    OCT_PROBLEM_IF(data->goal == OCT_GOAL_CLASS && recipe->loss_ignore >= data->classes,
                   "loss.ignore: %lld is no label of the data; those are 0 to %lld",
                   (long long)recipe->loss_ignore, (long long)data->classes - 1);
    OCT_PROBLEM_IF(!labels && recipe->loss_ignore >= 0,
                   "loss.ignore: data.goal: values and input have no labels; leave the key out");
    OCT_PROBLEM_IF(
        recipe->loss_ignore >= 0 && recipe->data_mixup + recipe->data_cutmix > 0,
        "loss.ignore: data.mixup and data.cutmix blend labels, so that ignored ones would be "
        "learned, too; leave one of them out, or take those samples out of the data");
    check_key_used(loss, recipe->distill_weight != 0.5 || recipe->distill_temperature != 4,
                   OCT_LOSS_USES_TEACHER, "distill.weight, distill.temperature", "asks no teacher");
    check_key_used(loss, recipe->loss_label_smoothing > 0, OCT_LOSS_USES_SMOOTHING,
                   "loss.label_smoothing", "smooths no labels");
    check_key_used(loss, recipe->loss_class_weights.count > 0, OCT_LOSS_USES_CLASS_WEIGHTS,
                   "loss.class_weights", "has no weights of classes");
    check_key_used(loss, recipe->loss_positive_weights.count > 0, OCT_LOSS_USES_POSITIVE_WEIGHTS,
                   "loss.positive_weights", "has no weights of positives");
#define OCT_LOSS_KEY(name, def, min, max, same, help)                                              \
    check_option_used(loss, recipe->loss_##name, oct_strtod(def, NULL), #name);
#include "core/op/loss_list.def"
    check_weight_count(&recipe->loss_class_weights, data, "loss.class_weights", "classes");
    check_weight_count(&recipe->loss_positive_weights, data, "loss.positive_weights", "outputs");
}

static void check_teacher(const oct_recipe *recipe)
{
    const oct_loss_kind *loss = oct_loss_find(recipe->loss_kind);
    if (!loss) return;
    if (!oct_teacher_wanted(recipe)) {
        check_key_used(loss, !oct_teacher_is_own(recipe), OCT_LOSS_USES_TEACHER, "distill.teacher",
                       "asks no teacher, which loss.kind: distillation does");
        return;
    }
    OCT_PROBLEM_IF(oct_teacher_is_own(recipe) && recipe->float_epochs == 0 && !recipe->init[0] &&
                       !recipe->model_onnx[0],
                   "distill.teacher: float is the end of the float phase, which float.epochs: 0 "
                   "leaves out; name a checkpoint or a run folder, or start from one by init");
}

static void check_metric(const oct_metric *metric, const oct_recipe *recipe,
                         const oct_dataset *data)
{
    static const char *const wants[] = {
        [OCT_METRIC_OF_ANY] = "sorts samples, not pixels",
        [OCT_METRIC_OF_CLASSES] = "needs a class for each sample",
        [OCT_METRIC_OF_VALUES] = "needs several values for each sample",
    };
    /* What rows of the data set have: only whether there is something counts. */
    static const int32_t label;
    static const float value;
    const bool values = data->goal == OCT_GOAL_VALUES || data->goal == OCT_GOAL_INPUT;
    const oct_goals row = {.labels = values && !data->labels ? NULL : &label,
                           .values = values ? &value : NULL};
    const oct_goals goals = oct_task_goals(recipe, data, &row);
    OCT_PROBLEM_IF(!oct_task_measures(metric, recipe, &goals),
                   "metrics: %s %s, but data.goal is %s and loss.kind %s; use another one, such "
                   "as %s",
                   metric->name, wants[metric->of],
                   oct_registry_name(&oct_goal_kind_table, data->goal), recipe->loss_kind,
                   metric->of == OCT_METRIC_OF_ANY ? "miou"
                                                   : oct_task_metric(recipe, &goals)->name);
    OCT_PROBLEM_IF(metric->most > 0 && data->classes > metric->most,
                   "metrics: %s takes at most %lld classes, but there are %lld; use another one, "
                   "such as f1",
                   metric->name, (long long)metric->most, (long long)data->classes);
}

void oct_task_check(const oct_recipe *recipe, const oct_dataset *data)
{
    if (data->goal == OCT_GOAL_NONE) {
        OCT_PROBLEM_IF(recipe->float_epochs > 0 || recipe->qat_epochs > 0,
                       "data.goal: none has nothing to learn from, so it is for `octet "
                       "calibrate`, which trains no epoch; give labels to train with");
        return;
    }
    check_loss(recipe, data);
    check_teacher(recipe);
    for (int i = 0; i < recipe->metrics.count; i++) {
        const oct_metric *metric = oct_metric_find(recipe->metrics.value[i]);
        if (metric) check_metric(metric, recipe, data);
    }
}
