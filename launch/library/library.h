/* Training for programs of others (octet/train.h): the trainer of the octet program, on arrays in memory and without a run
 * folder. */
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

/* training.c, for model.c */

/* Collective, at the start of each call: takes the samples at hand, unless there are none (NULL); fails on all ranks where
 * one was given something wrong, or others numbers of samples, a or b than the others. */
oct_status oct_training_begin(oct_training *t, const oct_data *samples, oct_status mine, double a,
                              double b);
/* Checks epochs and peak learning rate of a call that learns: OCT_USAGE. */
oct_status oct_training_check_learning(double epochs, double lr);
/* Takes the network through its phases up to this one. */
oct_status oct_training_change(oct_training *t, oct_phase phase);
