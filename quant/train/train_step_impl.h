/* The sources of the training step share the forward of a batch that is learned from, and its audit. */
#pragma once

#include "quant/train/train_step.h"

/* train_step.c: the loss of these leaves of a batch, for a backward to start from; NULL with the context failed. */
oct_tensor *oct_step_loss(oct_train_step *s, const oct_batch *batch, const oct_leaves *leaves);

/* step_audit.c: around the forward and backward of each batch, which are watched where the audit is of that batch. */
void oct_step_audit_open(oct_train_step *s, const oct_batch *batch);
void oct_step_audit_close(oct_train_step *s);
