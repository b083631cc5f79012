/* Carrying a plan without problems out.
 *
 * Every module that the forward calls has a slot in its parent. What replaces it takes the slot with
 * the hooks; a member that is fused away leaves an identity there, so hooks stay where the user put
 * them and run at the same call. Further calls of a module, and ops, get generated modules.
 */
#include "core/base/mem.h"
#include "quant/pass/prepare/prepare_plan.h"

#include <stdio.h>
#include <string.h>

/* A slot of the user's: what the forward called there and what stands there now. */
typedef struct slot {
    oct_module *was, *now;
    bool keep, taken;
} slot;

typedef struct work {
    oct_prepare_plan *plan;
    oct_graph *graph;
    slot *slots;
    size_t num_slots;
    oct_module **made; /* per node: what runs there */
} work;

static slot *slot_of(const work *w, const oct_module *called)
{
    for (size_t i = 0; i < w->num_slots; i++)
        if (w->slots[i].was == called) return &w->slots[i];
    return NULL;
}

/* Whether the called module itself goes on running at this node. */
static bool stays(const oct_prepare_plan *plan, int64_t node)
{
    const oct_prepare_node *p = &plan->nodes[node];
    if (!plan->nodes[p->place].quantized) return true;
    if (p->role == OCT_ROLE_QUANT_STUB || p->role == OCT_ROLE_FUSED) return true;
    return p->place == node && !p->fusion && p->role == OCT_ROLE_RULE && !p->rule->create;
}

static oct_status find_slots(work *w)
{
    const oct_graph *g = w->graph;
    OCT_TRY(oct_alloc(&w->slots, g->num_nodes, sizeof *w->slots));
    for (size_t i = 0; i < g->num_nodes; i++) {
        oct_module *called = g->nodes[i].called;
        if (!called) continue;
        slot *s = slot_of(w, called);
        if (!s) {
            s = &w->slots[w->num_slots++];
            *s = (slot){.was = called, .now = called};
        }
        s->keep |= stays(w->plan, (int64_t)i);
    }
    return OCT_OK;
}

/* Puts a module into a slot, with the hooks; *out is what stood there. */
static oct_status put(work *w, slot *s, oct_module *made, oct_module **out)
{
    oct_module *old = s->now;
    OCT_TRY(oct_module_replace(w->plan->root, old, made));
    oct_hooks_move(&old->pre_hooks, &made->pre_hooks);
    oct_hooks_move(&old->hooks, &made->hooks);
    s->now = made;
    *out = old;
    return OCT_OK;
}

/* Takes the called module out of its slot, which an identity holds from now on. */
static oct_status take_out(work *w, slot *s, oct_module **module)
{
    oct_module *identity = NULL;
    OCT_ASSERT(s->now == s->was && !s->keep);
    OCT_TRY(oct_identity_create(&identity));
    oct_status status = put(w, s, identity, module);
    if (status != OCT_OK) oct_module_destroy(&identity);
    return status;
}

/* The name of a first call's module whose slot other calls need: behind those that the plan knows. */
static int number_behind(const work *w, int64_t node)
{
    const oct_graph_node *n = &w->graph->nodes[node];
    int number = 0;
    for (size_t i = 0; i < w->graph->num_nodes; i++) {
        const oct_prepare_node *p = &w->plan->nodes[i];
        bool same =
            p->parent == w->plan->nodes[node].parent && strcmp(w->graph->nodes[i].op, n->op) == 0;
        if (same && p->number >= number) number = p->number + 1;
    }
    return number;
}

/* Gives what was made for a node its place in the tree. */
static oct_status settle(work *w, int64_t node, oct_module **made)
{
    oct_prepare_node *p = &w->plan->nodes[node];
    const oct_graph_node *n = &w->graph->nodes[node];
    slot *s = n->called ? slot_of(w, n->called) : NULL;
    char name[64];
    w->made[node] = *made;
    if (s && !s->keep && !s->taken) {
        oct_module *old = NULL;
        s->taken = true;
        OCT_TRY(put(w, s, *made, &old));
        oct_module_destroy(&old);
        return OCT_OK;
    }
    if (p->number < 0) p->number = number_behind(w, node);
    snprintf(name, sizeof name, "_generated_%s_%d", n->op, p->number);
    return oct_graph_add_named(w->graph, p->parent, name, made);
}

