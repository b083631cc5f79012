/* The table of rules, from its list; and the rules of modules that need no file of their own. */
#include "quant/module/rule.h"

#include "core/nn/modules.h"
#include "quant/module/emit.h"
#include "quant/module/quant_modules.h"

#include <string.h>

/* Convolutions, linear layers and batch norms take part in fusions, so prepare makes their quantized
 * forms itself. */
#define OCT_FUSED_RULE(name)                                                                       \
    const oct_quant_rule oct_quant_rule_##name = {.type = &oct_##name##_type,                      \
                                                  .scale = OCT_SCALE_OWN};
OCT_FUSED_RULE(conv2d)
OCT_FUSED_RULE(conv_transpose2d)
OCT_FUSED_RULE(linear)
OCT_FUSED_RULE(batch_norm)

/* The float modules of the others do to codes what they do to values. */

static oct_status emit_max_pool(oct_emitter *e)
{
    oct_pool_geometry g;
    const oct_value in = *oct_emit_input(e, 0);
    oct_args_get(&oct_max_pool_arg_list, &e->node->args, &g);
    oct_step *step;
    OCT_TRY(oct_emit_step(e, OCT_STEP_MAX_POOL, &step));
    OCT_TRY(oct_emit_output(e, step, in.dtype, in.q));
    step->pool.shape = oct_pool_shape_of(in.h, in.w, in.c, g);
    step->pool.ceil = g.ceil;
    return OCT_OK;
}

static oct_status emit_argmax(oct_emitter *e)
{
    oct_step *step;
    OCT_TRY(oct_emit_step(e, OCT_STEP_ARGMAX, &step));
    return oct_emit_output(e, step, OCT_S32, (oct_qparams){0});
}

static oct_status emit_move(oct_emitter *e)
{
    const oct_value in = *oct_emit_input(e, 0);
    oct_step *step;
    OCT_TRY(oct_emit_step(e, OCT_STEP_MOVE, &step));
    oct_args_get(&oct_move_arg_list, &e->node->args, &step->move);
    return oct_emit_output(e, step, in.dtype, in.q);
}

const oct_quant_rule oct_quant_rule_move = {
    .type = &oct_move_type, .scale = OCT_SCALE_INPUT, .any_domain = true, .emit = emit_move};

/* These hand on the values as they lie. */
#define OCT_REARRANGING_RULE(name)                                                                 \
    const oct_quant_rule oct_quant_rule_##name = {.type = &oct_##name##_type,                      \
                                                  .scale = OCT_SCALE_INPUT,                        \
                                                  .any_domain = true,                              \
                                                  .emit = oct_emit_reshape};
OCT_REARRANGING_RULE(flatten)
OCT_REARRANGING_RULE(reshape)
OCT_REARRANGING_RULE(squeeze)
OCT_REARRANGING_RULE(identity)
/* In evaluation it is one. */
OCT_REARRANGING_RULE(dropout)

const oct_quant_rule oct_quant_rule_max_pool = {
    .type = &oct_max_pool_type, .scale = OCT_SCALE_INPUT, .emit = emit_max_pool};
/* The order of codes is that of their values. */
const oct_quant_rule oct_quant_rule_argmax = {
    .type = &oct_argmax_type, .scale = OCT_SCALE_NONE, .any_domain = true, .emit = emit_argmax};

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

oct_status oct_quant_rule_make(const oct_quant_rule *rule, const oct_target *target,
                               oct_module **made, oct_module **old)
{
    const oct_module_type *from = rule->type, *to = rule->made;
    oct_status status = oct_module_alloc(made, to, to->size);
    if (status == OCT_OK) {
        ((oct_quantized *)*made)->target = target;
        if (to->args_at)
            memcpy((char *)*made + to->args_at, (char *)*old + from->args_at, from->args->bytes);
        if (rule->complete) status = oct_module_made(made, rule->complete(*made, old));
    }
    oct_module_destroy(old);
    return status;
}
