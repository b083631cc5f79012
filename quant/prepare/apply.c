/* Carries a plan without problems out: modules, hooks, stubs, fake-quants, and the graph.
 *
 * Every module that the forward calls has a slot in its parent. What replaces it takes the slot with the hooks; a member
 * that is fused away leaves an identity there, so hooks stay where the user put them and run at the same call. Further
 * calls of a module, and ops, get generated modules. */
#include "core/base/mem.h"
#include "quant/prepare/prepare_plan.h"

#include <stdio.h>

/* Counts the nodes before `end` whose generated module, whether or not it is made, has the same container and op. */
int oct_prepare_next_number(const oct_prepare_plan *plan, size_t node, size_t end)
{
    int number = 0;
    for (size_t k = 0; k < end; k++)
        number += plan->nodes[k].generated_number >= 0 &&
                  plan->nodes[k].parent == plan->nodes[node].parent &&
                  strcmp(plan->graph->nodes[k].op, plan->graph->nodes[node].op) == 0;
    return number;
}

/* A slot of the user's: what the forward called there and what is there now. */
typedef struct apply_slot {
    oct_module *called, *current;
    bool stays;    /* the called module itself goes on running there, at some node */
    bool replaced; /* a module that was made is there */
} apply_slot;

typedef struct apply {
    oct_prepare_plan *plan;
    oct_graph *graph;
    apply_slot *slots;
    size_t num_slots;
    oct_module **made; /* per node: what runs there */
} apply;

/* The slot of a called module. */
static apply_slot *find_slot(const apply *w, const oct_module *called)
{
    for (size_t i = 0; i < w->num_slots; i++)
        if (w->slots[i].called == called) return &w->slots[i];
    return NULL;
}

/* Whether the called module itself goes on running at this node. */
static bool called_module_stays(const oct_prepare_plan *plan, int64_t node)
{
    const oct_prepare_node *p = &plan->nodes[node];
    if (!plan->nodes[p->runs_at].quantized) return true;
    if (p->role == OCT_ROLE_QUANT_STUB || p->role == OCT_ROLE_FUSED) return true;
    return p->runs_at == node && !p->fusion && p->role == OCT_ROLE_RULE && !p->rule->made;
}

/* Lists the slots of all called modules, their places in the tree, with what becomes of each. */
static oct_status find_slots(apply *w)
{
    const oct_graph *g = w->graph;
    OCT_TRY(oct_alloc(&w->slots, g->num_nodes, sizeof *w->slots));
    for (size_t i = 0; i < g->num_nodes; i++) {
        oct_module *called = g->nodes[i].called;
        if (!called) continue;
        apply_slot *s = find_slot(w, called);
        if (!s) s = &w->slots[w->num_slots++];
        s->called = s->current = called;
        s->stays |= called_module_stays(w->plan, (int64_t)i);
    }
    return OCT_OK;
}

/* Takes the called module out of its slot, which an identity holds from now on. */
static oct_status detach_from_slot(apply *w, apply_slot *slot, oct_module **module)
{
    OCT_ASSERT(slot->current == slot->called && !slot->stays);
    oct_module *identity = NULL;
    OCT_TRY(oct_replace_by_identity(w->plan->root, slot->called, &identity));
    slot->current = identity;
    *module = slot->called;
    return OCT_OK;
}

/* Takes the module that a node calls out of its slot. */
static oct_status detach_called(apply *w, int64_t node, oct_module **module)
{
    return detach_from_slot(w, find_slot(w, w->graph->nodes[node].called), module);
}

/* Puts what was made for a node into its slot, or into the tree under a generated name. */
static oct_status insert_module(apply *w, int64_t node, oct_module **made)
{
    oct_prepare_node *p = &w->plan->nodes[node];
    const oct_graph_node *n = &w->graph->nodes[node];
    apply_slot *s = n->called ? find_slot(w, n->called) : NULL;
    char name[64];
    w->made[node] = *made;
    if (s && !s->stays && !s->replaced) {
        oct_module *old = s->current;
        s->replaced = true;
        OCT_TRY(oct_replace_with_hooks(w->plan->root, old, *made));
        s->current = *made;
        oct_module_destroy(&old);
        return OCT_OK;
    }
    if (p->generated_number < 0) /* a first call, whose slot other calls need */
        p->generated_number = oct_prepare_next_number(w->plan, (size_t)node, w->graph->num_nodes);
    snprintf(name, sizeof name, "_generated_%s_%d", n->op, p->generated_number);
    return oct_graph_add_module(w->graph, p->parent, name, made);
}