/* An earlier place whose first member calls the same module, or OCT_NO_INDEX. */
static int64_t earlier_call(const work *w, int64_t place)
{
    const oct_module *called = w->graph->nodes[w->plan->nodes[place].member[0]].called;
    for (int64_t i = 0; called && i < place; i++)
        if (oct_prepare_runs_here(w->plan, i) && w->made[i] &&
            w->graph->nodes[w->plan->nodes[i].member[0]].called == called)
            return i;
    return OCT_NO_INDEX;
}

/* The fused batch norm, taken out; folded into the layer at once when it shall not live. */
static oct_status take_norm(work *w, int64_t place, oct_module *layer, oct_module **norm)
{
    int64_t node = oct_prepare_member(w->plan, place, OCT_MEMBER_BN);
    if (node < 0) return OCT_OK;
    OCT_TRY(take_out(w, slot_of(w, w->graph->nodes[node].called), norm));
    if (!w->plan->options->fold_batch_norm) return OCT_OK;
    oct_status status = oct_fold_float(layer, (const oct_batch_norm_module *)*norm);
    oct_module_destroy(norm);
    return status;
}

static oct_activation activation_at(const oct_prepare_node *p)
{
    return p->fusion ? oct_fusion_activation(p->fusion) : OCT_ACT_NONE;
}

static oct_status make_conv(work *w, int64_t place, oct_module **made)
{
    const oct_prepare_node *p = &w->plan->nodes[place];
    bool add = p->fusion && oct_fusion_has(p->fusion, OCT_MEMBER_ADD);
    int64_t earlier = earlier_call(w, place);
    if (earlier >= 0)
        return oct_qat_conv_create_shared(made, (const oct_qat_conv *)w->made[earlier], add,
                                          activation_at(p));
    oct_module *layer = NULL, *norm = NULL;
    OCT_TRY(take_out(w, slot_of(w, w->graph->nodes[p->member[0]].called), &layer));
    oct_status status = take_norm(w, place, layer, &norm);
    if (status == OCT_OK) return oct_qat_conv_create(made, &layer, &norm, add, activation_at(p));
    oct_module_destroy(&layer);
    oct_module_destroy(&norm);
    return status;
}

static oct_status make_norm(work *w, int64_t place, oct_module **made)
{
    const oct_prepare_node *p = &w->plan->nodes[place];
    oct_module *norm = NULL;
    OCT_TRY(take_out(w, slot_of(w, w->graph->nodes[p->member[0]].called), &norm));
    return oct_qat_batch_norm_create(made, &norm, activation_at(p));
}

/* By its rule, from what the call takes beside tensors. */
static oct_status make_by_rule(work *w, int64_t place, oct_module **made)
{
    const oct_prepare_node *p = &w->plan->nodes[place];
    const oct_graph_node *n = &w->graph->nodes[place];
    if (p->fusion) return oct_qat_add_create(made, activation_at(p) == OCT_ACT_RELU);
    oct_module *plain = NULL;
    OCT_TRY(p->type->create(&plain, &n->args));
    if (p->rule->create) return p->rule->create(made, &plain);
    *made = plain;
    return OCT_OK;
}

/* A module that was fused by hand, at a further call. */
static oct_status make_again(const oct_module *fused, oct_module **made)
{
    if (fused->type == &oct_qat_conv_type) {
        const oct_qat_conv *conv = (const oct_qat_conv *)fused;
        return oct_qat_conv_create_shared(made, conv, conv->add, conv->activation);
    }
    return oct_qat_add_create(made, ((const oct_qat_binary *)fused)->relu);
}

