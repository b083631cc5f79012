/* Between the files of the trainer. */
#pragma once

#include "launch/run/trainer.h"

/* The model's forward over the batch at hand without a tape, logits into trainer->logits. Not done: the
 * model can only run on the batch in one piece. */
oct_status oct_calibrate_logits(oct_trainer *trainer, const oct_leaves *leaves,
                                bool *done) OCT_NODISCARD;
