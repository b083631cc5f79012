/* The modules of a prepared model: they are made from the float ones and put into the tree. */
#include "core/base/mem.h"
#include "quant/prepare/apply_impl.h"

#include <stdio.h>

oct_apply_slot *oct_apply_slot_of(const oct_apply *w, const oct_module *called)
{
    for (size_t i = 0; i < w->num_slots; i++)
        if (w->slots[i].was == called) return &w->slots[i];
    return NULL;
}

/* Whether the called module itself goes on running at this node. */
static bool stays(const oct_prepare_plan *plan, int64_t node)
{
    const oct_prepare_node *p = &plan->nodes[node];
    if (!plan->nodes[p->runs_at].quantized) return true;
    if (p->role == OCT_ROLE_QUANT_STUB || p->role == OCT_ROLE_FUSED) return true;
    return p->runs_at == node && !p->fusion && p->role == OCT_ROLE_RULE && !p->rule->create;
}

oct_status oct_apply_find_slots(oct_apply *w)
{
    const oct_graph *g = w->graph;
    OCT_TRY(oct_alloc(&w->slots, g->num_nodes, sizeof *w->slots));
    for (size_t i = 0; i < g->num_nodes; i++) {
        oct_module *called = g->nodes[i].called;
        if (!called) continue;
        oct_apply_slot *s = oct_apply_slot_of(w, called);
        if (!s) {
            s = &w->slots[w->num_slots++];
            *s = (oct_apply_slot){.was = called, .now = called};
        }
        s->keep |= stays(w->plan, (int64_t)i);
    }
    return OCT_OK;
}

oct_status oct_apply_take_out(oct_apply *w, oct_apply_slot *slot, oct_module **module)
{
    OCT_ASSERT(slot->now == slot->was && !slot->keep);
    oct_module *identity = NULL;
    OCT_TRY(oct_replace_by_identity(w->plan->root, slot->was, &identity));
    slot->now = identity;
    *module = slot->was;
    return OCT_OK;
}

oct_status oct_apply_insert(oct_apply *w, int64_t node, oct_module **made)
{
    oct_prepare_node *p = &w->plan->nodes[node];
    const oct_graph_node *n = &w->graph->nodes[node];
    oct_apply_slot *s = n->called ? oct_apply_slot_of(w, n->called) : NULL;
    char name[64];
    w->made[node] = *made;
    if (s && !s->keep && !s->taken) {
        oct_module *old = s->now;
        s->taken = true;
        OCT_TRY(oct_replace_with_hooks(w->plan->root, old, *made));
        s->now = *made;
        oct_module_destroy(&old);
        return OCT_OK;
    }
    if (p->number < 0) /* a first call, whose slot other calls need */
        p->number = oct_prepare_next_number(w->plan, (size_t)node, w->graph->num_nodes);
    snprintf(name, sizeof name, "_generated_%s_%d", n->op, p->number);
    return oct_graph_add_named(w->graph, p->parent, name, made);
}

/* Finds an earlier node whose first member calls the same module, or OCT_NO_INDEX. */
static int64_t earlier_call(const oct_apply *w, int64_t at)
{
    const oct_module *called = w->graph->nodes[w->plan->nodes[at].member[0]].called;
    for (int64_t i = 0; called && i < at; i++)
        if (oct_prepare_runs_here(w->plan, i) && w->made[i] &&
            w->graph->nodes[w->plan->nodes[i].member[0]].called == called)
            return i;
    return OCT_NO_INDEX;
}

/* Takes the fused batch norm out; folds it into the layer at once when it is not to stay live. */
static oct_status take_norm(oct_apply *w, int64_t at, oct_module *layer, oct_module **norm)
{
    int64_t node = oct_prepare_member(w->plan, at, OCT_MEMBER_BN);
    if (node < 0) return OCT_OK;
    OCT_TRY(oct_apply_take_out(w, oct_apply_slot_of(w, w->graph->nodes[node].called), norm));
    if (!w->plan->options->fold_batch_norm) return OCT_OK;
    oct_status status = oct_fold_float(layer, (const oct_batch_norm_module *)*norm);
    oct_module_destroy(norm);
    return status;
}

static oct_activation activation_at(const oct_prepare_node *p)
{
    return p->fusion ? oct_fusion_activation(p->fusion) : OCT_ACT_NONE;
}

static oct_status make_conv(oct_apply *w, int64_t at, oct_module **made)
{
    const oct_prepare_node *p = &w->plan->nodes[at];
    bool add = p->fusion && oct_fusion_has(p->fusion, OCT_MEMBER_ADD);
    int64_t earlier = earlier_call(w, at);
    if (earlier >= 0)
        return oct_qat_conv_create_shared(made, (const oct_qat_conv *)w->made[earlier], add,
                                          activation_at(p));
    oct_module *layer = NULL, *norm = NULL;
    OCT_TRY(
        oct_apply_take_out(w, oct_apply_slot_of(w, w->graph->nodes[p->member[0]].called), &layer));
    oct_status status = take_norm(w, at, layer, &norm);
    if (status == OCT_OK) return oct_qat_conv_create(made, &layer, &norm, add, activation_at(p));
    oct_module_destroy(&layer);
    oct_module_destroy(&norm);
    return status;
}

static oct_status make_norm(oct_apply *w, int64_t at, oct_module **made)
{
    const oct_prepare_node *p = &w->plan->nodes[at];
    oct_module *norm = NULL;
    OCT_TRY(
        oct_apply_take_out(w, oct_apply_slot_of(w, w->graph->nodes[p->member[0]].called), &norm));
    return oct_qat_batch_norm_create(made, &norm, activation_at(p));
}

/* Makes a module by its rule: of the called module where that has parameters, otherwise from what the call takes beside
 * tensors. */