/* Finds an earlier node with a made module whose fusion begins with a call of the same module; or OCT_NO_INDEX. */
static int64_t earlier_call(const apply *w, int64_t at)
{
    const oct_module *called = w->graph->nodes[w->plan->nodes[at].member[0]].called;
    for (int64_t i = 0; called && i < at; i++)
        if (oct_prepare_runs_here(w->plan, i) && w->made[i] &&
            w->graph->nodes[w->plan->nodes[i].member[0]].called == called)
            return i;
    return OCT_NO_INDEX;
}

/* The activation that a fusion ends with. */
static oct_activation activation_at(const oct_prepare_node *p)
{
    return p->fusion ? oct_fusion_activation(p->fusion) : OCT_ACT_NONE;
}

/* Makes a quantized layer of the called one and its batch norm, which is folded at once unless it is to stay live. */
static oct_status make_conv(apply *w, int64_t at, oct_module **made)
{
    const oct_prepare_node *p = &w->plan->nodes[at];
    bool add = p->fusion && oct_fusion_has(p->fusion, OCT_MEMBER_ADD);
    int64_t earlier = earlier_call(w, at),
            norm_node = oct_prepare_member(w->plan, at, OCT_MEMBER_BN);
    if (earlier >= 0)
        return oct_qat_conv_create_shared(made, (const oct_qat_conv *)w->made[earlier], add,
                                          activation_at(p));
    OCT_OWNED(oct_module_destroy) oct_module *layer = NULL, *norm = NULL;
    OCT_TRY(detach_called(w, p->member[0], &layer));
    if (norm_node >= 0) OCT_TRY(detach_called(w, norm_node, &norm));
    if (norm && w->plan->options->fold_batch_norm) {
        OCT_TRY(oct_fold_float(layer, (const oct_batch_norm_module *)norm));
        oct_module_destroy(&norm);
    }
    return oct_qat_conv_create(made, &layer, &norm, add, activation_at(p));
}

/* Makes a module by its rule: of the called module where that has parameters, otherwise from what the call takes beside
 * tensors. */
static oct_status make_by_rule(apply *w, int64_t at, oct_module **made)
{
    const oct_prepare_node *p = &w->plan->nodes[at];
    const oct_graph_node *n = &w->graph->nodes[at];
    if (p->fusion) return oct_qat_add_create(made, activation_at(p));
    oct_module *plain = NULL;
    const int64_t earlier = p->rule->create_again ? earlier_call(w, at) : OCT_NO_INDEX;
    if (earlier >= 0) return p->rule->create_again(made, w->made[earlier]);
    if (p->rule->create_again)
        OCT_TRY(detach_called(w, at, &plain));
    else
        OCT_TRY(oct_module_from(&plain, p->type, &n->args));
    if (!p->rule->made) {
        *made = plain;
        return OCT_OK;
    }
    return oct_quant_rule_make(p->rule, w->plan->target, made, &plain);
}

/* Makes a module for a further call of one that was fused by hand: a layer shares its weights. */
static oct_status make_again(const oct_module *fused, oct_module **made)
{
    const oct_qat_conv *conv = (const oct_qat_conv *)fused;
    const oct_quantized *q = (const oct_quantized *)fused;
    OCT_ASSERT(fused);
    if (fused->type == &oct_qat_conv_type)
        OCT_TRY(oct_qat_conv_create_shared(made, conv, conv->add, q->activation));
    else
        OCT_TRY(oct_qat_add_create(made, q->activation));
    ((oct_quantized *)*made)->clip = q->clip;
    return OCT_OK;
}

/* Gives a layer's weights their fake-quant; those that are another call's are quantized there. */
static oct_status quantize_weights(const apply *w, int64_t at, oct_module *module)
{
    oct_qat_conv *conv = (oct_qat_conv *)module;
    if (module->type != &oct_qat_conv_type || conv->borrows || conv->weight_fake_quant)
        return OCT_OK;
    const oct_prepare_node *p = &w->plan->nodes[at];
    const oct_status status =
        oct_qat_conv_quantize_weights(conv, p->qconfig.weight_fake_quant, w->plan->target);
    return status == OCT_OK ? OCT_OK
                            : oct_fail_prefix("%s", oct_prepare_site_text(w->plan, at).text);
}

