/* A task is what a recipe has a model learn from a data set: the loss with its options, and what is measured. */
#pragma once

#include "core/op/loss.h"
#include "io/recipe.h"

/* The loss of a training step, whose options point into the recipe. */
oct_loss_spec oct_task_loss(const oct_recipe *recipe);
/* Adds a problem for each key of loss and metrics that does not fit the others or the data. */
void oct_task_check(const oct_recipe *recipe, const oct_dataset *data);
