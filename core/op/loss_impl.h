/* A loss as an op of its own: for those that take their goals from a tensor of the forward. */
#pragma once

#include "core/op/loss.h"

typedef struct oct_loss_call {
    const char *op; /* name of the op, for messages and traces */
    const oct_loss_spec *spec;
    oct_goals goals;    /* must last as long as the step */
    int64_t n;          /* outputs of a row */
    const float *given; /* the labels as they came, if as floats; for messages */
} oct_loss_call;

/* Whether x is f32 (N, K) of the batch at hand; otherwise the context has failed. */
bool oct_loss_takes(oct_context *cx, const char *op, const oct_tensor *x);
/* x[0]: outputs; x[1], if there: where the goals come from. */
oct_tensor *oct_loss_record(oct_context *cx, const oct_loss_call *call, oct_tensor *const *x, int n,
                            oct_loss *result);
