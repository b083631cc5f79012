/* What an accelerator allows and how it computes: Horizon's march. Bound at prepare; training,
 * evaluation and the deployed model follow its rules. Adding one: a file in this folder and a line in
 * target_list.def. */
#pragma once

#include "core/base/registry.h"

typedef enum oct_target_id {
#define OCT_TARGET(id, file) OCT_TARGET_##id,
#include "quant/target/target_list.def"
#undef OCT_TARGET
} oct_target_id;

typedef enum oct_requantizer {
    OCT_REQUANT_FLOAT, /* round_half_even((float)acc * multiplier) */
    OCT_REQUANT_SHIFT, /* (acc + 2^(shift-1)) >> shift: scales are powers of two */
} oct_requantizer;

typedef struct oct_target {
    const char *name, *help;
    oct_requantizer requantizer;
    bool unsigned_codes; /* zero_point 0 where values are >= 0; otherwise always the middle */
    bool wide_codes;     /* 16-bit activations */
    bool zero_points;    /* any zero_point that a fake-quant chooses */
    /* Names of fusions (pass/prepare/fusion_list.def) and quantized ops (rule_list.def) that it cannot
     * run; NULL ends each list. A fusion that is missing falls apart into its members. */
    const char *const *no_fusions, *const *no_ops;
    int64_t max_channels;
} oct_target;

#define OCT_TARGET(id, file) extern const oct_target oct_target_##file;
#include "quant/target/target_list.def"
#undef OCT_TARGET

extern const oct_registry oct_target_id_table;

const oct_target *oct_target_find(const char *name); /* NULL */
const oct_target *oct_target_at(size_t i);           /* of an oct_target_id */
bool oct_target_fuses(const oct_target *target, const char *fusion);
bool oct_target_runs(const oct_target *target, const char *op);
