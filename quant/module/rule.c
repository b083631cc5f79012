/* The table of rules, from its list; and the rules of modules that need no file of their own. */
#include "quant/module/rule.h"

#include "core/nn/modules.h"

/* Convolutions, linear layers and batch norms take part in fusions, so prepare makes their quantized
 * forms itself. */
#define OCT_FUSED_RULE(name)                                                                       \
    const oct_quant_rule oct_quant_rule_##name = {.type = &oct_##name##_type,                      \
                                                  .scale = OCT_SCALE_OWN};
OCT_FUSED_RULE(conv2d)
OCT_FUSED_RULE(conv_transpose2d)
OCT_FUSED_RULE(linear)
OCT_FUSED_RULE(batch_norm)

/* These only choose or rearrange values: the float modules do it to codes too. */
#define OCT_REARRANGING_RULE(name)                                                                 \
    const oct_quant_rule oct_quant_rule_##name = {.type = &oct_##name##_type,                      \
                                                  .scale = OCT_SCALE_INPUT};
OCT_REARRANGING_RULE(max_pool)
OCT_REARRANGING_RULE(flatten)
OCT_REARRANGING_RULE(reshape)
OCT_REARRANGING_RULE(squeeze)
OCT_REARRANGING_RULE(identity)

/* The order of codes is that of their values. */
const oct_quant_rule oct_quant_rule_argmax = {.type = &oct_argmax_type, .scale = OCT_SCALE_NONE};

static const oct_quant_rule *const rules[] = {
#define OCT_QUANT_RULE(name) &oct_quant_rule_##name,
#include "quant/module/rule_list.def"
#undef OCT_QUANT_RULE
};

const oct_quant_rule *oct_quant_rule_find(const oct_module_type *type)
{
    for (size_t i = 0; i < OCT_COUNT(rules); i++)
        if (rules[i]->type == type) return rules[i];
    return NULL;
}
