/* TensorBoard's view of a run: what metrics.jsonl gets, as event files in the run folder (log.tensorboard).
 *
 * A number of a record becomes a scalar of the same name: train/loss of a `step` record, test/accuracy of an
 * `eval` record, scale/LAYER of a `scales` record. Beside them are histograms of the weights, samples of
 * the test data, and the recipe as hyperparameters.
 * Used by rank 0 only; with a file that is not open all of these do nothing.
 */
#pragma once

#include "core/nn/module.h"
#include "io/tensorboard/event_file.h"
#include "io/recipe/recipe.h"

#include <jansson.h>

/* Opens the run's next event file, which takes over after `step` steps. */
oct_status oct_tensorboard_open(oct_event_file *file, const oct_recipe *recipe,
                                int64_t step) OCT_NODISCARD;
void oct_tensorboard_record(oct_event_file *file, json_t *record);
/* Some samples of the data, where they are pictures of a size to look at. */
void oct_tensorboard_samples(oct_event_file *file, const oct_dataset *data);
/* A histogram of each weight of the model. */
void oct_tensorboard_weights(oct_event_file *file, oct_module *model, int64_t step);
