/* The cross-entropy of class numbers, as many tests need it. */
#pragma once

#include "core/op/loss.h"

/* The loss oct_loss_cross_entropy of logits (N, K) and N labels in [0, K), as oct_loss_apply. */
static inline oct_tensor *oct_cross_entropy(oct_context *cx, oct_tensor *logits,
                                            const int32_t *labels, float smoothing,
                                            oct_loss *result)
{
    const oct_loss_spec spec = {.kind = &oct_loss_cross_entropy,
                                .options = {.smoothing = (double)smoothing}};
    return oct_loss_apply(cx, &spec, logits, &(oct_goals){.labels = labels}, result);
}
