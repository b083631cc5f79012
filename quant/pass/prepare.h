/* Float model -> QAT model, in place: trace, fuse, swap for QAT modules, place one fake-quant per
 * activation tensor, check. The user's own forward keeps running; modules that were fused away become
 * identity. */
#pragma once

#include "core/base/text.h"
#include "core/graph/trace.h"
#include "quant/module/quant_modules.h"
#include "quant/target/target.h"

typedef struct oct_qconfig {
    const oct_observer *observer;
    float averaging;
    bool current_scales; /* observe, then quantize; otherwise delayed scales */
    bool
        float_output; /* the last conv or linear before a DeQuantStub hands over its float result */
    const oct_target *target;
} oct_qconfig;

/* input: shape (1, H, W, C) of an example. On OCT_PREPARE the record holds every problem with the
 * module's path and the remedy; the model must then be thrown away. report (may be NULL) receives
 * the check report: one line per module with its fusion and quantizer. */
oct_status oct_prepare(oct_module **root, oct_shape input, const oct_qconfig *qconfig,
                       oct_text *report) OCT_NODISCARD;

/* Live batch norm -> running statistics even in training, for all QAT modules below root. */
void oct_freeze_batch_norm(oct_module *root, bool frozen);