/* Nothing is known of its inputs' scale yet; it matters only to channels that are all but dead. */
static oct_status fold_fused(const work *w, oct_module *module)
{
    const oct_qparams unit = {.scale = 1.0f, .qmin = 0, .qmax = 255};
    bool fold = w->plan->options->fold_batch_norm && module->type == &oct_qat_conv_type &&
                ((const oct_qat_conv *)module)->batch_norm;
    return fold ? oct_qat_conv_fold((oct_qat_conv *)module, unit) : OCT_OK;
}

/* Weights that are another call's are quantized there. */
static oct_status quantize_weights(const work *w, int64_t place, oct_module *module)
{
    oct_qat_conv *conv = (oct_qat_conv *)module;
    if (module->type != &oct_qat_conv_type || conv->borrows || conv->weight_fake_quant)
        return OCT_OK;
    return oct_qat_conv_quantize_weights(conv, w->plan->nodes[place].qconfig.weight_fake_quant,
                                         w->plan->target->requantizer == OCT_REQUANT_SHIFT);
}

/* A module that stays in its slot and answers there: QuantStubs, modules fused by hand, and those that
 * work on codes as they are. */
static bool answers_itself(const work *w, int64_t place)
{
    const oct_prepare_node *p = &w->plan->nodes[place];
    const oct_module *called = w->graph->nodes[place].called;
    if (!called || !stays(w->plan, place)) return false;
    return p->role == OCT_ROLE_RULE || earlier_call(w, place) < 0 ||
           oct_prepare_one_module(w->plan, place);
}

static oct_status make(work *w, int64_t place, oct_module **made)
{
    const oct_prepare_node *p = &w->plan->nodes[place];
    switch (w->plan->nodes[p->member[0]].role) {
    case OCT_ROLE_QUANT_STUB:
        return oct_quant_stub_create(made);
    case OCT_ROLE_LAYER:
        return make_conv(w, place, made);
    case OCT_ROLE_BATCH_NORM:
        return make_norm(w, place, made);
    case OCT_ROLE_FUSED:
        return make_again(w->graph->nodes[place].called, made);
    case OCT_ROLE_RULE:
        return make_by_rule(w, place, made);
    case OCT_ROLE_FLOAT:
    case OCT_ROLE_DEQUANT_STUB:
        break;
    }
    return oct_fail(OCT_DEFECT, "%s: planned to be quantized, but nothing can be", p->path);
}

static oct_status make_node(work *w, int64_t place)
{
    oct_module *made = NULL;
    int64_t earlier = earlier_call(w, place);
    bool eager = w->plan->options->method == OCT_METHOD_EAGER;
    if (eager && !w->graph->nodes[place].called) return OCT_OK; /* an op that works on codes */
    if (answers_itself(w, place)) {
        w->made[place] = w->graph->nodes[place].called;
        OCT_TRY(fold_fused(w, w->made[place]));
        return quantize_weights(w, place, w->made[place]);
    }
    if (earlier >= 0 && oct_prepare_one_module(w->plan, place)) {
        w->made[place] = w->made[earlier];
        return OCT_OK;
    }
    OCT_TRY(make(w, place, &made));
    OCT_TRY(settle(w, place, &made));
    return quantize_weights(w, place, w->made[place]);
}

/* Those of members that the user gave up. */
static oct_status drop_member_hooks(work *w, int64_t place)
{
    const oct_prepare_node *p = &w->plan->nodes[place];
    for (int i = 0; i < p->num_members; i++) {
        oct_module *called = w->graph->nodes[p->member[i]].called;
        if (called && p->num_members > 1)
            OCT_TRY(oct_drop_hooks(called, i > 0, i < p->num_members - 1));
    }
    return OCT_OK;
}

static bool hooks_compute(const work *w, const oct_module *called)
{
    for (size_t i = 0; i < w->graph->num_nodes; i++)
        if (w->graph->nodes[i].hook == called) return true;
    return false;
}

/* The last member's hooks belong to the fused module. Of one that is called elsewhere too, they stay; and
 * hooks that compute stay where the forward's order has them. */
