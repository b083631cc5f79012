/* What a training step holds (step_state.c), for the calls that make the steps (train_step.c). */
#pragma once

#include "quant/train/train_step.h"

/* OCT_USAGE where the batch does not fit the loss, or the model has changed since its parameters were bound. */
oct_status oct_step_check_batch(const oct_train_step *s, const oct_batch *batch);
/* The same checks, and OCT_USAGE where the batch is too large to learn from or another step has the parameters. */
oct_status oct_step_check_learning(const oct_train_step *s, const oct_batch *batch);

/* Exchanges the state of training and its copy from before the step: that puts the state back; done twice, all is as it was. */
void oct_step_swap_state(oct_train_step *s);

/* Collective: the control reduction. Afterwards all ranks know the same ranges and flags, and all fail where one has a
 * gradient that is not finite. bad: index of this rank's first parameter with such a gradient; -1: none. */
oct_status oct_step_reduce_control(oct_train_step *s, int64_t bad);
/* Collective: takes the maximum over all ranks of the caller's flags alone, for a step that is skipped. */
oct_status oct_step_reduce_flags(oct_train_step *s);
/* Moves the ranges by what the control reduction has brought; learned: and the gates of int8 gradients. */
oct_status oct_step_update_observers(oct_train_step *s, bool learned);