static oct_status make_by_rule(oct_apply *w, int64_t at, oct_module **made)
{
    const oct_prepare_node *p = &w->plan->nodes[at];
    const oct_graph_node *n = &w->graph->nodes[at];
    if (p->fusion) return oct_qat_add_create(made, activation_at(p));
    oct_module *plain = NULL;
    const int64_t earlier = p->rule->create_again ? earlier_call(w, at) : OCT_NO_INDEX;
    if (earlier >= 0) return p->rule->create_again(made, w->made[earlier]);
    if (p->rule->create_again)
        OCT_TRY(oct_apply_take_out(w, oct_apply_slot_of(w, n->called), &plain));
    else
        OCT_TRY(p->type->create(&plain, &n->args));
    if (!p->rule->create) {
        *made = plain;
        return OCT_OK;
    }
    OCT_TRY(p->rule->create(made, &plain));
    if (p->rule->aim) p->rule->aim(*made, w->plan->target);
    return OCT_OK;
}

/* Makes the module of a further call of one that was fused by hand. */
static oct_status make_again(const oct_module *fused, oct_module **made)
{
    const oct_qat_conv *conv = (const oct_qat_conv *)fused;
    const oct_qat_binary *sum = (const oct_qat_binary *)fused;
    const bool is_conv = fused->type == &oct_qat_conv_type;
    if (is_conv)
        OCT_TRY(oct_qat_conv_create_shared(made, conv, conv->add, conv->activation));
    else
        OCT_TRY(oct_qat_add_create(made, sum->activation));
    oct_qat_set_clip(*made, is_conv ? conv->clip : sum->clip);
    return OCT_OK;
}

/* Sets the bounds of a module that is fused with a clip. */
static void set_clip(const oct_apply *w, int64_t at, oct_module *made)
{
    const oct_prepare_node *p = &w->plan->nodes[at];
    if (!p->fusion || activation_at(p) != OCT_ACT_CLIP) return;
    const double *bounds = w->graph->nodes[oct_prepare_last_member(w->plan, at)].args.value;
    oct_qat_set_clip(made, (oct_clip_bounds){bounds[0], bounds[1]});
}

/* Folds the batch norm of a module that was fused by hand. Nothing is known of its input's scale
 * yet; it matters only to channels that are all but dead. */
static oct_status fold_fused(const oct_apply *w, oct_module *module)
{
    const oct_qparams unit = {.scale = 1.0f, .qmin = 0, .qmax = 255};
    bool fold = w->plan->options->fold_batch_norm && module->type == &oct_qat_conv_type &&
                ((const oct_qat_conv *)module)->batch_norm;
    return fold ? oct_qat_conv_fold((oct_qat_conv *)module, unit) : OCT_OK;
}

/* Gives a layer's weights their fake-quant; those that are another call's are quantized there. */
static oct_status quantize_weights(const oct_apply *w, int64_t at, oct_module *module)
{
    oct_qat_conv *conv = (oct_qat_conv *)module;
    if (module->type != &oct_qat_conv_type || conv->borrows || conv->weight_fake_quant)
        return OCT_OK;
    const oct_prepare_node *p = &w->plan->nodes[at];
    char site[OCT_SITE_BYTES];
    const oct_status status =
        oct_qat_conv_quantize_weights(conv, p->qconfig.weight_fake_quant, w->plan->target);
    return status == OCT_OK ? OCT_OK
                            : oct_fail_prefix("%s", oct_prepare_site_text(w->plan, at, site));
}

/* Whether the called module stays in its slot and runs there: QuantStubs, modules fused by hand,
 * and those that work on codes as they are. */
static bool runs_itself(const oct_apply *w, int64_t at)
{
    const oct_prepare_node *p = &w->plan->nodes[at];
    const oct_module *called = w->graph->nodes[at].called;
    if (!called || !stays(w->plan, at)) return false;
    return p->role == OCT_ROLE_RULE || earlier_call(w, at) < 0 ||
           oct_prepare_one_module(w->plan, at);
}

static oct_status make_quantized(oct_apply *w, int64_t at, oct_module **made)
{
    const oct_prepare_node *p = &w->plan->nodes[at];
    switch (w->plan->nodes[p->member[0]].role) {
    case OCT_ROLE_QUANT_STUB:
        return oct_quant_stub_create(made);
    case OCT_ROLE_LAYER:
        return make_conv(w, at, made);
    case OCT_ROLE_BATCH_NORM:
        return make_norm(w, at, made);
    case OCT_ROLE_FUSED:
        return make_again(w->graph->nodes[at].called, made);
    case OCT_ROLE_RULE:
        return make_by_rule(w, at, made);
    case OCT_ROLE_FLOAT:
    case OCT_ROLE_DEQUANT_STUB:
        break;
    }
    return oct_fail(OCT_DEFECT, "%s: planned to be quantized, but nothing can be", p->path);
}

oct_status oct_apply_make_module(oct_apply *w, int64_t at)
{
    oct_module *made = NULL;
    int64_t earlier = earlier_call(w, at);
    bool eager = w->plan->options->method == OCT_METHOD_EAGER;
    if (eager && !w->graph->nodes[at].called) return OCT_OK; /* an op that works on codes */
    if (runs_itself(w, at)) {
        w->made[at] = w->graph->nodes[at].called;
        OCT_TRY(fold_fused(w, w->made[at]));
        return quantize_weights(w, at, w->made[at]);
    }
    if (earlier >= 0 && oct_prepare_one_module(w->plan, at)) {
        w->made[at] = w->made[earlier];
        return OCT_OK;
    }
    OCT_TRY(make_quantized(w, at, &made));
    set_clip(w, at, made);
    OCT_TRY(oct_apply_insert(w, at, &made));
    return quantize_weights(w, at, w->made[at]);
}