/* Makes the quantized module of what runs at a node, by the role of its first member. */
static oct_status make_quantized(apply *w, int64_t at, oct_module **made)
{
    const oct_prepare_node *p = &w->plan->nodes[at];
    oct_module *norm = NULL;
    switch (w->plan->nodes[p->member[0]].role) {
    case OCT_ROLE_QUANT_STUB:
        return oct_quant_stub_create(made);
    case OCT_ROLE_LAYER:
        return make_conv(w, at, made);
    case OCT_ROLE_BATCH_NORM:
        OCT_TRY(detach_called(w, p->member[0], &norm));
        return oct_qat_batch_norm_create(made, &norm, activation_at(p));
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

/* Makes the quantized module of a node that runs one. */
static oct_status make_module(apply *w, int64_t at)
{
    /* Nothing is known yet of the input's scale of what was fused by hand; it matters only to channels that are all
     * but dead. */
    const oct_qparams unit = {.scale = 1.0f, .qmin = 0, .qmax = 255};
    const oct_prepare_node *p = &w->plan->nodes[at];
    oct_module *made = NULL;
    int64_t earlier = earlier_call(w, at);
    oct_module *called = w->graph->nodes[at].called;
    const bool one_module = oct_prepare_one_module(w->plan, at);
    if (w->plan->options->method == OCT_METHOD_EAGER && !called)
        return OCT_OK; /* an op that works on codes */
    /* QuantStubs, modules fused by hand and those that work on codes as they are run where they are. */
    if (called && called_module_stays(w->plan, at) &&
        (p->role == OCT_ROLE_RULE || earlier < 0 || one_module)) {
        made = w->made[at] = called;
        if (w->plan->options->fold_batch_norm && made->type == &oct_qat_conv_type &&
            ((const oct_qat_conv *)made)->batch_norm)
            OCT_TRY(oct_qat_conv_fold((oct_qat_conv *)made, unit));
        return quantize_weights(w, at, made);
    }
    if (earlier >= 0 && one_module) {
        w->made[at] = w->made[earlier];
        return OCT_OK;
    }
    OCT_TRY(make_quantized(w, at, &made));
    if (p->fusion && activation_at(p) == OCT_ACT_CLIP)
        oct_args_get(&oct_clip_arg_list,
                     &w->graph->nodes[oct_prepare_last_member(w->plan, at)].args,
                     &((oct_quantized *)made)->clip);
    OCT_TRY(insert_module(w, at, &made));
    return quantize_weights(w, at, w->made[at]);
}

/* Whether hooks of a module call ops or modules of the model. */
static bool hooks_make_calls(const apply *w, const oct_module *called)
{
    for (size_t i = 0; i < w->graph->num_nodes; i++)
        if (w->graph->nodes[i].hook == called) return true;
    return false;
}

/* Drops hooks inside of fusions, as the user allows (drop_hooks), and makes the modules of all quantized nodes. */
static oct_status make_modules(apply *w)
{
    const int64_t count = (int64_t)w->graph->num_nodes;
    for (int mode = 0; mode < OCT_MODES; mode++)
        for (size_t i = 0; i < w->graph->num_scopes[mode]; i++) {
            const oct_trace_scope *s = &w->graph->scopes[mode][i];
            oct_drop_hooks(s->module, oct_prepare_fused_away_in(w->plan, s->input) >= 0,
                           oct_prepare_fused_away_in(w->plan, s->output) >= 0);
        }
    for (int64_t i = 0; i < count; i++) {
        const oct_prepare_node *p = &w->plan->nodes[i];
        for (int k = 0; oct_prepare_runs_quantized(w->plan, i) && k < p->num_members; k++) {
            oct_module *called = w->graph->nodes[p->member[k]].called;
            if (called) oct_drop_hooks(called, k > 0, k < p->num_members - 1);
        }
    }
    for (int64_t i = 0; i < count; i++)
        if (oct_prepare_runs_quantized(w->plan, i)) OCT_TRY(make_module(w, i));
    return OCT_OK;
}

/* Makes what was fused away everywhere an identity. */
static oct_status empty_unused_slots(apply *w)
{
    for (size_t i = 0; i < w->num_slots; i++) {
        apply_slot *s = &w->slots[i];
        oct_module *old = NULL;
        if (s->stays || s->current != s->called) continue;
        OCT_TRY(detach_from_slot(w, s, &old));
        oct_module_destroy(&old);
    }
    for (int64_t i = 0; i < (int64_t)w->graph->num_nodes; i++) {
        if (!oct_prepare_runs_quantized(w->plan, i) || w->plan->nodes[i].num_members < 2) continue;
        /* The last member's hooks belong to the fused module. Those of a module that is called elsewhere too stay there,
         * and hooks that compute stay where the forward's order has them. */
        const oct_module *last = w->graph->nodes[oct_prepare_last_member(w->plan, i)].called;
        if (last && oct_prepare_num_calls(w->plan, last) == 1 && !hooks_make_calls(w, last))
            oct_hooks_move(&find_slot(w, last)->current->hooks, &w->made[i]->hooks);
    }
    return OCT_OK;
}

/* Adds the stub that is generated after a value, under the next free name of its container. */
static oct_status add_stub(apply *w, int64_t value, bool quantize)
{
    oct_module *stub = NULL, *parent = oct_prepare_stub_parent(w->plan, value);
    char name[64];
    int number = 0;
    OCT_TRY(quantize ? oct_quant_stub_create(&stub) : oct_dequant_stub_create(&stub));
    *(quantize ? &w->graph->values[value].quantize : &w->graph->values[value].dequantize) = stub;
    do {
        snprintf(name, sizeof name, "_generated_%s_%d", stub->type->name, number++);
    } while (oct_module_find(parent, name));
    return oct_graph_add_module(w->graph, parent, name, &stub);
}

/* Adds the stubs that the plan wants after values, first those that quantize. In eager all stubs are the user's. */
static oct_status add_stubs(apply *w)
{
    if (w->plan->options->method == OCT_METHOD_EAGER) return OCT_OK;
    for (size_t v = 0; v < w->graph->num_values; v++)
        if (w->plan->values[v].quantize) OCT_TRY(add_stub(w, (int64_t)v, true));
    for (size_t v = 0; v < w->graph->num_values; v++)
        if (w->plan->values[v].dequantize) OCT_TRY(add_stub(w, (int64_t)v, false));
    return OCT_OK;
}

/* The scale of values in [0, 1], or of a function that the target fixes in [-1, 1]; codes around a middle have half as
 * many above it. */
static float fixed_scale(const oct_prepare_plan *plan, const oct_prepare_value *group)
{
    const float steps = group->qconfig.bits == 16 ? 65536.0f : 256.0f;
    const bool centred = group->is_signed && plan->target->fixed_functions;
    return plan->target->unsigned_codes && !centred ? 1.0f / steps : 2.0f / steps;
}

/* Gives the module that makes the codes of a value its group's fake-quant: a new or a borrowed
 * one. */
static oct_status set_fake_quant(apply *w, int64_t value)
{
    int64_t root = oct_prepare_group_of(w->plan, value);
    if (root < 0) return OCT_OK;
    oct_prepare_value *group = &w->plan->values[root];
    oct_graph_value *v = &w->graph->values[value];
    oct_module *maker = v->quantize ? v->quantize : v->producer >= 0 ? w->made[v->producer] : NULL;
    if (maker && oct_is_quantized(maker) && !((oct_quantized *)maker)->fake_quant) {
        oct_fake_quant *fq = NULL;
        ((oct_quantized *)maker)->target = w->plan->target;
        if (group->fq) {
            oct_quantized_borrow(maker, group->fq);
        } else {
            OCT_TRY(oct_fake_quant_create(&fq, &group->qconfig, w->plan->target, group->is_signed));
            if (group->fixed) oct_fake_quant_fix(fq, fixed_scale(w->plan, group));
            group->fq = fq;
            OCT_TRY(oct_quantized_adopt(maker, &fq));
            oct_module_train(&group->fq->base, maker->training);
        }
    }
    v->fq = group->fq;
    return OCT_OK;
}

/* Completes a float node. An op gets a module where nothing else could run it: in symbolic, after
 * codes, and in a hook, whose result has a value of its own then. */
static oct_status write_float(apply *w, int64_t node)
{
    oct_graph_node *n = &w->graph->nodes[node];
    bool symbolic = w->plan->options->method == OCT_METHOD_SYMBOLIC;
    bool eager = w->plan->options->method == OCT_METHOD_EAGER;
    bool after_codes = oct_prepare_reads_codes(w->plan, node, n->num_inputs);
    n->action = after_codes || n->hook ? OCT_NODE_RUN : OCT_NODE_UNTOUCHED;
    n->module = n->called ? find_slot(w, n->called)->current : NULL;
    n->wants = w->plan->nodes[node].role == OCT_ROLE_DEQUANT_STUB ? OCT_WANTS_ANY : OCT_WANTS_FLOAT;
    if (n->called || eager || (!symbolic && n->action == OCT_NODE_UNTOUCHED)) return OCT_OK;
    oct_module *made = NULL;
    OCT_TRY(oct_module_from(&made, w->plan->nodes[node].type, &n->args));
    return insert_module(w, node, &made);
}

/* Completes a node: what runs there, and what the report says of it. */
static oct_status write_node(apply *w, int64_t node)
{
    oct_prepare_node *p = &w->plan->nodes[node];
    oct_graph_node *n = &w->graph->nodes[node];
    n->wants = OCT_WANTS_ANY;
    n->runs_at = p->runs_at;
    if (p->runs_at != node || p->passes_codes) {
        n->action = OCT_NODE_ALIAS;
        n->module = NULL;
    } else if (p->quantized) {
        n->action = w->made[node] ? OCT_NODE_RUN : OCT_NODE_UNTOUCHED;
        n->module = w->made[node];
        n->wants = p->role == OCT_ROLE_QUANT_STUB ? OCT_WANTS_FLOAT : OCT_WANTS_CODES;
        if (p->fusion) OCT_TRY(oct_strdup(&n->fusion, p->fusion->name));
    } else {
        OCT_TRY(write_float(w, node));
        n->module = w->made[node] ? w->made[node] : n->module;
    }
    n->note = p->note;
    p->note = NULL;
    char decider[OCT_SETTER_BYTES];
    return p->decider ? oct_strdup(&n->decider, oct_setter_text(p->decider, decider)) : OCT_OK;
}

/* Completes the graph, whose nodes then know the modules that are now in the slots. */
static oct_status write_graph(apply *w)
{
    for (size_t v = 0; v < w->graph->num_values; v++)
        w->graph->values[v].codes = w->plan->values[v].codes;
    for (size_t i = 0; i < w->graph->num_nodes; i++)
        OCT_TRY(write_node(w, (int64_t)i));
    for (size_t i = 0; i < w->graph->num_nodes; i++) {
        oct_graph_node *n = &w->graph->nodes[i];
        const apply_slot *hook = n->hook ? find_slot(w, n->hook) : NULL;
        if (n->called) n->called = find_slot(w, n->called)->current;
        if (hook) n->hook = hook->current;
    }
    return OCT_OK;
}

/* Carries the plan out: modules, stubs, quantizers, graph. Modules are made before quantizers, which need them, and the
 * graph is completed last, when all modules are in place. */
oct_status oct_prepare_apply(oct_prepare_plan *plan)
{
    apply w = {.plan = plan, .graph = plan->graph};
    oct_status status;
    oct_graph_attach(plan->graph, *plan->root);
    OCT_TRY_OUT(oct_alloc(&w.made, plan->graph->num_nodes, sizeof(oct_module *)));
    OCT_TRY_OUT(find_slots(&w));
    OCT_TRY_OUT(make_modules(&w));
    OCT_TRY_OUT(empty_unused_slots(&w));
    OCT_TRY_OUT(add_stubs(&w));
    for (size_t i = 0; i < w.graph->num_nodes; i++)
        if (w.made[i] && oct_is_quantized(w.made[i]))
            ((oct_quantized *)w.made[i])->target = plan->target;
    for (size_t v = 0; v < w.graph->num_values; v++)
        OCT_TRY_OUT(set_fake_quant(&w, (int64_t)v));
    OCT_TRY_OUT(write_graph(&w));
out:
    oct_free(&w.made);
    oct_free(&w.slots);
    return status;
}
