/* Training for programs of others (octet/train.h): the trainer of the octet program, on arrays in memory and without a run
 * folder. What the files here share, from the bottom to the top: data.c, training.c, model.c. */
#pragma once

#include "launch/train/trainer.h"

#include <octet/train.h>

/* Refuses NULL. */
#define OCT_NEED(given) OCT_CHECK(given, OCT_USAGE, "%s: an argument is missing (NULL)", __func__)

struct oct_training {
    oct_recipe recipe;    /* the settings, and what each call adds */
    const oct_comm *comm; /* held; may be NULL */
    const oct_collective *group;
    oct_dataset data; /* what is at hand, borrowed; between calls only its shapes count */
    oct_trainer trainer;
    int64_t outputs,
        row; /* numbers that the network returns for a sample, and those of a row; 0: a loss */
    bool class_numbers; /* they are numbers of classes */
    bool calibrated, frozen;
    bool broken; /* a change of the network has failed halfway */
};

/* data.c */

/* Sets the shapes of samples with these inputs. */
oct_status oct_dataset_of_dims(oct_dataset *shapes, const oct_dims *inputs);
/* Refuses threads that do not round to nearest: OCT_USAGE. */
oct_status oct_check_threads(void);
/* Finds what a network returns for a sample, by a forward of zeros. */
oct_status oct_find_outputs(oct_module *root, const oct_dataset *shapes, int64_t *outputs,
                            int64_t *row, bool *class_numbers);
/* Points at samples, which are to have the shapes in *data and these outputs. */
oct_status oct_dataset_point(oct_dataset *data, const oct_data *samples, int64_t outputs,
                             int64_t row);

/* training.c */

/* Reads the settings into a recipe, on top of a recipe's defaults. */
oct_status oct_settings_read(oct_recipe *recipe, const oct_training_options *options);
/* Collective, at the start of each call: takes the samples at hand, unless there are none (NULL); fails on all ranks where
 * one was given something wrong, or others numbers of samples, a or b than the others. */
oct_status oct_training_begin(oct_training *t, const oct_data *samples, oct_status mine, double a,
                              double b);
/* Takes the network through its phases up to this one. */
oct_status oct_training_change(oct_training *t, oct_phase phase);
