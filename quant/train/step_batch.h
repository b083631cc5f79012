/* What one batch computes. train_step.c makes the updates of it. */
#pragma once

#include "quant/train/train_step.h"

/* OCT_USAGE where the batch does not fit the loss, or the model has changed since its parameters were bound. */
oct_status oct_step_batch_check(const oct_train_step *s, const oct_batch *b) OCT_NODISCARD;
/* Collective. Makes the gradients of a batch, summed over all ranks, and adds its figures to s->sums. The batch of the
 * audit (s->audit) is recorded. */
oct_status oct_step_batch_learn(oct_train_step *s, const oct_batch *batch) OCT_NODISCARD;
/* Collective. Runs the forward alone; y, n: as in oct_train_step_forward and oct_train_step_observe. */
oct_status oct_step_batch_forward(oct_train_step *s, const oct_batch *batch, void *y) OCT_NODISCARD;
oct_status oct_step_batch_observe(oct_train_step *s, const oct_batch *batch, float *y,
                                  int64_t n) OCT_NODISCARD;