static oct_status hand_hooks_on(work *w, int64_t place)
{
    const oct_module *called = w->graph->nodes[oct_prepare_last_member(w->plan, place)].called;
    if (w->plan->nodes[place].num_members == 1 || !called) return OCT_OK;
    if (oct_prepare_num_calls(w->plan, called) == 1 && !hooks_compute(w, called))
        oct_hooks_move(&slot_of(w, called)->now->hooks, &w->made[place]->hooks);
    return OCT_OK;
}

static oct_status drop_scope_hooks(work *w, oct_mode mode)
{
    const oct_graph *g = w->graph;
    for (size_t i = 0; i < g->num_scopes[mode]; i++) {
        const oct_trace_scope *s = &g->scopes[mode][i];
        bool in = oct_prepare_fused_away_in(w->plan, s->input) >= 0;
        bool out = oct_prepare_fused_away_in(w->plan, s->output) >= 0;
        if (in || out) OCT_TRY(oct_drop_hooks(s->module, in, out));
    }
    return OCT_OK;
}

static bool runs_quantized(const work *w, int64_t i)
{
    return oct_prepare_runs_here(w->plan, i) && w->plan->nodes[i].quantized;
}

static oct_status make_all(work *w)
{
    const int64_t count = (int64_t)w->graph->num_nodes;
    OCT_TRY(drop_scope_hooks(w, OCT_MODE_EVALUATION));
    OCT_TRY(drop_scope_hooks(w, OCT_MODE_TRAINING));
    for (int64_t i = 0; i < count; i++)
        if (runs_quantized(w, i)) OCT_TRY(drop_member_hooks(w, i));
    for (int64_t i = 0; i < count; i++)
        if (runs_quantized(w, i)) OCT_TRY(make_node(w, i));
    return OCT_OK;
}

/* What was fused away everywhere becomes identity. */
static oct_status empty_slots(work *w)
{
    for (size_t i = 0; i < w->num_slots; i++) {
        slot *s = &w->slots[i];
        oct_module *old = NULL;
        if (s->keep || s->now != s->was) continue;
        OCT_TRY(take_out(w, s, &old));
        oct_module_destroy(&old);
    }
    for (int64_t i = 0; i < (int64_t)w->graph->num_nodes; i++)
        if (runs_quantized(w, i)) OCT_TRY(hand_hooks_on(w, i));
    return OCT_OK;
}

static oct_status add_stub(work *w, int64_t value, bool quantize)
{
    oct_module *stub = NULL, *parent = oct_prepare_stub_parent(w->plan, value);
    OCT_TRY(quantize ? oct_quant_stub_create(&stub) : oct_dequant_stub_create(&stub));
    oct_module *kept = stub;
    OCT_TRY(oct_graph_add_module(w->graph, parent, stub->type->name, &stub));
    *(quantize ? &w->graph->values[value].quantize : &w->graph->values[value].dequantize) = kept;
    return OCT_OK;
}

static oct_status add_stubs(work *w)
{
    if (w->plan->options->method == OCT_METHOD_EAGER) return OCT_OK;
    for (size_t v = 0; v < w->graph->num_values; v++)
        if (w->plan->values[v].quantize) OCT_TRY(add_stub(w, (int64_t)v, true));
    for (size_t v = 0; v < w->graph->num_values; v++)
        if (w->plan->values[v].dequantize) OCT_TRY(add_stub(w, (int64_t)v, false));
    return OCT_OK;
}

/* Of values in [0, 1]; codes around a middle have half as many above it. */
static float fixed_scale(const oct_prepare_plan *plan, int bits)
{
    float steps = bits == 16 ? 65536.0f : 256.0f;
    return plan->target->unsigned_codes ? 1.0f / steps : 2.0f / steps;
}

static oct_status new_fake_quant(const work *w, const oct_prepare_value *group, oct_fake_quant **fq)
{
    OCT_TRY(oct_fake_quant_create(fq, &group->qconfig, w->plan->target, group->is_signed));
    if (group->fixed) oct_fake_quant_fix(*fq, fixed_scale(w->plan, group->qconfig.bits));
    return OCT_OK;
}

