/* What becomes of a float module on quantized values: one rule a type, listed in rule_list.def. */
#pragma once

#include "core/nn/module.h"
#include "core/op/ops.h"
#include "quant/target/target.h"

/* Where the scale of an output comes from. */
typedef enum oct_output_scale {
    OCT_SCALE_OWN,    /* its own fake-quant */
    OCT_SCALE_INPUT,  /* input 0's: the same values or averages of them */
    OCT_SCALE_SHARED, /* one for output and all inputs together, where the graph is known */
    OCT_SCALE_FIXED,  /* 1/256 (8 bits), 1/65536: values in [0, 1] */
    OCT_SCALE_NONE,   /* made of codes, but none itself: class numbers */
} oct_output_scale;

typedef struct oct_quant_rule {
    const oct_module_type *type; /* of the float module */
    oct_output_scale scale;
    bool non_negative; /* its values are >= 0; of an elementwise function that says it itself: */
    const oct_elementwise *elementwise; /* NULL: none */
    /* Of one that follows its input: whether its arguments put values below 0 among those that may have none;
     * NULL: no. */
    bool (*makes_negative)(const oct_op_args *args);
    /* The type of the quantized module, which begins with oct_quantized; NULL: the float module itself works on codes. */
    const oct_module_type *made;
    /* Completes the quantized module, which has the arguments of the float one; may take that over (NULL afterwards), or
     * set another type of the same struct. NULL: there is nothing more. */
    oct_status (*complete)(oct_module *made, oct_module **old);
    /* Of a module with parameters: makes that of a further call, which uses those of the first call's. NULL: it has
     * none. */
    oct_status (*create_again)(oct_module **made, const oct_module *first);
    /* Writes the step of such a float module; any_domain: of float inputs too. NULL: it has none. */
    oct_status (*emit)(struct oct_emitter *emitter);
    bool any_domain;
} oct_quant_rule;

#define OCT_QUANT_RULE(name) extern const oct_quant_rule oct_quant_rule_##name;
#include "quant/module/rule_list.def"
#undef OCT_QUANT_RULE

static inline bool oct_quant_rule_is_non_negative(const oct_quant_rule *rule)
{
    return rule->elementwise ? rule->elementwise->non_negative : rule->non_negative;
}
/* NULL: the type has no quantized form. */
const oct_quant_rule *oct_quant_rule_find(const oct_module_type *type);
/* Makes the quantized module for a target, without a fake-quant yet, in place of *old, which it takes over (NULL
 * afterwards, also on failure). */
oct_status oct_quant_rule_make(const oct_quant_rule *rule, const oct_target *target,
                               oct_module **made, oct_module **old);
