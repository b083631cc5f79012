/* The forward of a calibration step, a few samples at a time: calibration runs the float model, whose
 * activations would need more memory than all of the training that follows. */
#pragma once

#include "launch/evaluate/forward.h"

typedef struct oct_calibration {
    oct_forward forward; /* begun by the caller */
    oct_shape sample;    /* of the input, in a batch of 1 */
    float *x;            /* of this rank's samples */
    int64_t outputs;     /* of a sample */
    float *rows;         /* they go here */
    bool whole;          /* the caller has learned that the model takes batches in one piece only */
} oct_calibration;

/* Runs the forward and fills the rows. Not *done: the model sums over the batch, or its outputs are no such rows, so it can only run on the
 * batch in one piece; what observers have noted is to be forgotten then. */
oct_status oct_calibrate(oct_calibration *calibration, const oct_leaves *leaves,
                         bool *done) OCT_NODISCARD;