/* The module that makes the codes of a value gives its group a fake-quant, or borrows the group's. */
static oct_status give_fake_quant(work *w, int64_t value)
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
            OCT_TRY(new_fake_quant(w, group, &fq));
            group->fq = fq;
            OCT_TRY(oct_quantized_adopt(maker, &fq));
            oct_module_train(&group->fq->base, maker->training);
        }
    }
    v->fq = group->fq;
    return OCT_OK;
}

static oct_status give_fake_quants(work *w)
{
    for (size_t i = 0; i < w->graph->num_nodes; i++)
        if (w->made[i] && oct_is_quantized(w->made[i]))
            ((oct_quantized *)w->made[i])->target = w->plan->target;
    for (size_t v = 0; v < w->graph->num_values; v++)
        OCT_TRY(give_fake_quant(w, (int64_t)v));
    return OCT_OK;
}

static bool reads_codes(const work *w, int64_t node)
{
    const oct_graph_node *n = &w->graph->nodes[node];
    for (int mode = 0; mode < OCT_MODES; mode++)
        for (int k = 0; n->in[mode] && k < n->num_inputs; k++)
            if (w->plan->values[oct_graph_input(w->graph, n, k, mode)].codes) return true;
    return false;
}

/* A float op gets a module where nothing else could run it: in symbolic, behind codes, and in a hook, whose
 * result has a value of its own then. */
static oct_status write_float(work *w, int64_t node)
{
    oct_graph_node *n = &w->graph->nodes[node];
    bool symbolic = w->plan->options->method == OCT_METHOD_SYMBOLIC;
    bool eager = w->plan->options->method == OCT_METHOD_EAGER;
    bool behind = reads_codes(w, node);
    n->action = behind || n->hook ? OCT_NODE_RUN : OCT_NODE_UNTOUCHED;
    n->module = n->called ? slot_of(w, n->called)->now : NULL;
    n->wants = w->plan->nodes[node].role == OCT_ROLE_DEQUANT_STUB ? OCT_WANTS_ANY : OCT_WANTS_FLOAT;
    if (n->called || eager || (!symbolic && n->action == OCT_NODE_UNTOUCHED)) return OCT_OK;
    oct_module *made = NULL;
    OCT_TRY(w->plan->nodes[node].type->create(&made, &n->args));
    return settle(w, node, &made);
}

static oct_status write_node(work *w, int64_t node)
{
    oct_prepare_node *p = &w->plan->nodes[node];
    oct_graph_node *n = &w->graph->nodes[node];
    n->wants = OCT_WANTS_ANY;
    if (p->place != node || p->passes) {
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
    n->note = p->why;
    p->why = NULL;
    char decider[OCT_SETTER_BYTES];
    return p->decider ? oct_strdup(&n->decider, oct_setter_text(p->decider, decider)) : OCT_OK;
}

static oct_status write_graph(work *w)
{
    for (size_t v = 0; v < w->graph->num_values; v++)
        w->graph->values[v].codes = w->plan->values[v].codes;
    for (size_t i = 0; i < w->graph->num_nodes; i++)
        OCT_TRY(write_node(w, (int64_t)i));
    for (size_t i = 0; i < w->graph->num_nodes; i++) {
        oct_graph_node *n = &w->graph->nodes[i];
        const slot *hook = n->hook ? slot_of(w, n->hook) : NULL;
        if (n->called) n->called = slot_of(w, n->called)->now;
        if (hook) n->hook = hook->now;
    }
    return OCT_OK;
}

oct_status oct_prepare_apply(oct_prepare_plan *plan)
{
    work w = {.plan = plan, .graph = plan->graph};
    oct_status status;
    oct_graph_attach(plan->graph, *plan->root);
    OCT_TRY_OUT(oct_alloc(&w.made, plan->graph->num_nodes, sizeof(oct_module *)));
    OCT_TRY_OUT(find_slots(&w));
    OCT_TRY_OUT(make_all(&w));
    OCT_TRY_OUT(empty_slots(&w));
    OCT_TRY_OUT(add_stubs(&w));
    OCT_TRY_OUT(give_fake_quants(&w));
    OCT_TRY_OUT(write_graph(&w));
out:
    oct_free(&w.made);
    oct_free(&w.slots);
    return status;
}
