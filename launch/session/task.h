/* A task is what a recipe has a model learn from a data set: the loss with its options, and what is measured. */
#pragma once

#include "core/op/loss.h"
#include "io/recipe/recipe.h"

/* Adds a problem of a recipe to the record where something is wrong. */
#define OCT_PROBLEM_IF(wrong, ...)                                                                 \
    do {                                                                                           \
        if (wrong) (void)oct_fail_add(OCT_USAGE, __VA_ARGS__);                                     \
    } while (0)

/* Completes the goals that a loader has read: how many rows a sample has, and which label is ignored. */
oct_goals oct_task_goals(const oct_recipe *recipe, const oct_dataset *data, const oct_goals *read);
/* The labels of samples that have values too only say which of them are unlike the training data. */
bool oct_task_learns_labels(const oct_goals *goals);
/* Rows have a class, and outputs state how likely each is, so top1 and its kind are meaningful. */
bool oct_task_has_classes(const oct_recipe *recipe, const oct_goals *goals);
/* Returns a metric that can be measured on any data set like this one, to name in a message. */
const oct_metric *oct_task_metric(const oct_recipe *recipe, const oct_goals *goals);
/* Whether a metric can be measured on rows with such goals. */
bool oct_task_measures(const oct_metric *metric, const oct_recipe *recipe, const oct_goals *goals);
/* Finds what training steps measure: the first metric that is one figure of a batch, on rows with such goals (NULL: on
 * any). NULL: there is none. */
const oct_metric *oct_task_step_metric(const oct_recipe *recipe, const oct_goals *goals);
/* Adds a problem for each key of loss and metrics that does not fit the others or the data. */
void oct_task_check(const oct_recipe *recipe, const oct_dataset *data);
/* The loss of the recipe compares with the outputs of a teacher. */
bool oct_teacher_wanted(const oct_recipe *recipe);
/* The teacher is the model itself, at the end of its float phase. */
bool oct_teacher_is_own(const oct_recipe *recipe);
