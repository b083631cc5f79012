/* What an accelerator allows, bound at prepare. One target so far; the table is where others go. */
#pragma once

#include "core/base/status.h"

#include <stdint.h>

typedef struct oct_target {
    const char *name, *help;
    bool fused_add_relu, fused_relu6; /* clamp bounds in the epilogue */
    int64_t max_channels;
} oct_target;

#define OCT_TARGET(id, file) extern const oct_target oct_target_##file;
#include "quant/target/target_list.def"
#undef OCT_TARGET

const oct_target *oct_target_find(const char *name); /* NULL */
size_t oct_target_count(void);
const oct_target *oct_target_at(size_t i);
