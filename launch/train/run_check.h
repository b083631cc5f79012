/* What is refused before a run begins. */
#pragma once

#include "io/dataset/dataset.h"
#include "io/recipe/recipe.h"

/* Does everything exist that the recipe names: model, data set format, observer, fake-quant, target?
 * OCT_USAGE with every name that does not. Asked after the loading of plug-ins. */
oct_status oct_check_names(const oct_recipe *recipe);
/* Adds a problem to the record for every metric that does not exist. */
void oct_check_metrics(const oct_texts *metrics);
/* Do recipe, data and number of ranks fit? OCT_USAGE with every problem. Names of models, observers
 * and targets are checked too. Any process can ask; nothing is built. What fails when no checkpoint can be written by
 * the HDF5 library here: OCT_RESOURCE. */
oct_status oct_run_check(const oct_recipe *recipe, const oct_dataset *train_data,
                         const oct_dataset *test_data, int ranks);
/* Adds a problem for the first value that is no probability (0 to 1) where the loss takes outputs as logits of
 * probabilities. part: "training", "test". */
void oct_check_values(const oct_recipe *recipe, const oct_dataset *data, const char *part);
/* Does every rank get a leaf, with that many samples to train on? OCT_USAGE if not. */
oct_status oct_check_ranks(const oct_recipe *recipe, int64_t samples, int ranks);
/* Do files of that many bytes fit where the recipe's output is? OCT_RESOURCE if not. */
oct_status oct_check_disk(const oct_recipe *recipe, int64_t bytes);
/* Is there room for one more checkpoint of that many bytes (0: of the size of the newest one)? OCT_RESOURCE if not.
 * Room for that one, but not for all that are kept, is a warning, where bytes are given. */
oct_status oct_check_room(const oct_recipe *recipe, int64_t bytes);
/* Can the batch norms of the float model be trained on this data and run on the recipe's target? OCT_USAGE if not. */
oct_status oct_check_norms(const oct_recipe *recipe, const oct_dataset *train_data,
                           oct_module *model);
/* Prepares and converts an untrained copy of the model, so that a run does not fail after its float phase.
 * report as for oct_prepare; exports: the names
 * of formats that the int8 model has a form in, with commas between them, then a line for each other one with its reason.
 * OCT_PREPARE with the reason of each that export.formats demands. */
oct_status oct_try_deploy(const oct_recipe *recipe, const oct_dataset *data, oct_text *report,
                          oct_text *exports);
