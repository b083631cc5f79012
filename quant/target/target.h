/* What an accelerator allows and how it computes: Horizon's march. Bound at prepare; training,
 * evaluation and the deployed model follow its rules. Adding one: a file in this folder and a line in
 * target_list.def. */
#pragma once

#include "core/tensor/op_args.h"
#include "core/base/registry.h"
#include "quant/rounding/rounding.h"

typedef enum oct_target_id {
#define OCT_TARGET(id, file) OCT_TARGET_##id,
#include "quant/target/target_list.def"
#undef OCT_TARGET
} oct_target_id;

typedef struct oct_target {
    const char *name, *help;
    oct_requantizer requantizer;
    bool unsigned_codes; /* zero_point 0 where values are >= 0; otherwise always the middle */
    bool wide_codes;     /* 16-bit activations */
    bool zero_points;    /* any zero_point that a fake-quant chooses */
    /* The fake-quant that "affine" is here (module/fake_quant_kind_list.def); NULL: affine itself. */
    const char *affine;
    /* Codes of floats are round_half_even(x / scale); otherwise round_half_even(x * (1 / scale)), which may
     * differ where a quotient is next to the middle of two codes. */
    bool quotient;
    /* A product of codes, times the ratio of scales, gets the zero_point before it is rounded, in float. */
    bool offset_first;
    /* Ratios of scales are floats, computed from left to right, and a sum's multipliers have 21 bits; otherwise
     * ratios are doubles and the multipliers have 20. */
    bool float_ratios;
    /* Averages are convolutions whose weights are fl(1 / positions); otherwise a sum is divided. */
    bool pools_convolve;
    /* Averages are those of the codes as signed bytes (the zero_point counts), halves away from 0. */
    bool pools_codes;
    /* Averages round halves up; otherwise to even. */
    bool pools_half_up;
    /* Names of fusions (quant/prepare/fusion_list.def) and quantized ops (rule_list.def) that it cannot
     * run; NULL ends each list. A fusion that is missing falls apart into its members. */
    const char *const *no_fusions, *const *no_ops;
    /* Why it cannot resize linearly, and not average over fewer positions at the edges; NULL: it can. */
    const char *no_linear_resize, *no_uneven_average;
    /* Where only some averages over fewer positions are such: says why not this one; NULL: it can. */
    const char *(*refuses_uneven_average)(const oct_pool_geometry *g);
    /* Names of quantized ops whose inputs and output must have one scale. */
    const char *const *one_scale;
    /* Layers that may hand over an unquantized result; NULL: all. */
    const char *const *float_outputs;
    /* Layers whose weights have one scale, whatever their fake-quant is; the others have one per output channel
     * unless their fake-quant says otherwise. NULL: none. */
    const char *const *per_tensor;
    /* Functions whose codes are those of oct_fixed_function_table, sigmoid and tanh, where they have the output of
     * that, which prepare gives them. NULL: none; they are tables of the real function. */
    const char *const *fixed_functions;
    /* Of what a layer makes, and of a sum or difference of two values. */
    int64_t max_channels;
    /* For people (`octet targets`): codes and scales, how a sum becomes a code, what stays float or is an error
     * beyond what the lists above say, where its models run, and what shows that they compute the same there. */
    const char *codes, *rounding, *refused, *runs, *proof;
} oct_target;

/* The fusions that add something to a layer before it is rounded, for targets that have none of them. */
extern const char *const oct_adding_fusions[];
/* Says why no kernel of TFLite averages so (oct_target.refuses_uneven_average). */
const char *oct_tflite_refuses_average(const oct_pool_geometry *g);

#define OCT_TARGET(id, file) extern const oct_target oct_target_##file;
#include "quant/target/target_list.def"
#undef OCT_TARGET

extern const oct_registry oct_target_id_table;

const oct_target *oct_target_find(const char *name); /* NULL */
const oct_target *oct_target_at(size_t i);           /* of an oct_target_id */
static inline bool oct_target_fuses(const oct_target *target, const char *fusion)
{
    return !oct_list_has(target->no_fusions, fusion);
}
/* Says why the target cannot run a quantized op with these arguments though it runs others; NULL: it can. */
const char *oct_target_refuses(const oct_target *target, const char *op, const oct_op_args *args);
